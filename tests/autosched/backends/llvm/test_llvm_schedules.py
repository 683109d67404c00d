"""Schedules of functions on a CPU: each is right, beside guard bands, or does not exist."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import autosched
from schedule_checks import faults
from search_spaces import Axis, Stage, Tensor, Workload
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, call

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def check(function: Callable[..., torch.Tensor], *inputs: torch.Tensor, samples: int = 5) -> None:
    """Every starting point and some samples of every kernel of the function are right."""
    for workload in autosched.trace(function, *inputs).workloads:
        assert not faults(workload, samples)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("columns", [1, 17, 33])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_product_writes_one_element_where_one_is_left(columns: int, dtype: torch.dtype) -> None:
    check(torch.matmul, normal(5, 40, dtype=dtype), normal(40, columns, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_row_kernel_writes_one_element_where_one_is_left(dtype: torch.dtype) -> None:
    check(lambda x: x.softmax(-1), normal(3, 33, dtype=dtype))
    check(lambda x: x.sum(0), normal(9, 49, dtype=dtype))
    check(torch.relu, normal(17, dtype=dtype))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "bool"])
def test_a_kernel_writes_one_integer_where_one_is_left(dtype: str) -> None:
    read = Access("x", (axis_index("i"),))
    stage = Stage("out", (Axis("i", 33),), call("floor", read), dtype=dtype)
    assert not faults(Workload("floor", (Tensor("x", (33,), "float32"),), (stage,)), samples=5)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_products_are_right_where_the_batch_is_innermost_in_memory(dtype: torch.dtype) -> None:
    a, b = normal(9, 20, 6, dtype=dtype), normal(11, 20, 6, dtype=dtype)
    check(lambda a, b: torch.einsum("ikc,jkc->ijc", a, b), a, b)
    q, k = normal(2, 9, 20, 3, dtype=dtype), normal(2, 11, 20, 3, dtype=dtype)
    check(lambda q, k: torch.einsum("bqdh,bkdh->bhqk", q, k), q, k)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_an_epilogue_reads_columns_that_are_apart_in_memory(dtype: torch.dtype) -> None:
    a, b, c = normal(19, 40, dtype=dtype), normal(40, 33, dtype=dtype), normal(33, 19, dtype=dtype)
    check(lambda a, b, c: a @ b + c.t(), a, b, c)


def test_epilogues_transpose_step_over_columns_and_look_up() -> None:
    a, b, table, index = normal(9, 40), normal(40, 17), normal(100, 17), torch.tensor([3, 99, 0, 1, 5, 5, 7, 8, 42])
    check(lambda a, b, c: (a @ b).t() + c, a, b, normal(17, 9))
    check(lambda a, b, c: a @ b + c[:, ::2], a, b, normal(9, 34))
    check(lambda a, b, t, i: a @ b + t[i], a, b, table, index)
    check(lambda a, b, t, i: a @ b + t[:, i], a, normal(40, 9), normal(9, 60), index % 60)


def test_a_sum_along_a_row_that_is_looked_up_once_is_right() -> None:
    x, one = normal(10, 33, 5), torch.tensor([3])
    check(lambda x, i: x[i].sum(1), x, one)
    check(lambda x, i: x[:, :, i].sum(0), x, one)
    check(lambda x, i: x[:, i].sum(0), x, one)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_what_nan_and_infinity_become_as_integers_counts_as_written(dtype: torch.dtype) -> None:
    check(lambda x: x.sqrt().to(dtype), normal(100))
    check(lambda x: (1 / x.relu()).to(dtype), normal(100))
