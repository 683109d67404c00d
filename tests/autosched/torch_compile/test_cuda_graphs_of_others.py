"""Graphs that are left to PyTorch: which of them can be CUDA graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from autosched.planning import CapturedCall
from autosched.torch_compile import fallback
from autosched.torch_compile.fallback import as_cuda_graph, why_no_cuda_graph


def captured(function: Any, devices: tuple[str, ...] = ("cuda",)) -> tuple[fx.GraphModule, list[Tensor]]:
    """A graph as it would be on a GPU."""
    with FakeTensorMode():
        inputs = [torch.empty(4, 4, device=device) for device in devices]
        return make_fx(function)(*inputs), inputs


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x.relu() + 1, None),
        (lambda x: torch.nn.functional.dropout(x, 0.5), None),
        (lambda x: x.t(), "computes nothing"),
        (lambda x: x.cpu() + 1, "several devices"),
        (lambda x: x.add_(1) * 2, "effects"),
    ],
)
def test_a_graph_that_would_fail_within_a_capture_is_not_captured(function: Any, why: str | None) -> None:
    found = why_no_cuda_graph(*captured(function))
    assert found is None if why is None else why in str(found)


def test_operators_that_pytorch_does_not_capture_are_not() -> None:
    graph, inputs = captured(lambda x: x + 1)
    (added,) = (n for n in graph.graph.nodes if n.op == "call_function")
    added.target = torch.ops.aten._local_scalar_dense.default
    assert "waits for the device" in str(why_no_cuda_graph(graph, inputs))
    added.target = torch.ops.aten._fused_moving_avg_obs_fq_helper_functional.default
    assert "cannot be captured" in str(why_no_cuda_graph(graph, inputs))


def test_inputs_elsewhere_and_none_are_not_captured() -> None:
    assert "elsewhere" in str(why_no_cuda_graph(*captured(lambda x, y: (x + 1, y + 1), ("cuda", "cpu"))))
    assert "no inputs" in str(why_no_cuda_graph(*captured(lambda: torch.ones(2) + 1, ())))


def test_a_graph_on_a_cpu_is_called_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, inputs = captured(lambda x: x + 1, ("cpu",))
    assert as_cuda_graph(graph.forward, graph, inputs) == graph.forward
    monkeypatch.setattr(fallback, "why_no_cuda_graph", lambda *_: None)
    assert isinstance(as_cuda_graph(graph.forward, graph, inputs), CapturedCall)
