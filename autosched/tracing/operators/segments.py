"""Axes cut into segments by data: which segment a position is in, and which positions a segment has.

    ends[g - 1] <= t < ends[g], from 0 on            the segments of `ends`, as of a grouped product
    offsets[g] <= t < offsets[g + 1]                 those of offsets, as of a jagged tensor

Positions that no segment has are data as well: they are read by nobody, and what is computed at them is 0.
"""

from __future__ import annotations

import math

import torch

from autosched.tracing.capture.graph_nodes import SORTS
from autosched.tracing.operators.joining_rules import padded
from autosched.tracing.operators.rules import Result, UnsupportedError, arange, as_constant, reshape
from autosched.tracing.operators.view_translation import piece
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.values import Arange, Gathered, Segments, Value, View
from autosched.tracing.values.views import Expansion, Reshape
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Integer
from search_spaces.workloads.segments import is_inside

# This many comparisons take a few times as long as reading an element of the result.
MOST_COMPARED = 1024


def bounds_of_ends(ends: Value) -> tuple[Value, Value]:
    """The first positions of the segments, and those after their last ones."""
    _check_bounds(ends)
    (count,) = ends.shape
    before = Result(f"{ends.name}_begins", (count,), ends.dtype, ends.line)
    return padded(before, ends, (1,), 0), ends


def bounds_of_offsets(offsets: Value) -> tuple[Value, Value]:
    """The same of offsets, which are the last dimension."""
    _check_bounds(offsets)
    last = len(offsets.shape) - 1
    return piece(offsets, last, 0, offsets.shape[last] - 1), piece(offsets, last, 1, offsets.shape[last] - 1)


def _check_bounds(bounds: Value) -> None:
    if not is_integer(bounds.dtype):
        raise UnsupportedError(f"bounds of segments as {bounds.dtype}; expected integers")


def inside_alone(
    result: Result,
    x: Value,
    bounds: tuple[Value, Value],
    dim: int,
    place: int,
    other: float = 0.0,
    own: Value | None = None,
) -> Value:
    """x in every segment, with a dimension of these at `place`: `other` at positions of other segments.

    `dim`: the dimension of x that is cut. Bounds have the dimensions of x before the place, or none of them. `own`: x
    with that dimension, where its elements differ between segments.
    """
    shape = (*x.shape[:place], bounds[0].shape[-1], *x.shape[place:])
    rank = len(shape)
    at = arange(x.shape[dim], rank, dim + 1, f"{result.name}_at")
    of_segment = (*(1,) * (place + 1 - len(bounds[0].shape)), *bounds[0].shape, *(1,) * (rank - place - 1))
    begin, end = (reshape(b, of_segment) for b in bounds)
    nothing = as_constant(other, x.dtype)
    return Result(f"{result.name}_{x.name}_inside", shape, x.dtype, result.line).elementwise(
        lambda p, b, e, element: ex.call("where", is_inside(p, b, e), element, nothing),
        *(at, begin, end),
        own or reshape(x, (*x.shape[:place], 1, *x.shape[place:])),
    )


def segment_of(result: Result, bounds: Value, at: Value, right: bool = True) -> Value:
    """The number of bounds, which are sorted, that are at most the element of `at` (less than it, unless `right`)."""
    if not is_integer(bounds.dtype):
        return _counted(result, bounds, at, right)
    if right:
        return result.of(Segments, ends=bounds, position=at, dtype="int64")
    # Integers less than one are at most the one before it.
    before = result.part("before", at.shape, "int64").elementwise(lambda p: ex.sub(p, Integer(1)), at)
    found: Value = result.of(Segments, ends=bounds, position=before, dtype="int64")
    if at.dtype != "int64" or isinstance(unshaped(at), Arange):
        return found
    # None is before the least one.
    second = Integer(torch.iinfo(torch.int64).min + 1)
    return result.part("known", at.shape, "int64").elementwise(
        lambda p, n: ex.call("where", ex.call("lt", p, second), Integer(0), n), at, found
    )


def ends_of(index: Value, dim: int) -> Value | None:
    """The ends of which the index is the segment of every position along this dimension; None for other indices."""
    rank, positions = len(index.shape), index.shape[dim]
    if isinstance(index, View) and isinstance(index.kind, Expansion):
        index = index.argument
    own = (*(1,) * (rank - len(index.shape)), *index.shape)
    # One position may stand for all of them.
    if own[dim] != positions or math.prod(own) != positions:
        return None
    segments = unshaped(index)
    if not isinstance(segments, Segments):
        return None
    return segments.ends if is_every_position(segments.position) else None


def is_every_position(value: Value) -> bool:
    """True for 0, 1, 2, …"""
    line = unshaped(value)
    return isinstance(line, Arange) and (line.start, line.step) == (0, 1)


def is_segment(index: Value) -> bool:
    """True for numbers of segments, which are never negative."""
    return isinstance(unshaped(index), Segments)


def sorted_in_order(index: Value) -> Value | None:
    """The tensor whose elements these numbers have in the order of PyTorch's sort, none of them negative; or None."""
    order = unshaped(index)
    if not isinstance(order, Fallback) or order.output != 1 or order.operation.target not in SORTS:
        return None
    (given,) = order.operands
    return unshaped(given)


def is_sorted(value: Value) -> bool:
    """True for elements of a tensor that are looked up in its order."""
    if not isinstance(value, Gathered) or len(value.index) != 1:
        return False
    (index,) = value.index
    return isinstance(index, Value) and sorted_in_order(index) is unshaped(value.table)


def unshaped(value: Value) -> Value:
    """The value of which this one has the elements in the same order, in another shape."""
    while isinstance(value, View) and isinstance(value.kind, Reshape):
        value = value.argument
    return value


def _counted(result: Result, bounds: Value, at: Value, right: bool) -> Value:
    """The same of bounds that are no integers: each is compared with each. NaN is behind all of them.

    A bound that is NaN counts as passed; PyTorch's search passes it or not by where it lies.
    """
    (count,) = bounds.shape
    if count > MOST_COMPARED:
        raise UnsupportedError(f"places among {count} bounds of {bounds.dtype}; at most {MOST_COMPARED} are compared")
    rank = len(at.shape)
    operator = "lt" if right else "le"
    passed = result.elementwise(
        lambda b, p: ex.call("where", ex.call(operator, p, b), Integer(0), Integer(1)),
        reshape(bounds, (*(1,) * rank, count)),
        reshape(at, (*at.shape, 1)),
        name=f"{result.name}_passed",
        shape=(*at.shape, count),
        dtype="int64",
    )
    return result.reduced("sum", passed, (rank,), name=f"{result.name}_count", dtype="int64")
