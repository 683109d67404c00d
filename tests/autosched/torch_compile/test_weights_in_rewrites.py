"""Constants combined in compiled models: judged by the weights of every layer that shares the kernels."""

from __future__ import annotations

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
from autosched.tracing import TracedFunction
from autosched.tracing.capture.capture import Numerics, Weights
from untuned import rewritten_replay

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
    ("free", "shared", "rewritten"), [(1 << 30, False, True), (1 << 10, False, False), (1 << 10, True, True)]
)
def test_weights_are_prepared_where_there_is_memory_for_them(
    monkeypatch: pytest.MonkeyPatch, free: int, shared: bool, rewritten: bool
) -> None:
    monkeypatch.setattr(graph_compiler, "free_bytes", lambda _: free)
    monkeypatch.setattr(graph_compiler, "replay", rewritten_replay)
    reports: list[GraphReport] = []
    a, b = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return a(x), b(x)

    x = torch.randn(4, 16)
    with torch.no_grad():
        made = torch.compile(function, backend=backend_of(Options(share_weights=shared), reports.append))(x)
        torch.testing.assert_close(made, function(x))
    (report,) = reports
    assert bool(report.parts[0].rewrites) == rewritten
