"""Axes cut into segments by data: which segment a position is in, and which positions a segment has.

    ends[g - 1] <= t < ends[g], from 0 on            the segments of `ends`, as of a grouped product
    offsets[g] <= t < offsets[g + 1]                 those of offsets, as of a jagged tensor

Positions that no segment has are data as well: they are read by nobody, and what is computed at them is 0.
"""

from __future__ import annotations

from collections.abc import Callable

from autosched.tracing.operators.joining_rules import padded
from autosched.tracing.operators.rules import Result, UnsupportedError, arange, reshape
from autosched.tracing.operators.view_translation import piece
from autosched.tracing.values.values import Value
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal


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


def is_inside(at: Expression, begin: Expression, end: Expression) -> Expression:
    """True where a position is in the segment of these bounds."""
    return ex.mul(ex.call("le", begin, at), ex.call("lt", at, end))


def inside_alone(
    result: Result, x: Value, bounds: tuple[Value, Value], dim: int, batch: int = 0, other: float = 0.0
) -> Value:
    """x in every segment: dimensions [*batch, segment, *those of x behind], `other` at positions of other segments.

    `dim`: the dimension of x that is cut. `batch`: first dimensions that the bounds have, too.
    """
    shape = (*x.shape[:batch], bounds[0].shape[-1], *x.shape[batch:])
    rank = len(shape)
    at = arange(x.shape[dim], rank, dim + 1, f"{result.name}_at")
    of_segment = (*bounds[0].shape, *(1,) * (rank - batch - 1))
    begin, end = (reshape(b, of_segment) for b in bounds)
    whole = is_integer(x.dtype)
    nothing: Expression = Integer(int(other)) if whole else Literal(other)
    return Result(f"{result.name}_{x.name}_inside", shape, x.dtype, result.line).elementwise(
        lambda p, b, e, element: ex.call("where", is_inside(p, b, e), element, nothing),
        *(at, begin, end),
        reshape(x, (*x.shape[:batch], 1, *x.shape[batch:])),
    )


def segment_of(result: Result, bounds: Value, at: Value, right: bool = True) -> Value:
    """How many bounds, which are sorted, are at most the element of `at` (less than it, unless `right`)."""
    (count,) = bounds.shape
    rank = len(at.shape)
    beyond: Callable[[Expression, Expression], Expression] = (
        (lambda b, p: ex.call("lt", p, b)) if right else (lambda b, p: ex.call("le", p, b))
    )
    passed = result.elementwise(
        lambda b, p: ex.call("where", beyond(b, p), Integer(0), Integer(1)),
        reshape(bounds, (*(1,) * rank, count)),
        reshape(at, (*at.shape, 1)),
        name=f"{result.name}_passed",
        shape=(*at.shape, count),
        dtype="int64",
    )
    return result.reduced("sum", passed, (rank,), name=f"{result.name}_count", dtype="int64")
