"""Conditions on segments of positions, as ranges of the positions that a loop goes over.

Before:  segment(ends, t) == segment(ends, u)           a bisection for every u
After:   begin <= u < end                               with the ends of the segment of t: ends[s - 1] or 0, and ends[s]
                                                        or the number of positions
Before:  segment(ends, u) < s
After:   u < ends[s - 1]

Loops then have the iterations of the range, most of them without a mask. Ends that are not sorted have no segments, and
PyTorch defines none: there the two may differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from search_spaces.structure.reads.ranges import ends_of, segment_of
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Integer,
    Literal,
    Position,
    Segment,
    call,
)
from search_spaces.workloads.expressions.walking import rewritten, variables
from search_spaces.workloads.segments import is_inside


def with_ranges(e: Expression, walked: Collection[str], extents: Mapping[str, int]) -> Expression:
    """The expression with the conditions on the `walked` axes as ranges."""

    def change(part: Expression) -> Expression | None:
        match part:
            case Apply("eq", (first, second)):
                one, other = segment_of(first), segment_of(second)
                if one is not None and other is not None:
                    return _range(one, other, walked, extents) or _range(other, one, walked, extents)
            case Apply("lt", (first, Literal(number) | Integer(number))):
                one = segment_of(first)
                return None if one is None else _before(one, number, walked)
        return None

    return rewritten(e, change)


def _range(inner: Segment, outer: Segment, walked: Collection[str], extents: Mapping[str, int]) -> Expression | None:
    """The condition that a position of walked axes is in the segment of one of other axes; None for others."""
    at, walks = inner.position, {*walked}
    if not isinstance(at, Affine) or walks.isdisjoint(at.axes) or walks & variables(outer) or outer.size > inner.size:
        return None
    begin, end = ends_of(inner, outer, at.maximum(extents) + 1)
    return is_inside(call("to_integer", Position(at)), begin, end)


def _before(segment: Segment, number: float, walked: Collection[str]) -> Expression | None:
    """The condition that a position of walked axes is in a segment before that of a number; None for others."""
    at = segment.position
    counted = float(number).is_integer() and 1 <= number <= segment.size
    if not isinstance(at, Affine) or {*walked}.isdisjoint(at.axes) or not counted:
        return None
    end = call("to_integer", Access(segment.tensor, (Affine(offset=int(number) - 1),)))
    return call("lt", call("to_integer", Position(at)), end)
