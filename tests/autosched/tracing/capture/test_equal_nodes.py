"""Equal operators of equal arguments are computed once, and nothing else is."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from autosched import trace
from autosched.tracing import TracedFunction
from autosched.tracing.capture.equal_nodes import merge_equal
from traced_reference import computed

X, W = torch.randn(5, 4), torch.randn(4, 3)


def traced(function: Callable[..., object], *inputs: Tensor) -> TracedFunction:
    made = trace(function, *inputs, allow_fallback=True)
    assert isinstance(made, TracedFunction)
    return made


def test_a_product_that_is_written_twice_is_one() -> None:
    made = traced(lambda x, w: (x @ w).relu() + (x @ w).sigmoid(), X, W)
    assert len(made.launched) == 1


def test_equal_results_are_in_memory_of_their_own() -> None:
    made = traced(lambda x, w: (x @ w, x @ w), X, W)
    assert len({id(stored) for stored in made.stored}) == 2
    torch.testing.assert_close(computed(made, (X.double(), W.double())), [(X @ W).double()] * 2)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: x.exp() + x.exp(), 2),
        (lambda x: torch.add(x, x, alpha=2) + torch.add(x, x, alpha=3), 3),
        (lambda x: torch.full_like(x, 0.0) / torch.full_like(x, -0.0), 3),
        (lambda x: torch.add(x.long(), 1) * torch.add(x.long(), True), 4),
        (lambda x: (x * 1).view(20) + (x * 1).view(20), 3),
        (lambda x: x.sort(-1)[0] + x.sort(-1)[1], 4),
        (lambda x: torch.rand_like(x) + torch.rand_like(x), 3),
    ],
)
def test_arguments_of_other_types_or_signs_and_random_numbers_are_not_equal(
    function: Callable[[Tensor], Tensor], left: int
) -> None:
    graph = make_fx(function, tracing_mode="fake")(X)
    merge_equal(graph.graph)
    graph.graph.lint()
    assert sum(n.op == "call_function" for n in graph.graph.nodes) == left


def test_tensors_of_unknown_sizes_are_not_equal() -> None:
    graph = make_fx(lambda x: x.exp() + x.exp(), tracing_mode="symbolic")(X)
    merge_equal(graph.graph)
    assert sum(n.target is torch.ops.aten.exp.default for n in graph.graph.nodes) == 2


def test_a_tensor_that_is_changed_in_between_is_another() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.clone()
        before = y.exp()
        y.add_(1)
        return y.exp() - before

    graph = make_fx(function)(X)
    merge_equal(graph.graph)
    assert math.isclose(float((graph(X) - function(X)).abs().max()), 0, abs_tol=1e-6)
