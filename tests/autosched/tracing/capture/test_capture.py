"""Captures: the graphs that tracing starts from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from autosched import trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from autosched.tracing.capture import decompositions as capture_decompositions
from autosched.tracing.capture.capture import capture
from autosched.tracing.capture.decompositions import decomposed, decompositions
from autosched.tracing.capture.expanding import NeedsWholeGraphError, expand
from untuned import untuned_kernels

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "normalised": lambda x: F.layer_norm(F.gelu(x) @ x.mT, (6,)).softmax(-1),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "kept whole": lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"),
    "by a rule of Python": lambda x: x.std(1) + F.interpolate(x[None], scale_factor=2.0).sum(),
    "composed of views": lambda x: torch.cat([x.chunk(2)[0].flatten(), x.select(0, 1).tile(3)]).nanmean(),
    "memory laid out in place": lambda x: F.adaptive_avg_pool1d(x.reshape(3, 4, 4).mT * 1, 1).flatten(1) * 2,
    "random numbers": lambda x: x + torch.randn(6, 8) * torch.rand_like(x) + torch.rand(3).numel(),
    "many calls of few kinds": lambda x: _recurrent(x.tile(12, 1)[:, None], x[None, :1, :4], x),
}


def _recurrent(inputs: Tensor, state: Tensor, x: Tensor) -> Tensor:
    """A layer whose state and gates share memory with each other and with the weights."""
    weights = [x[:4], x[:4, :4], x[0, :4], x[1, :4]]
    return torch.rnn_tanh(inputs, state, weights, True, 1, 0.0, False, False, False)[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_graph_is_decomposed_as_pytorch_does_it(name: str) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return FUNCTIONS[name](x)

    exported = torch.export.export(Module(), (torch.randn(6, 8),), strict=False)
    wanted = exported.run_decompositions(decompositions())
    got = decomposed(exported)
    assert _numbered(got.graph) == _numbered(wanted.graph)
    named = [n.name for n in _results(got.graph)]
    assert [spec.arg.name for spec in got.graph_signature.output_specs] == named
    assert got.graph_signature.input_specs == wanted.graph_signature.input_specs


def _results(graph: fx.Graph) -> list[fx.Node]:
    (output,) = (n for n in graph.nodes if n.op == "output")
    return list(output.args[0])


def _numbered(graph: fx.Graph) -> list[str]:
    """What the nodes compute of which others, whatever they are called, with what they make."""
    numbers = {node: n for n, node in enumerate(graph.nodes)}

    def shown(node: fx.Node) -> str:
        given = fx.map_arg((node.args, node.kwargs), lambda n: f"%{numbers[n]}")
        made = node.meta.get("val")
        return f"{node.op} {node.target if node.op == 'call_function' else ''} {given} {getattr(made, 'shape', '')}"

    return list(map(shown, graph.nodes))


def test_steps_of_a_recurrent_net_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another step PyTorch runs its part of the inputs, a slice and a view."""
    net = torch.nn.RNN(4, 4).requires_grad_(False)
    operations = 0
    dispatch = FakeTensorMode.dispatch

    def counted(*given: Any) -> Any:
        nonlocal operations
        operations += 1
        return dispatch(*given)

    monkeypatch.setattr(FakeTensorMode, "dispatch", counted)
    counts = []
    for steps in (70, 90):
        operations = 0
        capture(lambda x: net(x), [torch.empty(steps, 2, 4)])
        counts.append(operations)
    assert counts[1] - counts[0] < 20 * (90 - 70)


def test_constants_that_differ_in_their_sign_alone_are_two() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.masked_fill(x > 0, 0.0), x.masked_fill(x > 0, -0.0)

    traced = trace(function, torch.ones(8)).for_target(cpu_target())
    first, second = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(torch.ones(8))
    assert not first.signbit().any()
    assert second.signbit().all()


def part_changed(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y[:, 0] += 1
    y[1:3, 2] *= y[0, 0]
    return y.exp(), y[0]


def parts_of_parts_changed(x: Tensor) -> Tensor:
    y = x * 1
    y[1:][1:][0] -= 5
    y[1:][0] /= 2
    return y


def rows_from_rows_before(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    for i in range(len(x)):
        y[i] = x[i] * i + y[i - 1]
    return y


def diagonal_changed(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y.diagonal().copy_(x[0])
    return y + 1


def two_parts_at_once(x: Tensor) -> Tensor:
    y = x.t().contiguous()
    first, second = y[0], y[1]
    first.add_(1)
    second.mul_(2)
    return y


def part_read_after_the_whole_changed(x: Tensor) -> tuple[Tensor, ...]:
    y = x + 1
    row = y[0]
    row.mul_(2)
    y.mul_(3)
    return row * 1, y


def other_view_read_afterwards(x: Tensor) -> Tensor:
    y = x * 1
    turned = y.t()
    y[0] += 1
    return turned + y.t()


def narrower_than_what_is_added(x: Tensor) -> Tensor:
    y = x.half()
    y.add_(x * 1.001)
    return y * 3


EXPANDED = [part_changed, parts_of_parts_changed, rows_from_rows_before, diagonal_changed]
WHOLE = [two_parts_at_once, part_read_after_the_whole_changed, other_view_read_afterwards, narrower_than_what_is_added]


@pytest.mark.parametrize("function", EXPANDED + WHOLE)
def test_changes_in_place_of_what_nobody_else_sees_are_made_functional(
    function: Callable[[Tensor], Tensor | tuple[Tensor, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = []

    def watched(graph: fx.Graph, *given: Any) -> None:
        before = str(graph)
        try:
            expand(graph, *given)
        except NeedsWholeGraphError:
            assert str(graph) == before
            whole.append(function)
            raise

    monkeypatch.setattr(capture_decompositions, "expand", watched)
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    traced = trace(function, x).for_target(cpu_target())
    got = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(x)
    torch.testing.assert_close(got, function(x), rtol=2e-3, atol=2e-3)
    assert bool(whole) == (function in WHOLE)
