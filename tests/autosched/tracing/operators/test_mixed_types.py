"""Pointwise operators of narrow elements with a number: bit for bit what eager makes of every element there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from autosched import trace
from autosched.checking import reference
from traced_reference import groups

# Neither type holds any of them, and those near 0.1 and 257 are compared with them.
NUMBERS = (0.1, -2.7, 257.3)
OPERATORS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "add": lambda x, n: x + n,
    "sub": lambda x, n: x - n,
    "rsub": lambda x, n: n - x,
    "scaled_add": lambda x, n: torch.add(x, x.neg(), alpha=n),
    "mul": lambda x, n: x * n,
    "div": lambda x, n: x / n,
    "trunc": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    "clamp": lambda x, n: x.clamp(n, 300.1),
    "clamp_max": lambda x, n: x.clamp(max=n),
    "where": lambda x, n: torch.where(x > 0, x, n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "eq": lambda x, n: x == n,
    "ne": lambda x, n: x != n,
    "lt": lambda x, n: x < n,
    "le": lambda x, n: x <= n,
    "gt": lambda x, n: x > n,
    "ge": lambda x, n: x >= n,
}
# Tensors of other types beside it: what one element is, or several are.
WITH_TENSORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "reversed_mul": lambda x, y: y * x,
    "div": lambda x, y: x / y,
    "reversed_div": lambda x, y: y / x,
    "eq": lambda x, y: x == y,
    "lt": lambda x, y: x < y,
    "maximum": lambda x, y: torch.maximum(x, y),
    "where": lambda x, y: torch.where(x > 1, x, y),
}


def every_element(dtype: torch.dtype) -> Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def differing(functions: Mapping[str, Callable[..., Tensor]], *inputs: Tensor) -> list[str]:
    """The results that the workloads do not give as eager does when every operator is one of float32, as in kernels."""
    return [name for group in groups(functions) for name in _differing(group, inputs)]


def _differing(functions: Mapping[str, Callable[..., Tensor]], inputs: tuple[Tensor, ...]) -> list[str]:
    traced = trace(lambda *given: tuple(f(*given) for f in functions.values()), *inputs)
    made = {value: (n, step.assembled) for step in traced.steps for n, value in enumerate(step.values)}
    found = []
    for value, (name, function) in zip(traced.results, functions.items(), strict=True):
        number, kernel = made[value]
        assert kernel is not None
        given = [inputs[v.value.position] for v in kernel.inputs]  # type: ignore[attr-defined]  # all are arguments
        views = [t.as_strided(v.shape, v.strides, v.offset) for t, v in zip(given, kernel.inputs, strict=True)]
        want = function(*inputs)
        got = reference.evaluate(kernel.workload, views, torch.float32)[number].reshape(want.shape).to(want.dtype)
        if not torch.equal(got.nan_to_num(1.5, 2.5, 3.5), want.nan_to_num(1.5, 2.5, 3.5)):
            found.append(name)
    return found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_number_beside_a_narrow_tensor_is_rounded_where_eager_rounds_it(dtype: torch.dtype) -> None:
    functions = {f"{name} {n}": partial(made, n=n) for name, made in OPERATORS.items() for n in NUMBERS}
    assert not differing(functions, every_element(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_tensor_beside_a_narrow_one_is_rounded_where_eager_rounds_it(dtype: torch.dtype) -> None:
    for other in (torch.tensor(0.1), torch.tensor([4097]), torch.tensor([[4097], [3]])):
        assert not differing(WITH_TENSORS, every_element(dtype), other)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_whole_quotient_of_two_narrow_tensors_is_rounded_after_every_step_as_in_eager(
    dtype: torch.dtype, mode: str
) -> None:
    x = every_element(dtype)
    y = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))]
    # The reference's torch.fmod is NaN, on a CPU, where the quotient is beyond float32.
    finite = (x.float() / y.float()).isfinite()
    assert not differing({"of two": partial(torch.div, rounding_mode=mode)}, x[finite], y[finite])
