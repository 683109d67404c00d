"""Tensors that a function uses besides its arguments: what they are called, and that their gradients are not lost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autosched import InputError, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from autosched.tracing.capture.closed_over import name_of
from untuned import untuned_kernels

X = torch.randn(4, 8)
SCALE = torch.randn(8)
LAYER = nn.Linear(8, 4)


class Block(nn.Module):
    """Parameters in a list, a buffer, and a tensor that is neither."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.LayerNorm(8)])
        self.register_buffer("mean", torch.zeros(8))
        self.shift = torch.ones(8)

    def forward(self, x: Tensor) -> Any:
        return self.layers[1](self.layers[0](x)) - self.mean + self.shift


class Scaled:
    """What is called, and is no module."""

    def __init__(self) -> None:
        self.scale = SCALE

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.scale


def closing_over() -> Callable[[Tensor], Tensor]:
    bias = torch.randn(8)

    def add(x: Tensor) -> Tensor:
        return x + bias

    return lambda x: add(x) * 2


def linear(x: Tensor) -> Tensor:
    return F.relu(LAYER(x))


BLOCK = {f"layers.{n}.{p}" for n in (0, 1) for p in ("weight", "bias")} | {"mean", "shift"}
NAMES: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "a module": (Block(), BLOCK),
    "a method": (Block().forward, BLOCK),
    "a global tensor": (lambda x: x * SCALE, {"SCALE"}),
    "a global module": (linear, {"LAYER.weight", "LAYER.bias"}),
    "a closure": (closing_over(), {"bias"}),
    "an argument bound before": (functools.partial(lambda x, scale: x * scale, scale=SCALE), {"scale"}),
    "an attribute": (Scaled(), {"scale"}),
    "no name": (lambda x: x + torch.tensor([2.0, 1.0])[:1], {"constant_0"}),
}


@pytest.mark.parametrize("case", NAMES)
def test_tensors_are_called_what_the_user_calls_them(case: str) -> None:
    function, expected = NAMES[case]
    traced = trace(function, X)
    assert {s.name for s in traced.leaves if s.position is None} == expected


def test_a_tensor_that_is_called_like_an_argument_has_another_name() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Parameter(SCALE)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.x

    assert [s.name for s in trace(Named(), X).leaves] == ["x_constant", "x"]


def test_a_call_that_would_lose_the_gradient_of_a_closed_over_tensor_is_refused() -> None:
    traced = trace(linear, X)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    with pytest.raises(InputError, match=r"linear uses LAYER\.weight, LAYER\.bias, which a gradient is wanted of"):
        kernel(X)
    with torch.no_grad():
        torch.testing.assert_close(kernel(X), linear(X))


def test_a_function_of_no_module_is_traced_with_the_names_that_it_uses() -> None:
    space: dict[str, Any] = {"scale": SCALE}
    exec("def function(x):\n    return x * scale", space)
    space["function"].__module__ = None
    assert [s.name for s in trace(space["function"], X).leaves] == ["scale", "x"]


def test_a_graph_has_the_name_of_the_module_that_all_of_it_comes_from() -> None:
    outer, inner = {"1": ("L['model']", nn.Sequential)}, {"1": ("L['model']", nn.Sequential), "2": ("0", nn.Linear)}
    for stacks, name in (((inner, inner), "Linear"), ((inner, outer), "Sequential"), ((inner, {}), "traced")):
        graph = torch.fx.symbolic_trace(lambda x: torch.relu(torch.exp(x)))
        calls = [n for n in graph.graph.nodes if n.op == "call_function"]
        for node, stack in zip(calls, stacks, strict=True):
            node.meta["nn_module_stack"] = stack
        assert name_of(graph) == name
