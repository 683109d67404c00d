"""Layers and steps that are alike are cut once: what is assembled does not grow with how many there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import trace
from autosched.tracing.fusion import region_kernels
from autosched.tracing.fusion.assembly import Assembled, assemble


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


@pytest.mark.parametrize("case", [residual, recurrence])
def test_twice_as_much_takes_no_more_assemblies(
    case: Callable[[int], tuple[Callable[..., Tensor], tuple[Tensor, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    # Few short steps are one kernel.
    for number in (12, 24):
        calls = 0

        def counted(*given: Any) -> Assembled:
            nonlocal calls
            calls += 1
            return assemble(*given)

        monkeypatch.setattr(region_kernels, "assemble", counted)
        function, inputs = case(number)
        assert len(trace(function, *inputs).launched) >= number // 2
        counts.append(calls)
    assert counts[1] <= counts[0] + 2


def test_steps_that_read_parts_of_one_tensor_are_one_workload() -> None:
    function, inputs = recurrence(8)
    assert len(trace(function, *inputs).workloads) <= 6
