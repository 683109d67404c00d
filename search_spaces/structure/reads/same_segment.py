"""Conditions on segments of positions, as ranges of the positions that a loop goes over.

Before:  segment(ends, t) == segment(ends, u)           a bisection for every u
After:   begin <= u < end                               with the ends of the segment of t: ends[s - 1] or 0, and ends[s]
                                                        or the number of positions
Before:  (segment(ends, t) == segment(ends, u)) * (segment(ends, u) < number of ends)
After:   begin <= u < end                               with the last of the ends for a t behind all segments

Loops then have the iterations of the range, most of them without a mask. Ends that are not sorted have no segments, and
PyTorch defines none: there the two may differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from search_spaces.structure.reads.ranges import ends_of, segment_of
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Apply,
    Expression,
    Gather,
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
            case Apply("mul", (Apply("eq") as same, Apply("lt") as inside)) | Apply(
                "mul", (Apply("lt") as inside, Apply("eq") as same)
            ):
                return _inside(same, inside, walked, extents)
        return None

    return rewritten(e, change)


def _inside(same: Apply, inside: Apply, walked: Collection[str], extents: Mapping[str, int]) -> Expression | None:
    """The condition that a position of walked axes is in the segment of one of others, which is not behind all."""
    one, other = map(segment_of, same.arguments)
    for inner, outer in ((one, other), (other, one)):
        match inside.arguments:
            case (first, Literal(number) | Integer(number)) if inner and outer and segment_of(first) == inner:
                within = number == inner.size == outer.size and _is_walked(inner, outer, walked)
                if within:
                    begin, _ = ends_of(inner, outer, _most(inner, extents))
                    last = call("minimum", outer, Integer(inner.size - 1))
                    return _between(inner, begin, call("to_integer", Gather(inner.tensor, (last,))))
    return None


def _range(inner: Segment, outer: Segment, walked: Collection[str], extents: Mapping[str, int]) -> Expression | None:
    """The condition that a position of walked axes is in the segment of one of other axes; None for others."""
    if not _is_walked(inner, outer, walked) or outer.size > inner.size:
        return None
    return _between(inner, *ends_of(inner, outer, _most(inner, extents)))


def _is_walked(inner: Segment, outer: Segment, walked: Collection[str]) -> bool:
    """True if the first of two segments alone is of a position of walked axes."""
    at, walks = inner.position, {*walked}
    return isinstance(at, Affine) and not walks.isdisjoint(at.axes) and not walks & variables(outer)


def _most(segment: Segment, extents: Mapping[str, int]) -> int:
    assert isinstance(segment.position, Affine)
    return segment.position.maximum(extents) + 1


def _between(segment: Segment, begin: Expression, end: Expression) -> Expression:
    assert isinstance(segment.position, Affine)
    return is_inside(call("to_integer", Position(segment.position)), begin, end)
