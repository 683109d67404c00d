"""Conditions on the positions of an axis that is cut into segments by data."""

from __future__ import annotations

from collections.abc import Collection

from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal, Position
from search_spaces.workloads.expressions.walking import distinct, variables


def in_segment(offsets: str, segment: str, position: str) -> Expression:
    """True where offsets[segment] <= position < offsets[segment + 1], of these axes."""
    at = ex.call("to_integer", Position(axis_index(position)))
    begin, end = (ex.call("to_integer", Access(offsets, (axis_index(segment) + Affine(offset=n),))) for n in (0, 1))
    return ex.mul(ex.call("le", begin, at), ex.call("lt", at, end))


def where_in_segment(offsets: str, segment: str, position: str, element: Expression) -> Expression:
    """The element in the segment, 0 elsewhere."""
    return ex.call("where", in_segment(offsets, segment, position), element, Literal(0.0))


def cut_axes(e: Expression, positions: Collection[str]) -> frozenset[str]:
    """The axes of segments that such conditions cut these axes of positions into: each position is in one of them."""
    compared = [part.arguments for part in distinct(e) if isinstance(part, Apply) and part.operator in ("le", "lt")]
    begins = {at: variables(begin) for begin, other in compared if (at := _position(other, positions))}
    ends = {at: variables(end) for other, end in compared if (at := _position(other, positions))}
    return frozenset(x for at in begins.keys() & ends.keys() for x in begins[at] | ends[at]) - {*positions}


def _position(e: Expression, of: Collection[str]) -> Affine | None:
    """The position of these axes that an expression is, or None."""
    match e:
        case Apply("to_integer", (Position(at),)) | Position(at) if at.terms and {*at.axes} <= {*of}:
            return at
        case _:
            return None
