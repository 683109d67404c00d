"""Conditions on the positions of an axis that is cut into segments by data."""

from __future__ import annotations

from collections.abc import Collection

from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal, LookUp, Position
from search_spaces.workloads.expressions.walking import distinct, variables


def in_segment(offsets: str, segment: str, position: str) -> Expression:
    """True where offsets[segment] <= position < offsets[segment + 1], of these axes."""
    at = ex.call("to_integer", Position(axis_index(position)))
    begin, end = (ex.call("to_integer", Access(offsets, (axis_index(segment) + Affine(offset=n),))) for n in (0, 1))
    return is_inside(at, begin, end)


def is_inside(at: Expression, begin: Expression, end: Expression) -> Expression:
    """True where begin <= position < end."""
    return ex.mul(ex.call("le", begin, at), ex.call("lt", at, end))


def where_in_segment(offsets: str, segment: str, position: str, element: Expression) -> Expression:
    """The element in the segment, 0 elsewhere."""
    return ex.call("where", in_segment(offsets, segment, position), element, Literal(0.0))


def cut_axes(e: Expression, positions: Collection[str]) -> frozenset[str]:
    """The axes of segments that such conditions cut these axes of positions into: each position is in one of them.

    Bounds are data: other elements of the same tensor on both sides, at places that are counted. A window of constants,
    of positions or of a length around an element cuts nothing, as windows overlap; nor do bounds of what is looked up,
    which may be the same for many.
    """
    compared = [part.arguments for part in distinct(e) if isinstance(part, Apply) and part.operator in ("le", "lt")]
    begins = [(at, begin) for begin, other in compared if (at := _position(other, positions))]
    ends = [(at, end) for other, end in compared if (at := _position(other, positions))]
    bounds = [(begin, end) for at, begin in begins for other, end in ends if other == at and _are_bounds(begin, end)]
    return frozenset(x for both in bounds for bound in both for x in variables(bound)) - {*positions}


def _are_bounds(begin: Expression, end: Expression) -> bool:
    of_begin, of_end = ({x for x in distinct(e) if isinstance(x, Access | LookUp)} for e in (begin, end))
    if any(isinstance(x, LookUp) for x in of_begin | of_end):
        return False
    return of_begin != of_end and not {x.tensor for x in of_begin}.isdisjoint(x.tensor for x in of_end)


def _position(e: Expression, of: Collection[str]) -> Affine | None:
    """The position of these axes that an expression is, or None."""
    match e:
        case Apply("to_integer", (Position(at),)) | Position(at) if at.terms and {*at.axes} <= {*of}:
            return at
        case _:
            return None
