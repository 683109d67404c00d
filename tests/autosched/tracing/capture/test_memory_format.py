"""Graphs with images channels last: the same results at the same places, and what is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from autosched.tracing.capture import memory_format
from autosched.tracing.capture.graph_nodes import is_convolution
from autosched.tracing.capture.memory_format import channels_last
from image_models import image_models
from program_check import places

W, V = torch.randn(4, 4, 3, 3), torch.randn(4, 4, 1, 1)
X = torch.randn(2, 4, 6, 6)


def graph_of(function: Callable[..., Any], *inputs: Tensor) -> fx.GraphModule:
    """A functional graph of ATen operators, with closed-over tensors as inputs of operators."""
    with torch.no_grad():
        return make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)


def moved(function: Callable[..., Any], *inputs: Tensor) -> fx.GraphModule | None:
    graph = graph_of(function, *inputs)
    found = channels_last(graph.graph)
    return None if found is None else fx.GraphModule(graph, found)


def several(made: Any) -> tuple[Tensor, ...]:
    return made if isinstance(made, tuple) else (made,)


class Recorder(fx.Interpreter):
    """Notes whether the results of convolutions are channels last."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.found: list[bool] = []

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        if is_convolution(n):
            memory_format = torch.channels_last if made.dim() == 4 else torch.channels_last_3d
            self.found.append(made.is_contiguous(memory_format=memory_format))
        return made


@pytest.mark.parametrize("name", image_models())
def test_images_are_channels_last_and_results_where_they_were(name: str) -> None:
    model, x = image_models()[name]
    module = moved(model, x)
    assert module is not None
    recorder = Recorder(module)
    made, right = several(recorder.run(x)), several(model(x))
    torch.testing.assert_close(made, right)
    assert places([x], made) == places([x], right)
    assert all(recorder.found)


@pytest.mark.parametrize("name", image_models())
def test_what_shape_functions_foretell_is_what_is_made(name: str) -> None:
    """Kernels are made for the strides that nodes have."""
    model, x = image_models()[name]
    module = moved(model, x)
    assert module is not None
    for node, made in _values(module, x).items():
        assert made.stride() == node.meta["val"].stride(), node


def _values(module: fx.GraphModule, x: Tensor) -> dict[fx.Node, Tensor]:
    interpreter = fx.Interpreter(module, garbage_collect_values=False)
    interpreter.run(x)
    return {n: v for n, v in interpreter.env.items() if isinstance(v, Tensor) and n.op == "call_function"}


def twice(x: Tensor) -> Tensor:
    return F.conv2d(F.conv2d(x, W).relu(), V)


UNCHANGED: dict[str, tuple[Callable[..., Any], Tensor]] = {
    "one convolution": (lambda x: F.conv2d(x, W).relu(), X),
    "convolutions side by side": (lambda x: (F.conv2d(x, W), F.conv2d(x, V)), X),
    "channels last as it is": (twice, X.to(memory_format=torch.channels_last)),
    "along one dimension": (lambda x: F.conv1d(F.conv1d(x[..., 0], W[..., 0]), V[..., 0]), X),
    "drawn in an order that no clone has": (lambda x: torch.rand_like(twice(x).transpose(2, 3) * 2), X),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_a_graph_that_would_not_gain_or_not_be_the_same_is_left(name: str) -> None:
    function, x = UNCHANGED[name]
    assert moved(function, x) is None


def views(x: Tensor) -> tuple[Tensor, ...]:
    y, (a, b) = twice(x), x.split(2, 1)
    return y, y[:1], twice(x + 1).transpose(1, 2)[1:], a, twice(torch.cat((b, a), 1)).split(3, 1)[1], x[:, :1]


def test_results_share_memory_as_they_did() -> None:
    module = moved(views, X)
    assert module is not None
    made, right = module(X), views(X)
    torch.testing.assert_close(made, right)
    assert places([X], made) == places([X], right)


def test_gradients_are_left_as_they_were_written() -> None:
    def gradient(x: Tensor) -> Tensor:
        with torch.enable_grad():
            given = x.detach().requires_grad_()
            return torch.autograd.grad(twice(given).sum(), given)[0]

    assert channels_last(make_fx(gradient, tracing_mode="fake", _allow_non_fake_inputs=True)(X).graph) is None


def test_random_numbers_are_drawn_as_they_were() -> None:
    def function(x: Tensor) -> Tensor:
        y = twice(x)
        return F.conv2d(y * torch.rand_like(y), V)

    module = moved(function, X)
    assert module is not None
    torch.manual_seed(0)
    made = module(X)
    torch.manual_seed(0)
    torch.testing.assert_close(made, function(X))


def test_operators_that_read_memory_read_it_as_it_was() -> None:
    def function(x: Tensor) -> Tensor:
        y = twice(x).transpose(2, 3)
        return F.conv2d(torch.as_strided(y, (2, 4, 4, 2), (64, 16, 4, 2)), V)

    module = moved(function, X)
    assert module is not None
    torch.testing.assert_close(module(X), function(X))


def test_a_mistake_costs_the_format_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("made up")

    monkeypatch.setattr(memory_format, "made_again", fails)
    with pytest.warns(RuntimeWarning, match="channels last failed with KeyError: 'made up'; this is a defect"):
        assert moved(lambda x: F.conv2d(F.conv2d(x, W), V), X) is None
