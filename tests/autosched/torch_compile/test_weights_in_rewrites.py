"""Constants combined in compiled models: judged by the weights of every layer that shares the kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from autosched.torch_compile import graph_compiler
from autosched.torch_compile.backend import backend_of, by_graphs, compiled_once
from autosched.torch_compile.graphs import Allowed, known, weights_of
from autosched.torch_compile.options import Options
from autosched.torch_compile.problems import TracedProblem, traced_problems
from autosched.torch_compile.reports import GraphReport, Kind
from autosched.torch_compile.segments import DividedGraph
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing.callables.changed_weights import RefusedWarning
from autosched.tracing.capture.capture import Numerics, Weights
from search_spaces import Target
from untuned import rewritten_replay, untuned_kernels

SIZE = 64
RULE = "norm into product"


class Layer(nn.Module):
    """An RMS norm, a product that reads it, and what is added to the input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.RMSNorm(SIZE, 1e-5), nn.Linear(SIZE, SIZE, bias=False)
        self.down = nn.Linear(SIZE, SIZE, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


def segments_of(model: nn.Module, numerics: Numerics) -> tuple[DividedGraph, list[TracedFunction]]:
    """The graph that AOTAutograd makes of the model, and its distinct segments."""
    found: list[tuple[DividedGraph, list[TracedFunction]]] = []

    def compiler(kind: Kind, tensors: Weights) -> Callable[..., Any]:
        def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            divided = DividedGraph.of(graph, inputs, weights_of(inputs, kind), known(tensors, inputs))
            problems = traced_problems(divided, kind, Allowed(numerics=numerics)).values()
            found.append((divided, [p.traced for p in problems if isinstance(p, TracedProblem)]))
            made: Callable[..., Any] = graph.forward
            return made

        return compile_graph

    with torch.no_grad():
        compiled_once(model, by_graphs(compiler), torch.randn(6, SIZE, dtype=torch.float16), dynamic=False)
    (only,) = found
    return only


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(4))).half()


def is_rewritten(traced: Sequence[TracedFunction]) -> bool:
    return any(text.startswith(RULE) for each in traced for cut in each.cuts for text in cut.rewrites)


def test_constants_are_combined_where_the_weights_of_all_layers_allow_it(model: nn.Module) -> None:
    divided, traced = segments_of(model, "fold")
    assert len(divided.segments) > len(divided.problems), "expected equal layers"
    assert is_rewritten(traced)
    assert not any(each.refused for each in traced)


def test_weights_of_one_layer_refuse_it_for_all_equal_ones(model: nn.Module) -> None:
    """Products of weights that float16 does not hold."""
    layer = model[2]
    with torch.no_grad():
        layer.norm.weight.fill_(100.0)
        layer.up.weight.fill_(1000.0)
    divided, traced = segments_of(model, "fold")
    (equal,) = (each for (_, times), each in zip(divided.problems, traced, strict=True) if times > 1)
    assert not is_rewritten([equal])
    assert any(text.startswith(f"refused: {RULE}") and "no finite numbers any more" in text for text in equal.refused)


def test_they_are_not_combined_unless_a_user_allows_it(model: nn.Module) -> None:
    assert not is_rewritten(segments_of(model, "reassociate")[1])


@pytest.mark.parametrize(
    ("free", "shared", "bound", "rewritten"),
    [
        (1 << 30, False, False, True),
        (1 << 10, False, False, False),
        (1 << 10, True, False, True),
        (1 << 10, True, True, False),
        (1 << 30, True, True, True),
    ],
)
def test_weights_are_prepared_where_there_is_memory_for_them(
    monkeypatch: pytest.MonkeyPatch, free: int, shared: bool, bound: bool, rewritten: bool
) -> None:
    """Bound weights, of which there are views, are copied also where weights are shared."""
    monkeypatch.setattr(graph_compiler, "free_bytes", lambda _: free)
    monkeypatch.setattr(graph_compiler, "replay", rewritten_replay)
    reports: list[GraphReport] = []
    a, b = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
    views = b.state_dict() if bound else {}

    def function(x: Tensor) -> Tensor:
        return a(x) * b(x)

    x = torch.randn(4, 16)
    with torch.no_grad():
        made = torch.compile(function, backend=backend_of(Options(share_weights=shared), reports.append))(x)
        torch.testing.assert_close(made, function(x))
    (report,) = reports
    (text,) = report.parts[0].rewrites
    assert text.startswith("taken: " if rewritten else "refused: ")
    assert ("GB of weights" in text) != rewritten
    assert bool(views) == bound


def folded_replay(traced: TracedFunction, target: Target, **_: Any) -> TracedKernel:
    """Any kernels, of a cut that combines weights where there is one."""
    traced = traced.for_target(target)
    kernels = untuned_kernels([w for cut in traced.cuts for w in cut.workloads], target)
    return TracedKernel(next((cut for cut in traced.cuts if cut.folds), traced), kernels, cuts=traced.cuts)


def test_weights_that_are_loaded_later_are_judged_too(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small changes, and then, in one layer, a product of weights that float16 does not hold."""
    monkeypatch.setattr(graph_compiler, "replay", folded_replay)
    reports: list[GraphReport] = []
    torch.compiler.reset()
    compiled = torch.compile(model, backend=backend_of(Options(numerics="fold"), reports.append), dynamic=False)
    x = torch.randn(6, SIZE).half()
    x[:, 0] = 0

    def check() -> None:
        torch.testing.assert_close(compiled(x), model(x), rtol=2e-2, atol=2e-2)

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", RefusedWarning)
        check()
        assert any(text.startswith(f"taken: {RULE}") for part in reports[0].parts for text in part.rewrites)
        model.load_state_dict({name: 0.5 * tensor for name, tensor in model.state_dict().items()})
        check()
        changed = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        changed["0.norm.weight"][0], changed["0.up.weight"][:, 0] = 512.0, 256.0
        model.load_state_dict(changed)
        with pytest.warns(RefusedWarning, match=f"{RULE}.*no finite numbers any more"):
            check()
        check()
