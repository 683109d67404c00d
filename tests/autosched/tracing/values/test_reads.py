"""Reads of tensors at indices that are data: the elements, and the tensors that say which."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from autosched import trace
from traced_reference import computed

ROWS = torch.tensor([3, 0, 5, 3])
TABLE = torch.linspace(-2, 3, 6 * 48).view(6, 48)

# The function, and the shapes in which its kernel reads the table.
READS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], list[tuple[int, ...]]]] = {
    "whole rows": (lambda x, i: x[i], [(6, 48)]),
    "the beginning of rows": (lambda x, i: x[i][:, :16] * 2, [(6, 16)]),
    "an aligned part": (lambda x, i: x[i, 16:40], [(6, 24)]),
    "a part that begins anywhere": (lambda x, i: x[i, 3:19], [(6, 48)]),
    "two halves": (lambda x, i: x[i].chunk(2, -1)[0] * x[i].chunk(2, -1)[1], [(6, 24), (6, 48)]),
    "every other column": (lambda x, i: x[i][:, ::2], [(6, 48)]),
    "reversed": (lambda x, i: x[i].flip(1)[:, :16], [(6, 48)]),
    "columns that are looked up": (lambda x, i: x.t()[i], [(6, 48)]),
    "columns of a part": (lambda x, i: x[2:4, i], [(2, 48)]),
}


@pytest.mark.parametrize("name", READS)
def test_of_a_dimension_that_a_kernel_reads_a_part_of_that_part_is_its_input(name: str) -> None:
    function, shapes = READS[name]
    traced = trace(function, TABLE, ROWS)
    (got,) = computed(traced, (TABLE, ROWS))
    assert torch.equal(got, function(TABLE.double(), ROWS))
    read = [t.shape for w in traced.workloads for t in w.inputs if t.dtype == "float32"]
    assert sorted(read) == sorted(shapes)


def test_products_read_parts_that_begin_anywhere() -> None:
    """As of plain tensors, so that matrices by segment are tables of their own."""

    def function(x: Tensor, table: Tensor, i: Tensor) -> Tensor:
        return torch.bmm(x, table[i, :, 3:19])

    x, table = torch.randn(4, 8, 6).bfloat16(), torch.randn(6, 6, 40).bfloat16()
    found = trace(function, x, table, ROWS)
    (got,) = computed(found, (x, table, ROWS))
    torch.testing.assert_close(got, function(x.double(), table.double(), ROWS))
    shapes = [t.shape for cut in found.cuts for w in cut.launched for t in w.inputs]
    assert (6, 6, 16) in shapes


def blocks(a: Tensor, b: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The product of two matrices at some of its blocks."""
    return a.view(6, 16, 24)[rows] @ b.view(6, 16, 24)[columns].mT


def test_a_product_at_blocks_that_are_data_reads_both_operands_where_they_are() -> None:
    a, b = (torch.randn(96, 24).bfloat16() for _ in range(2))
    inputs = (a, b, ROWS, ROWS.flip(0))
    cuts = trace(blocks, *inputs).cuts
    assert 1 in [len(cut.launched) for cut in cuts]
    for cut in cuts:
        (got,) = computed(cut, inputs)
        torch.testing.assert_close(got, blocks(a.double(), b.double(), *inputs[2:]))
