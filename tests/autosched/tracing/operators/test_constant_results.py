"""Functions that compute something from nothing in memory: results, factors and tables that are constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from autosched import trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from untuned import untuned_kernels

X = torch.linspace(-2, 2, 24).view(4, 6)


@pytest.mark.parametrize(
    "function",
    [
        torch.zeros_like,
        lambda x: (torch.ones_like(x, dtype=torch.bfloat16), x * 2),
        lambda x: torch.full_like(x, 7, dtype=torch.int64),
        lambda x: x.new_full((3,), True, dtype=torch.bool),
        lambda x: (x.new_zeros(2, 3), x.new_ones(2)),
        lambda x: torch.eye(4, 6),
        lambda x: torch.arange(5).flip(0),
        lambda x: torch.tensor([1.0, 2.0]),
        lambda x: torch.ones(3, 4).tril().t(),
        lambda x: x + torch.eye(4, 6),
        lambda x: x @ torch.eye(6, 3),
        lambda x: x + torch.linspace(0, 1, 6),
        lambda x: x * torch.arange(6).sum(),
        lambda x: torch.arange(10.0)[x.argmax(-1)] + torch.hann_window(4),
        lambda x: x + torch.ones(4, 6).cumsum(1).sqrt(),
    ],
)
def test_what_is_computed_from_no_argument_is_right(function: Callable[..., Any]) -> None:
    traced = trace(function, X)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    got, want = kernel(X), function(X)
    for one, other in zip(*((v,) if isinstance(v, torch.Tensor) else v for v in (got, want)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_a_constant_result_is_new_memory_in_every_call() -> None:
    traced = trace(lambda x: (torch.zeros_like(x), torch.tensor([1.0, 2.0])), X)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    for made in kernel(X):
        made += 1
    zeros, written = kernel(X)
    assert not zeros.any()
    assert written.tolist() == [1.0, 2.0]


def test_random_numbers_are_not_computed_once() -> None:
    traced = trace(lambda x: x + torch.rand(6), X, allow_fallback=True)
    assert "rand" in traced.left_to_pytorch[0]
