"""Conditions on the positions of an axis that is cut into segments by data."""

from __future__ import annotations

from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Literal, Position


def in_segment(offsets: str, segment: str, position: str) -> Expression:
    """True where offsets[segment] <= position < offsets[segment + 1], of these axes."""
    at = ex.call("to_integer", Position(axis_index(position)))
    begin, end = (ex.call("to_integer", Access(offsets, (axis_index(segment) + Affine(offset=n),))) for n in (0, 1))
    return ex.mul(ex.call("le", begin, at), ex.call("lt", at, end))


def where_in_segment(offsets: str, segment: str, position: str, element: Expression) -> Expression:
    """The element in the segment, 0 elsewhere."""
    return ex.call("where", in_segment(offsets, segment, position), element, Literal(0.0))
