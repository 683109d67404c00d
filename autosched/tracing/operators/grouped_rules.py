"""ATen's grouped products: of tokens sorted by expert with the matrix of each, and their gradients.

    rows by segment       y[m, n] = sum over k of a[m, k] b[g(m), k, n]          g(m): the segment of m
    columns by segment    y[m, n] = sum over k of a[g(n), m, k] b[k, n]
    k by segment          y[g, m, n] = sum over the k of segment g of a[m, k] b[k, n]

Elements of no segment, behind the last end, are 0; PyTorch leaves them as memory was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from autosched.tracing.operators.product_rules import matrices, product
from autosched.tracing.operators.rules import Result, UnsupportedError, arange, converted, reshape
from autosched.tracing.operators.segments import bounds_of_ends, inside_alone, segment_of
from autosched.tracing.operators.view_translation import transposed
from autosched.tracing.values.values import Gathered, Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Integer, Literal

# Scales of the rows of a, and of the columns of b: of each matrix where there are several, and of each segment of k.
Scales = tuple[Value, Value]


def _grouped_mm(
    result: Result, a: Value, b: Value, *, offs: Value | None = None, out_dtype: torch.dtype | None = None
) -> Value:
    return grouped(result, a, b, offs)


def grouped(result: Result, a: Value, b: Value, ends: Value | None, scales: Scales | None = None) -> Value:
    """The grouped product, times the scales of its rows and columns."""
    ranks = len(a.shape), len(b.shape)
    if ends is None:
        if ranks != (3, 3):
            raise UnsupportedError("a grouped product without offs of operands that are no two batches")
        return converted(_of_each(result, matrices(result, a, b), scales), result.dtype, result.name)
    rule = {(2, 3): _rows, (3, 2): _columns, (2, 2): _summed}.get(ranks)
    if rule is None:
        raise UnsupportedError(f"a grouped product with offs of operands of {ranks[0]} and {ranks[1]} dimensions")
    return converted(rule(result, a, b, ends, scales), result.dtype, result.name)


def _rows(result: Result, a: Value, b: Value, ends: Value, scales: Scales | None) -> Value:
    """A batch of rows, each times a matrix of its own."""
    rows, k = a.shape
    segment = _segments(result, rows, ends)
    batch = (rows, 1, b.shape[2])
    sums = product(result, reshape(a, (rows, 1, k)), _of_segments(result, b, segment), batch, (0, 1, 3), (0, 3, 2))
    sums = reshape(sums, result.shape)
    if scales:
        sums = _scaled(result, sums, reshape(scales[0], (rows, 1)), _of_segments(result, scales[1], segment))
    return _in_segments(result, sums, segment, ends, 0)


def _columns(result: Result, a: Value, b: Value, ends: Value, scales: Scales | None) -> Value:
    """The same of columns, which PyTorch lays out as rows."""
    k, columns = b.shape
    segment = _segments(result, columns, ends)
    column = reshape(b, (k, columns, 1))
    sums = product(result, _of_segments(result, a, segment), column, (columns, a.shape[1], 1), (0, 1, 3), (3, 0, 2))
    of_rows = transposed(reshape(sums, result.shape[::-1]))
    if scales:
        along = transposed(_of_segments(result, scales[0], segment))
        of_rows = _scaled(result, of_rows, along, reshape(scales[1], (1, columns)))
    return _in_segments(result, of_rows, segment, ends, 1)


def _summed(result: Result, a: Value, b: Value, ends: Value, scales: Scales | None) -> Value:
    bounds = bounds_of_ends(ends)
    # Both: what one operand has in other segments, infinities too, is not to be multiplied by the other's zeros.
    of_a, of_b = (inside_alone(result, x, bounds, dim, place=0) for x, dim in ((a, 1), (b, 0)))
    return _of_each(result, product(result, of_a, of_b, result.shape, (0, 1, 3), (0, 3, 2)), scales)


def _of_each(result: Result, sums: Value, scales: Scales | None) -> Value:
    """The sums of a batch, times the scales of each of its matrices."""
    if scales is None:
        return sums
    batch, rows, columns = result.shape
    return _scaled(result, sums, reshape(scales[0], (batch, rows, 1)), reshape(scales[1], (batch, 1, columns)))


def _scaled(result: Result, sums: Value, of_rows: Value, of_columns: Value) -> Value:
    own = result.part("scaled", result.shape, "float32")
    return own.elementwise(lambda total, row, column: ex.mul(ex.mul(total, row), column), sums, of_rows, of_columns)


def _segments(result: Result, size: int, ends: Value) -> Value:
    """The segment of every position along the dimension that is cut."""
    own = result.part("segment", (size,), "int64")
    return segment_of(own, ends, arange(size, 1, 0, f"{result.name}_at"))


def _of_segments(result: Result, table: Value, segment: Value) -> Value:
    """The matrix, or the line, of every position's segment."""
    shape, others = (segment.elements, *table.shape[1:]), range(1, len(table.shape))
    own = result.part(f"{table.name}_of_segment", shape, table.dtype)
    return own.of(Gathered, table=table, index=(reshape(segment, (segment.elements, *(1 for _ in others))), *others))


def _in_segments(result: Result, sums: Value, segment: Value, ends: Value, dim: int) -> Value:
    """The sums, 0 at positions of no segment."""
    along = reshape(segment, tuple(segment.elements if d == dim else 1 for d in range(2)))
    inside = result.part("inside", result.shape, sums.dtype)
    return inside.elementwise(
        lambda g, total: ex.call("where", ex.call("lt", g, Integer(ends.elements)), total, Literal(0.0)), along, sums
    )


RULES: Mapping[str, Callable[..., Any]] = {"_grouped_mm": _grouped_mm}
