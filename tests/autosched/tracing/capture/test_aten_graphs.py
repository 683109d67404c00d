"""Tests of graphs of ATen operators, which are captured without torch.export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

import autosched
from autosched.tracing.capture import capture
from autosched.tracing.capture.aten_graphs import program_of


def layer(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = F.layer_norm(F.gelu(x @ w) + x, (32,))
    first, second = y.chunk(2, -1)
    return y.view(2, 8, 32), first.transpose(0, 1), torch.softmax(second @ v, -1)


def image(x: Tensor, w: Tensor) -> tuple[Tensor]:
    return (F.max_pool2d(F.relu(F.conv2d(torch.cat((x, x), 1), w, padding=1)), 2),)


CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "layer": (layer, (torch.randn(16, 32), torch.randn(32, 32), torch.randn(16, 8))),
    "image": (image, (torch.randn(2, 4, 8, 8), torch.randn(6, 8, 3, 3))),
    "a result that is an argument": (lambda x: (x, x * 2, x.t()), (torch.randn(3, 4),)),
}


def aten_graph(name: str) -> tuple[fx.GraphModule, tuple[Tensor, ...]]:
    function, inputs = CASES[name]
    return make_fx(function, tracing_mode="fake")(*inputs), inputs


@pytest.mark.parametrize("name", CASES)
def test_a_graph_of_aten_operators_is_captured_without_torch_export(name: str) -> None:
    graph, inputs = aten_graph(name)
    with mock.patch.object(torch.export, "export", side_effect=AssertionError):
        traced, captured = autosched.trace(graph, *inputs), capture.capture(graph, inputs)
    with mock.patch.object(capture, "program_of", return_value=None):
        exported, by_export = autosched.trace(graph, *inputs), capture.capture(graph, inputs)
    assert [w.key for w in traced.launched] == [w.key for w in exported.launched]
    assert traced.structure == exported.structure
    assert captured.memory == by_export.memory


def in_place(x: Tensor) -> tuple[Tensor]:
    return (x.add_(1),)


@pytest.mark.parametrize("function", [in_place, lambda x: (x + torch.tensor([1.0, 2.0]),), lambda x: ((x, x + 1),)])
def test_a_graph_with_changes_constants_or_nested_results_is_exported(function: Callable[..., Any]) -> None:
    x = torch.randn(2)
    assert program_of(make_fx(function)(x), (x,)) is None


def test_a_function_is_exported() -> None:
    assert program_of(layer, CASES["layer"][1]) is None
