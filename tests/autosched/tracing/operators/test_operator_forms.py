"""Forms of operators that were refused, or failed: positions by strides, enlarging, numbers from memory, vmap."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import InputError, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from traced_cases import Z
from traced_reference import computed
from untuned import untuned_kernels

R = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
Function = Callable[..., Any]


def along(function: Function, **keywords: Any) -> Function:
    return lambda x, y: torch.vmap(function, in_dims=(1, None), **keywords)(x, y)


def enlarged(mode: str, **keywords: Any) -> Function:
    return lambda x: F.interpolate(x, mode=mode, **keywords)


def filled(x: Tensor, y: Tensor) -> Tensor:
    return torch.full((3,), y.item()) + torch.full_like(x, y.item())


# name: the function, and its arguments.
CASES: dict[str, tuple[Function, *tuple[Tensor, ...]]] = {
    "strides of an argument": (lambda x: torch.as_strided(x, (3, 2), (1, 4), 1) + 1, R(4, 5)),
    "strides that overlap": (lambda x: torch.as_strided(x * 2, (3, 2, 4), (4, 2, 1), 1).sum(0), R(4, 5)),
    "strides of nothing": (lambda x: torch.as_strided(x, (3, 2), (0, 4), 1) + 1, R(4, 5)),
    "strides and no dimension": (lambda x: torch.as_strided(x.softmax(0), (), (), 6) * 2, R(4, 5)),
    "strides of equal parts": (lambda x, w: F.group_norm(x + F.group_norm(x, 1, w, w), 1, w, w), R(2, 4, 5), R(4)),
    "a view by strides": (lambda x: torch.as_strided(x, (3, 2), (7, 1), 1), R(4, 5)),
    "between tensors of other strides": (torch.lerp, R(5, 4).t(), R(4, 5), R(4, 10)[:, ::2]),
    "bilinear": (enlarged("bilinear", size=(7, 9)), R(2, 3, 4, 5)),
    "bilinear by corners": (enlarged("bilinear", size=(7, 9), align_corners=True), R(2, 3, 4, 5)),
    "bilinear by factors": (enlarged("bilinear", scale_factor=(1.7, 0.6)), R(2, 3, 4, 5)),
    "nearest": (enlarged("nearest", size=(7, 9)), R(2, 3, 4, 5)),
    "nearest by a factor": (enlarged("nearest", scale_factor=0.6), R(2, 3, 14, 15)),
    "nearest in a line": (enlarged("nearest", scale_factor=1.3), R(2, 3, 140)),
    "filled with a number": (filled, R(3), R(())),
    "sorted positions": (lambda x: x + torch.sort(torch.arange(3.0), descending=True).values, R(3)),
    "one part of nothing": (lambda x: x.unbind(0), R(1, 0)),
    "a copy of nothing": (lambda x: x.clone(), R(0, 5)),
    "vmap": (along(torch.dot), R(4, 5), R(4)),
    "vmap of a matrix": (along(lambda a, b: b @ a), R(4, 5), R(3, 4)),
    "vmap of look-ups": (along(lambda a, b: F.embedding(a, b)), Z(6, 4, 5), R(6, 3)),
    "vmap to another dimension": (along(lambda a, b: a * b, out_dims=1), R(4, 5), R(4)),
    "vmap of vmap": (along(along(lambda a, b: b @ a)), R(4, 5, 3), R(3, 4)),
    "instances of float16": (F.instance_norm, R(4, 5, 6).half()),
    "given statistics of float16": (
        lambda x, m, v: F.instance_norm(x, m, v, use_input_stats=False),
        *(R(4, 5, 6).half(), R(5).half(), R(5).abs().half()),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_eager_gives_and_nothing_is_left_to_pytorch(name: str) -> None:
    function, *inputs = CASES[name]
    traced = trace(function, *inputs)
    assert not [left for left in traced.left_to_pytorch if "it reads nothing from memory" not in left]
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    # A step of float16 at 1 is 2^-10; eager rounds a norm once or twice.
    tolerance = 2.0**-9 if inputs[0].dtype is torch.float16 else 1e-5
    torch.testing.assert_close(kernel(*inputs), function(*inputs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic"])
def test_positions_are_no_numbers_of_the_narrow_type_that_is_enlarged(mode: str, dtype: torch.dtype) -> None:
    """bfloat16 holds no odd integers from 257 on."""
    x = R(*((1, 2, 300) if mode == "linear" else (1, 2, 2, 300))).to(dtype)
    function = enlarged(mode, scale_factor=3.0)
    (made,) = computed(trace(function, x), (x,))
    torch.testing.assert_close(made.to(dtype), function(x), rtol=2.0**-6, atol=2.0**-6)


LARGE: dict[str, tuple[Function, tuple[tuple[int, ...], ...], str]] = {
    "an argument": (lambda x: x + 1, ((2**31,),), r"x\[2147483648\] float32 .* at most 2147483647 along dimension 0"),
    "a result": (
        lambda x: x[:, None].expand(-1, 2**31) + 1,
        ((2,),),
        r"add\[2, 2147483648\] float32 .* at most 2147483647 along dimension 1",
    ),
    "a sum": (lambda x: x.sum(), ((1, 2**31, 2),), r"x\[1, 2147483648, 2\] .* at most 2147483647 along dimension 1"),
    "a factor": (lambda x, w: x @ w, ((2**31, 8), (8, 8)), r"x\[2147483648, 8\] .* along dimension 0"),
}


@pytest.mark.parametrize("name", LARGE)
def test_tensors_that_are_too_large_are_named_with_the_parts_that_are_not(name: str) -> None:
    function, shapes, why = LARGE[name]
    inputs = [torch.empty(shape, device="meta") for shape in shapes]
    line = rf"\(test_operator_forms.py:\d+: .*\): {why}; .*allow_fallback=True"
    with pytest.raises(InputError, match=line):
        trace(function, *inputs)
    assert trace(function, *inputs, allow_fallback=True).left_to_pytorch


def added(x: Tensor, index: Tensor, y: Tensor) -> Tensor:
    return x.index_add(0, index, y)


def test_parts_of_an_operator_are_named_with_it() -> None:
    """PyTorch makes another one of sums at indices."""
    inputs = torch.zeros(8, 2), torch.zeros(2000, dtype=torch.int64), torch.ones(2000, 2)
    line = r"aten.index_add.default as aten.index_put.default \(test_operator_forms.py:\d+: .*\) is not supported"
    with pytest.raises(InputError, match=line):
        trace(added, *inputs)
    (left,) = trace(added, *inputs, allow_fallback=True).left_to_pytorch
    assert "aten.index_add.default (test_operator_forms.py" in left


def test_a_number_that_is_returned_is_named_with_its_line() -> None:
    with pytest.raises(
        InputError, match=r"_local_scalar_dense.default \(test_operator_forms.py:\d+: .*which is returned"
    ):
        trace(lambda x: x.item(), R(()))


def factored(x: Tensor) -> Tensor:
    doubled = x * 2
    return torch.linalg.cholesky(doubled) + 1


def twice_derived(x: Tensor) -> Tensor:
    derived = torch.digamma(x)
    return derived.cos()


@pytest.mark.parametrize(
    ("function", "inputs", "line"),
    [
        (factored, R(3, 3), "return torch.linalg.cholesky(doubled) + 1"),
        # Of the gradient alone.
        (twice_derived, R(2, 3), "derived = torch.digamma(x)"),
    ],
)
def test_what_a_gradient_needs_is_named_with_the_line_of_the_function(
    function: Function, inputs: Tensor, line: str
) -> None:
    with pytest.raises(InputError, match=rf"\(test_operator_forms.py:\d+: {re.escape(line)}\) is not supported"):
        trace(function, inputs.requires_grad_(), backward=True)
