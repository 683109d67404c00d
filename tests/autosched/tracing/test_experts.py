"""Layers of experts as users write them: what is left to PyTorch, and what the kernels of the rest compute."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import best_spaces
from autosched import TracedFunction, trace
from autosched.torch_compile import graph_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.reports import GraphReport
from autosched.tracing.values.fallbacks import Fallback
from scheduled_tensors import interpreted
from search_spaces import Workload, target_named
from search_spaces.structure.segmented import segmented
from traced_reference import computed
from untuned import untuned_replay

H200 = target_named("h200")
TOKENS, EXPERTS, CHOSEN, SIZE, HIDDEN = 40, 6, 3, 32, 24
PAIRS = TOKENS * CHOSEN


def hidden_of(x: Tensor, ends: Tensor, gate_and_up: Tensor, down: Tensor) -> Tensor:
    gate, up = F.grouped_mm(x, gate_and_up.mT, offs=ends).chunk(2, -1)
    return F.grouped_mm(F.silu(gate) * up, down.mT, offs=ends)


def put_back(x: Tensor, experts: Tensor, shares: Tensor, gate_and_up: Tensor, down: Tensor) -> Tensor:
    """Each token's rows are next to each other again, and summed."""
    chosen, order = experts.view(-1).sort()
    counts = torch.histc(chosen.float(), bins=EXPERTS, min=0, max=EXPERTS - 1)
    made = hidden_of(x[order // CHOSEN], counts.cumsum(0, dtype=torch.int32), gate_and_up, down)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(PAIRS)
    made = made * shares.view(-1)[order][:, None]
    return made[inverse].view(TOKENS, CHOSEN, SIZE).sum(1).to(x.dtype)


def added(x: Tensor, experts: Tensor, shares: Tensor, gate_and_up: Tensor, down: Tensor) -> Tensor:
    order = experts.view(-1).argsort(stable=True)
    tokens = order // CHOSEN
    ends = torch.searchsorted(experts.view(-1)[order], torch.arange(EXPERTS), right=True).int()
    made = hidden_of(x[tokens], ends, gate_and_up, down) * shares.view(-1)[order][:, None]
    return torch.zeros_like(x).index_add_(0, tokens, made)


def scattered(x: Tensor, experts: Tensor, shares: Tensor, gate_and_up: Tensor, down: Tensor) -> Tensor:
    """Pairs are in the order of experts' first choices, second choices, …"""
    order = experts.t().reshape(-1).argsort()
    tokens = torch.arange(TOKENS).repeat(CHOSEN)[order]
    ends = torch.searchsorted(experts.t().reshape(-1)[order], torch.arange(EXPERTS), right=True).int()
    made = hidden_of(x[tokens], ends, gate_and_up, down) * shares.t().reshape(-1, 1)[order]
    return torch.zeros_like(x).scatter_add(0, tokens[:, None].expand(-1, SIZE), made)


ROUTING = {torch.ops.aten.sort, torch.ops.aten.histc, torch.ops.aten.scatter}
LAYERS: dict[str, Callable[..., Tensor]] = {f.__name__: f for f in (put_back, added, scattered)}


def inputs(seed: int = 0) -> tuple[Tensor, ...]:
    """Tokens, of which none chooses the last expert; choices; shares; and weights."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (TOKENS, SIZE), (EXPERTS, 2 * HIDDEN, SIZE), (EXPERTS, SIZE, HIDDEN)
    x, gate_and_up, down = (torch.randn(shape, generator=generator) for shape in shapes)
    shares, experts = torch.rand(TOKENS, EXPERTS - 1, generator=generator).topk(CHOSEN)
    x, shares, gate_and_up, down = (t.bfloat16() for t in (x, shares, gate_and_up / 6, down / 5))
    return x, experts, shares, gate_and_up, down


def by_token(x: Tensor, experts: Tensor, shares: Tensor, gate_and_up: Tensor, down: Tensor) -> Tensor:
    """The same in float64, a token after the other."""
    x, shares, gate_and_up, down = (t.double() for t in (x, shares, gate_and_up, down))
    rows = []
    for row, chosen, weights in zip(x, experts, shares, strict=True):
        gate, up = (gate_and_up[chosen] @ row).chunk(2, -1)
        rows.append(weights @ torch.einsum("esh,eh->es", down[chosen], F.silu(gate) * up))
    return torch.stack(rows)


@functools.cache
def traced(name: str) -> TracedFunction:
    return trace(LAYERS[name], *inputs(), allow_fallback=True)


@pytest.mark.parametrize("name", LAYERS)
def test_every_cut_of_a_layer_of_experts_computes_it(name: str) -> None:
    for cut in (found := traced(name)).cuts:
        (got,) = computed(cut, inputs(1))
        torch.testing.assert_close(got, by_token(*inputs(1)), rtol=1e-9, atol=1e-9)
    fewest = min((cut.launched for cut in found.cuts), key=len)
    products = [w for w in fewest if w.outputs[0].dtype == "bfloat16" and segmented(w.scheduled)]
    assert len(products) == 2, "tokens are looked up and activations computed where they are multiplied"
    assert [w.outputs[0].shape for w in fewest].count((TOKENS, SIZE)) == 1, "sums of a token's rows"


@pytest.mark.parametrize("name", LAYERS)
def test_only_routing_is_left_to_pytorch(name: str) -> None:
    called = {v.operation.target for s in traced(name).steps for v in s.values if isinstance(v, Fallback)}
    assert {target.overloadpacket for target in called} <= ROUTING


def by_program(workload: Workload, views: Sequence[Tensor]) -> list[Tensor]:
    """The outputs by any schedule for a GPU."""
    schedule = best_spaces.build(workload, H200).sample(np.random.default_rng(0))
    given = [
        v.to(getattr(torch, t.dtype)).float() if t.dtype == "bfloat16" else v.to(getattr(torch, t.dtype))
        for v, t in zip(views, workload.inputs, strict=True)
    ]
    return [torch.from_numpy(made) for made in interpreted(workload, schedule.program, [x.numpy() for x in given])]


@pytest.mark.parametrize("name", LAYERS)
def test_programs_for_a_gpu_compute_the_cut_of_fewest_kernels(name: str) -> None:
    cut = min(traced(name).cuts, key=lambda cut: len(cut.launched))
    (got,) = computed(cut, inputs(2), by_program)
    torch.testing.assert_close(got.double(), by_token(*inputs(2)), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("name", LAYERS)
def test_torch_compile_makes_one_graph_of_the_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch's operators in the place of Inductor, which takes seconds.
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(graph_compiler, "replay", untuned_replay)
    torch.compiler.reset()
    reports: list[GraphReport] = []
    made = torch.compile(LAYERS[name], backend=backend_of(Options(), reports.append), fullgraph=True)
    with torch.no_grad():
        got = made(*inputs(3))
    assert [report.by for report in reports] == ["autosched"], reports
    torch.testing.assert_close(got.double(), by_token(*inputs(3)), rtol=3e-2, atol=3e-2)
