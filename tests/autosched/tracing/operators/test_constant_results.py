"""Functions that compute something from nothing in memory: results, factors and tables that are constant."""

from __future__ import annotations

import math
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


MASK = X > 0
FILLED: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "a fill": lambda x, n: x.masked_fill(MASK, n),
    "a number": lambda x, n: torch.where(MASK, n, x),
    "a tensor": lambda x, n: torch.where(MASK, torch.tensor(n), x),
    "one element": lambda x, n: torch.where(MASK, torch.tensor([n], dtype=x.dtype), x),
    "of another type": lambda x, n: torch.where(MASK, torch.tensor(n, dtype=torch.float32).to(x.dtype), x),
    "a view": lambda x, n: torch.where(MASK, torch.full((1,), n).to(x.dtype).expand(4, 6), x),
    "as large": lambda x, n: torch.where(MASK, torch.full_like(x, n), x),
    "changed": lambda x, n: torch.where(MASK, torch.zeros(()).fill_(n).to(x.dtype), x),
}


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(-math.inf, torch.float16), (0.1, torch.float16), (-0.0, torch.float32), (math.nan, torch.float32)],
)
def test_a_number_is_one_workload_however_it_is_written(number: float, dtype: torch.dtype) -> None:
    x = X.to(dtype)
    keys = {}
    for name, function in FILLED.items():
        traced = trace(lambda x, function=function: function(x, number), x)
        keys[name] = [w.key for w in traced.workloads]
        made = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(x)
        torch.testing.assert_close(made, FILLED["a fill"](x, number), rtol=0, atol=0, equal_nan=True)
        assert torch.equal(made.signbit(), FILLED["a fill"](x, number).signbit()) or math.isnan(number)
    assert len({*map(str, keys.values())}) == 1, keys


def test_a_tensor_that_a_function_closes_over_is_read_in_every_call() -> None:
    number = torch.tensor(2.0)
    traced = trace(lambda x: torch.where(MASK, number, x), X)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    number.fill_(3.0)
    torch.testing.assert_close(kernel(X), X.masked_fill(MASK, 3.0))


def test_a_number_that_a_function_changes_is_made_anew_in_every_call() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = torch.tensor(1.0)
        total += x.sum()
        return total, torch.tensor(5)

    traced = trace(function, X)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    for _ in range(2):
        total, five = kernel(X)
        torch.testing.assert_close(total, 1 + X.sum())
        assert five.item() == 5
        five += 1


def test_random_numbers_are_not_computed_once() -> None:
    traced = trace(lambda x: x + torch.rand(6), X, allow_fallback=True)
    assert "rand" in traced.left_to_pytorch[0]
