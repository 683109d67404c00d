"""Scans of traced functions: what PyTorch's operators become, and in how many kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan

from autosched import InputError, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from traced_reference import computed
from untuned import untuned_kernels

R = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
NOT_FINITE = torch.tensor([[1.0, 2.0, math.inf, 3.0, -math.inf, 1.0], [0.0, math.nan, 1.0, 2.0, math.nan, 5.0]])


def Z(*shape: int) -> Tensor:
    """Whole numbers, as R are real ones."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(1))


def recurrence(a: Tensor, x: Tensor) -> Tensor:
    """h[t] = sigmoid(a[t]) h[t - 1] + x[t]"""

    def combine(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return left[0] * right[0], left[1] * right[0] + right[1]

    return associative_scan(combine, (torch.sigmoid(a), x), -1, combine_mode="generic")[1]


def by_name(x: Tensor, w: Tensor) -> Tensor:
    """Logarithms of sums of exponentials and products, backwards along the first dimension."""

    def combine(left: dict[str, Tensor], right: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"a": torch.logaddexp(left["a"], right["a"]), "b": left["b"] * right["b"]}

    made = associative_scan(combine, {"a": x, "b": torch.sigmoid(w)}, 0, reverse=True, combine_mode="generic")
    return made["a"] + made["b"]


def complex_products(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    def combine(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return left[0] * right[0] - left[1] * right[1], left[0] * right[1] + left[1] * right[0]

    made = associative_scan(combine, (a, b), 1, combine_mode="generic")
    return made[0], made[1]


def selective(dt: Tensor, a: Tensor, b: Tensor, c: Tensor, x: Tensor) -> Tensor:
    """A selective state-space model: states of every channel, weighted and added up at every time."""
    factor = torch.exp(dt[:, :, None] * a[None, :, :, None])

    def combine(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return left[0] * right[0], left[1] * right[0] + right[1]

    given = dt[:, :, None] * b[:, None] * x[:, :, None]
    states = associative_scan(combine, (factor, given), 3, combine_mode="generic")[1]
    return (states * c[:, None]).sum(2)


# name: how many kernels, the function, and its arguments. Each must come out as the function itself does in float64.
CASES: dict[str, tuple[int, Callable[..., Any], *tuple[Tensor, ...]]] = {
    "rows": (1, lambda x: x.cumsum(-1), R(6, 33)),
    "columns": (1, lambda x: x.cumsum(0), R(33, 6)),
    "middle": (1, lambda x: x.cumsum(1), R(3, 33, 6)),
    "vector": (1, lambda x: x.cumsum(0), R(300)),
    "transposed": (1, lambda x: x.t().cumsum(0), R(6, 33)),
    "product": (1, lambda x: (1 + 0.1 * x).cumprod(1), R(6, 33)),
    "cummax": (1, lambda x: x.cummax(1), R(6, 33)),
    "cummin0": (1, lambda x: x.cummin(0), R(33, 6)),
    "places": (1, lambda x: x.round().cummax(1)[1], R(6, 33)),
    "integers": (1, lambda x: x.cummin(1), Z(4, 20)),
    "logcumsumexp": (1, lambda x: x.logcumsumexp(1), R(6, 33)),
    "mask": (1, lambda x: (x > 0).cumsum(1), R(6, 33)),
    "places of a mask": (1, lambda x: (x > 0).cumsum(1) - 1, R(6, 33)),
    "int32": (1, lambda x: x.int().cumsum(1), Z(4, 20)),
    "int product": (1, lambda x: x.cumprod(1), Z(4, 7)),
    "reversed": (1, lambda x: x.flip(1).cumsum(1).flip(1), R(6, 33)),
    "reversed before": (1, lambda x: x.flip(1).cumsum(1), R(6, 33)),
    "reversed by the total": (1, lambda x: x + x.sum(1, keepdim=True) - x.cumsum(1), R(6, 33)),
    "exclusive": (1, lambda x: F.pad(x.cumsum(1), (1, -1)), R(6, 33)),
    "exclusive by its element": (1, lambda x: x.cumsum(1) - x, R(6, 33)),
    "exclusive first": (1, lambda x: F.pad(x, (1, -1)).cumsum(1), R(6, 33)),
    "between": (1, lambda x, w: (x.softmax(-1).cumsum(-1) * w).half(), R(6, 33), R(33)),
    "folded": (1, lambda x: x.cumsum(1).amax(1), R(6, 33)),
    "and its sum": (1, lambda x: (x.cumsum(1), x.sum(1)), R(6, 33)),
    "twice": (1, lambda x: x.cumsum(1).cumsum(1), R(6, 33)),
    "both ways": (2, lambda x: x.cumsum(1) + x.flip(1).cumsum(1).flip(1), R(6, 32)),
    "two axes": (2, lambda x: x.cumsum(1).cumsum(0), R(6, 33)),
    "differences": (2, lambda x: x.cumsum(1).diff(dim=1), R(6, 33)),
    "the last": (2, lambda x: x.cumsum(1)[:, -1] * 2, R(6, 33)),
    "one element": (1, lambda x: x.cumsum(1) + 1, R(6, 1)),
    "a number": (1, lambda x: x.cumsum(0) + 1, R(())),
    "places of one element": (2, lambda x: (x.cummax(1)[0] * 2, x.cummax(1)[1]), R(6, 1)),
    "trapezoids": (1, lambda x: torch.cumulative_trapezoid(x, dim=1), R(6, 33)),
    "sums that are not finite": (1, lambda x: x.cumsum(1), NOT_FINITE),
    "maxima that are not finite": (1, lambda x: x.cummax(1), NOT_FINITE),
    "minima that are not finite": (1, lambda x: x.cummin(1), NOT_FINITE),
    "logarithms that are not finite": (1, lambda x: x.logcumsumexp(1), NOT_FINITE),
    "recurrence": (1, recurrence, R(6, 33), R(6, 33)),
    "recurrence of states": (1, lambda a, x: recurrence(a, x).softmax(-1), R(2, 3, 33), R(2, 3, 33)),
    "selective": (1, selective, R(2, 3, 33).abs(), -R(3, 4).abs(), R(2, 4, 33), R(2, 4, 33), R(2, 3, 33)),
    "by name": (1, by_name, R(33, 6), R(33, 6)),
    "moving average": (1, lambda x: recurrence(torch.full_like(x, 2.0), x), R(6, 33)),
    "of a constant": (1, lambda x: recurrence(x, torch.arange(33.0).expand(6, 33)), R(6, 33)),
    "complex products": (1, complex_products, R(4, 9), R(4, 9)),
    "one value": (1, lambda x: associative_scan(torch.maximum, x, 1, combine_mode="generic"), R(4, 9)),
    "of integers": (1, lambda x: associative_scan(lambda a, b: a * b, x, 1, combine_mode="generic"), Z(4, 9)),
    "in half": (1, lambda x: x.cumsum(1, dtype=torch.float16), R(6, 33)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_workloads_of_scans_compute_what_pytorch_does(name: str) -> None:
    kernels, function, *inputs = CASES[name]
    traced = trace(function, *inputs)
    wanted = function(*(x.double() if x.is_floating_point() else x for x in inputs))
    results = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, want in zip(computed(traced, tuple(inputs)), results, strict=True):
        tolerance = 2.0**-9 if want.dtype == torch.float16 else 1e-6
        torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
    assert len(traced.steps) == kernels, str(traced)


def test_what_is_no_pointwise_combination_is_refused() -> None:
    def function(x: Tensor) -> Tensor:
        made = associative_scan(lambda a, b: a + b.flip(-1), x, 0, combine_mode="generic")
        assert isinstance(made, Tensor)
        return made

    with pytest.raises(InputError, match="combines elements at different places"):
        trace(function, R(6, 5))


def test_a_scan_that_no_kernel_computes_is_left_to_pytorch_on_request() -> None:
    def function(x: Tensor) -> Tensor:
        made = associative_scan(lambda a, b: (a + b).flip(-1), x, 0, combine_mode="generic")
        assert isinstance(made, Tensor)
        return made * 2

    x = R(6, 5)
    traced = trace(function, x, allow_fallback=True)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    torch.testing.assert_close(kernel(x), function(x))


GRADIENTS: dict[str, tuple[Callable[..., Any], *tuple[Tensor, ...]]] = {
    "sums": (lambda x: x.cumsum(1).exp(), R(3, 9)),
    "products": (lambda x: (2 + x.sigmoid()).cumprod(1), R(3, 9)),
    "recurrence of one argument": (lambda x: recurrence(x, x.sin()), R(3, 9)),
    "by name": (by_name, R(9, 3), R(9, 3)),
    "complex products": (lambda a, b: complex_products(a, b)[0], R(4, 9), R(4, 9)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_scans_are_those_of_pytorch(name: str) -> None:
    function, *inputs = GRADIENTS[name]
    mine = [x.clone().requires_grad_() for x in inputs]
    traced = trace(function, *mine, backward=True)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    kernel(*mine).square().sum().backward()
    exact = [x.double().requires_grad_() for x in inputs]
    function(*exact).square().sum().backward()
    for got, wanted in zip(mine, exact, strict=True):
        assert got.grad is not None
        assert wanted.grad is not None
        torch.testing.assert_close(got.grad.double(), wanted.grad, rtol=1e-4, atol=1e-4)


def test_a_recurrence_and_its_gradient_are_a_kernel_each() -> None:
    traced = trace(recurrence, R(3, 9).requires_grad_(), R(3, 9).requires_grad_(), backward=True)
    assert (len(traced.forward.steps), len(traced.backward.steps)) == (1, 1), str(traced)


DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.bfloat16, torch.float16)
BY_ELEMENT: dict[str, Callable[[Tensor], Any]] = {
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(0),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", BY_ELEMENT)
def test_kernels_scan_every_element_type_as_pytorch_does(name: str, dtype: torch.dtype) -> None:
    function = BY_ELEMENT[name]
    x = (Z(3, 7) if name != "cumprod" else Z(3, 7) + 2).to(dtype)
    for got, wanted in zip(in_order(kernel_of(function, x)(x)), in_order(function(x)), strict=True):
        assert got.dtype == wanted.dtype
        # Of small integers all are exact.
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("name", [*BY_ELEMENT, "logcumsumexp"])
def test_kernels_scan_what_is_not_finite_as_pytorch_does(name: str) -> None:
    function = BY_ELEMENT.get(name, lambda x: x.logcumsumexp(1))
    for got, wanted in zip(
        in_order(kernel_of(function, NOT_FINITE)(NOT_FINITE)), in_order(function(NOT_FINITE)), strict=True
    ):
        torch.testing.assert_close(got, wanted, equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 3), (3, 1), (1,), ()], ids=str)
def test_scans_of_few_elements_are_those_of_pytorch(shape: tuple[int, ...]) -> None:
    x = R(shape)

    def function(x: Tensor) -> Tensor:
        return x.cumsum(-1) * 2

    traced = trace(function, x, allow_fallback=True)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    torch.testing.assert_close(kernel(x), function(x))


@pytest.mark.parametrize("dim", [0, 1])
def test_what_is_scanned_together_may_lie_anyhow_in_memory(dim: int) -> None:
    def function(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        def combine(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return left[0] * right[0], left[1] * right[0] + right[1]

        a_and_h: tuple[Tensor, Tensor] = associative_scan(combine, (a, x), dim, combine_mode="generic")
        return a_and_h

    for a, x in ((R(7, 6).t(), R(6, 14)[:, ::2]), (R(7).expand(6, 7), R(8, 9)[1:7, 1:8])):
        for got, wanted in zip(kernel_of(function, a, x)(a, x), function(a.double(), x.double()), strict=True):
            torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)


def kernel_of(function: Callable[..., Any], *inputs: Tensor) -> Any:
    traced = trace(function, *inputs)
    return loaded(traced, untuned_kernels(traced.workloads, cpu_target()))


def in_order(made: Any) -> tuple[Tensor, ...]:
    return made if isinstance(made, tuple) else (made,)
