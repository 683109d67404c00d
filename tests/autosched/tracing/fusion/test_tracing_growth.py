"""Layers and steps that are alike are cut once: what is assembled does not grow with how many there are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import TracedFunction, trace
from autosched.backends.spaces import why_no_schedule
from autosched.machine.devices import cpu_target
from autosched.tracing.callables import function as traced_functions
from autosched.tracing.fusion import chaining, partition, region_kernels, regions, sharing, split_points
from autosched.tracing.fusion.assembly import Assembled, assemble
from autosched.tracing.fusion.region_kernels import Fit
from autosched.tracing.fusion.regions import cone
from autosched.tracing.values.values import Value
from search_spaces import Target, Workload


def residual(layers: int) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """A stream that every layer normalises, multiplies and adds to."""

    def function(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
        for _ in range(layers):
            x = x + F.gelu(F.layer_norm(x, (64,)) @ up) @ down
        return x

    return function, (torch.empty(48, 64), torch.empty(64, 256), torch.empty(256, 64))


def recurrence(steps: int) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """Gates of a product with the step before; each step reads a part of x of its own."""

    def function(x: Tensor, weight: Tensor, state: Tensor) -> Tensor:
        hidden = torch.zeros_like(state)
        for step in x.unbind(0):
            gate, value = (step + hidden @ weight).chunk(2, -1)
            state = state * torch.sigmoid(gate) + torch.tanh(value)
            hidden = torch.tanh(state)
        return hidden

    return function, (torch.empty(steps, 16, 128), torch.empty(64, 128), torch.empty(16, 64))


def backwards(steps: int) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """The same from the last step to the first."""
    function, inputs = recurrence(steps)
    return lambda x, weight, state: function(x.flip(0), weight, state), inputs


def stacked_products(steps: int) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """A product of every state of a recurrence, one above the other."""

    def function(x: Tensor, weight: Tensor, out: Tensor, hidden: Tensor) -> Tensor:
        made = []
        for step in x.unbind(0):
            hidden = torch.tanh(step + hidden @ weight)
            made.append(hidden @ out)
        return torch.stack(made)

    return function, (torch.empty(steps, 16, 64), torch.empty(64, 64), torch.empty(64, 32), torch.empty(16, 64))


def steps_of_a_product(steps: int) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """A recurrence whose steps read rows of one product of all inputs, which is a matrix of other dimensions."""

    def function(x: Tensor, up: Tensor, weight: Tensor, hidden: Tensor) -> Tensor:
        projected = (x.flatten(0, 1) @ up).unflatten(0, (steps, 16))
        for step in projected.unbind(0):
            gate, value = step.chunk(2, -1)
            hidden = torch.sigmoid(gate) * hidden + torch.tanh(value + hidden @ weight)
        return hidden

    return function, (torch.empty(steps, 16, 32), torch.empty(32, 128), torch.empty(64, 64), torch.empty(16, 64))


@pytest.mark.parametrize(
    ("case", "growth"),
    [(residual, 1.0), (recurrence, 1.0), (backwards, 1.0), (steps_of_a_product, 1.0), (stacked_products, 1.5)],
)
def test_twice_as_much_takes_no_more_assemblies(
    case: Callable[[int], tuple[Callable[..., Tensor], tuple[Tensor, ...]]],
    growth: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a stack every part is another one, which the kernel of its own product may be joined with."""
    counts = []
    # Few short steps are one kernel.
    for number in (10, 20):
        calls = 0

        def counted(*given: Any) -> Assembled:
            nonlocal calls
            calls += 1
            return assemble(*given)

        monkeypatch.setattr(region_kernels, "assemble", counted)
        function, inputs = case(number)
        assert len(trace(function, *inputs).launched) >= number // 2
        counts.append(calls)
    assert counts[1] <= growth * counts[0] + 2


def stacked_states(steps: int) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """Every state of a recurrence, one above the other: the last one depends on all before."""

    def function(x: Tensor, weight: Tensor, hidden: Tensor) -> Tensor:
        made = []
        for step in x.unbind(0):
            hidden = torch.tanh(step + hidden @ weight)
            made.append(hidden)
        return torch.stack(made)

    return function, (torch.empty(steps, 16, 64), torch.empty(64, 64), torch.empty(16, 64))


def test_twice_as_many_steps_look_at_twice_as_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    visited = 0

    def counted(*given: Any) -> list[Value]:
        nonlocal visited
        found = cone(*given)
        visited += len(found)
        return found

    for module in (regions, split_points, sharing, chaining, partition):
        monkeypatch.setattr(module, "cone", counted)
    counts = []
    for steps in (12, 24):
        visited = 0
        function, inputs = stacked_states(steps)
        trace(function, *inputs)
        counts.append(visited)
    assert counts[1] < 2.1 * counts[0]


def test_steps_that_read_parts_of_one_tensor_are_one_workload() -> None:
    function, inputs = recurrence(8)
    assert len(trace(function, *inputs).workloads) <= 6


def dense_block(layers: int) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """Layers that each read all values before them, as in a DenseNet."""

    def function(x: Tensor, scale: Tensor, *weights: Tensor) -> Tensor:
        made = [x]
        for across, over in zip(weights[::2], weights[1::2], strict=True):
            whole = torch.cat(made, 1)
            narrow = F.conv2d(F.relu(whole * scale[: whole.shape[1], None, None]), across)
            made.append(F.conv2d(F.relu(narrow * 0.5 + 0.1), over, padding=1))
        return torch.cat(made, 1)

    half = functools.partial(torch.empty, dtype=torch.float16)
    weights = (w for n in range(layers) for w in (half(32, 16 + 8 * n, 1, 1), half(8, 32, 3, 3)))
    return function, (half(2, 16, 14, 14), half(16 + 8 * layers), *weights)


def read_by_several(rows: int) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """Values that several kernels compute: of many rows they are stored, of few they are not."""

    def function(x: Tensor, a: Tensor) -> tuple[Tensor, ...]:
        made = x.tanh().exp()
        return made.sum(0), (made @ a).softmax(-1), F.max_pool1d(made.sin().exp().sin(), 9, 1)

    return function, (torch.empty(rows, 1024), torch.empty(1024, 64))


@pytest.mark.parametrize(
    ("case", "fewer"),
    [
        (lambda: dense_block(3), True),
        (lambda: residual(2), False),
        (lambda: read_by_several(64), False),
        (lambda: read_by_several(16384), False),
    ],
    ids=["dense block", "residual", "few rows", "many rows"],
)
def test_candidates_that_are_not_assembled_would_not_have_been_chosen(
    case: Callable[[], tuple[Callable[..., Tensor], tuple[Tensor, ...]]],
    fewer: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function, inputs = case()
    traced, few = assembled_in(monkeypatch, function, inputs)
    for module in (partition, sharing):
        monkeypatch.setattr(module, "least_of_one", lambda *_: 0.0)
    everything, all_of_them = assembled_in(monkeypatch, function, inputs)
    assert few < all_of_them or not fewer
    assert [[w.key for w in cut.launched] for cut in traced.cuts] == [
        [w.key for w in cut.launched] for cut in everything.cuts
    ]


@pytest.mark.parametrize("case", [lambda: dense_block(3), lambda: residual(2)], ids=["dense block", "residual"])
def test_no_kernel_costs_less_than_the_bound_on_it(
    case: Callable[[], tuple[Callable[..., Tensor], tuple[Tensor, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, pairs = partition.Partition._fit, list[tuple[float, float]]()

    def noted(self: partition.Partition, value: Value, also: Value | None = None) -> Fit:
        fit = usual(self, value, also)
        if also is None and fit.cost is not None:
            pairs.append((partition.least_of_one(value, self._stored), fit.cost))
        return fit

    monkeypatch.setattr(partition.Partition, "_fit", noted)
    function, inputs = case()
    trace(function, *inputs)
    assert all(least <= cost for least, cost in pairs)
    assert any(least > 0.9 * cost for least, cost in pairs)


def test_a_target_without_some_kernels_has_the_others_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = mock.Mock(wraps=assemble)
    monkeypatch.setattr(region_kernels, "assemble", counted)
    traced = trace(lambda a, b: (a @ b).relu().sum(0), torch.empty(4, 6), torch.empty(6, 5))

    def why(workload: Workload, target: Target) -> str | None:
        return "no such kernels" if len(workload.stages) > 1 else why_no_schedule(workload, target)

    for module in (region_kernels, traced_functions):
        monkeypatch.setattr(module, "why_no_schedule", why)
    assert len(traced.for_target(cpu_target()).steps) > len(traced.steps)
    calls = [call.args for call in counted.call_args_list]
    tried = [(*(v.name for v in values), *(v.name for v in stored), fusing) for values, stored, _, fusing in calls]
    assert len(set(tried)) == len(tried)


def assembled_in(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Tensor], inputs: tuple[Tensor, ...]
) -> tuple[TracedFunction, int]:
    """A traced function, and the number of kernels assembled to cut it."""
    counted = mock.Mock(wraps=assemble)
    with monkeypatch.context() as patch:
        patch.setattr(region_kernels, "assemble", counted)
        traced = trace(function, *inputs)
    return traced, counted.call_count
