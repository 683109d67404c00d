"""Simplification of expressions of positions with known extents: affine forms, and conditions with a known result.

where(lt((i), 0), add((i), 8), (i)), i below 8    →    i
quotient((16*j + k), 16), k below 16              →    j
"""

from __future__ import annotations

from autosched.tracing.values.values import Extents
from autosched.tracing.values.views import NotAffineError, quotient
from search_spaces.workloads.dtypes import range_of
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Apply, Expression, Integer, Literal, Position, Segment
from search_spaces.workloads.expressions.operators import WRAPPINGS


def within(at: Affine, size: int, extents: Extents) -> bool:
    """True if the index is inside a dimension of that size for all positions."""
    return at.minimum(extents) >= 0 and at.maximum(extents) < size


def beyond(at: Affine, size: int, extents: Extents) -> bool:
    """True if the index is outside that dimension for all positions."""
    return at.maximum(extents) < 0 or at.minimum(extents) >= size


def moved(at: Affine | Expression, by: int) -> Affine | Expression:
    """The index shifted by that many positions."""
    if isinstance(at, Affine):
        return at + Affine(offset=by)
    return ex.add(at, Integer(by)) if by else at


def as_integer(at: Affine | Expression) -> Expression:
    """The index as an integer."""
    if not isinstance(at, Affine):
        return at
    return ex.call("to_integer", Position(at)) if at.terms else Integer(at.offset)


def is_below(at: Affine | Expression, bound: int) -> Expression:
    return ex.call("lt", as_integer(at), Integer(bound))


def is_inside(at: Affine | Expression, size: int, extents: Extents) -> list[Expression]:
    """Conditions for the index to be inside a dimension of that size; none where it always is."""
    low = not isinstance(at, Affine) or at.minimum(extents) < 0
    high = not isinstance(at, Affine) or at.maximum(extents) >= size
    above = [ex.call("le", Integer(0), as_integer(at))] if low else []
    return above + ([is_below(at, size)] if high else [])


def index_of(e: Expression, extents: Extents) -> Affine | Expression:
    """The integer as an index: affine where it can be, and without choices of a known result.

    Raises:
        AxisCutError: as `affine_of`.
    """
    found = affine_of(e, extents)
    if found is not None:
        return found
    match e:
        case Apply("where", (condition, a, b)) if (holds := _holds(condition, extents)) is not None:
            return index_of(a if holds else b, extents)
        case _:
            return e


def affine_of(e: Expression, extents: Extents) -> Affine | None:
    """The integer as an affine form of the axes; None where it is not affine, or not the same one everywhere.

    Raises:
        AxisCutError: it would be affine with that axis split in two.
    """
    match e:
        case Integer(value):
            return Affine(offset=value)
        case Apply("to_integer", (Position(index),)):
            return index
        case Apply("to_integer", (Literal(value),)) if value.is_integer():
            return Affine(offset=int(value))
        case Apply("where", (condition, a, b)):
            holds = _holds(condition, extents)
            if holds is not None:
                return affine_of(a if holds else b, extents)
            first = affine_of(a, extents)
            return first if first is not None and first == affine_of(b, extents) else None
        case Apply("quotient", (a, Integer(divisor))) if divisor > 0:
            return _divided(affine_of(a, extents), divisor, extents)
        case Apply("add" | "sub" | "mul" | "maximum" | "minimum" as operator, (a, b)):
            first, second = affine_of(a, extents), affine_of(b, extents)
            return None if first is None or second is None else _combined(operator, first, second, extents)
        case Apply(operator, (a,)) if operator in WRAPPINGS:
            return _fitting(affine_of(a, extents), WRAPPINGS[operator], extents)
        case _:
            return None


def _fitting(form: Affine | None, dtype: str, extents: Extents) -> Affine | None:
    low, high = range_of(dtype)
    fits = form is not None and form.minimum(extents) >= low and form.maximum(extents) <= high
    return form if fits else None


def _divided(form: Affine | None, divisor: int, extents: Extents) -> Affine | None:
    if form is None or form.minimum(extents) < 0:
        return None
    try:
        whole, _ = quotient(form, divisor, form.maximum(extents) // divisor + 1, extents)
    except NotAffineError:
        return None
    return whole


def _combined(operator: str, a: Affine, b: Affine, extents: Extents) -> Affine | None:
    apart = a - b
    match operator:
        case "add":
            return a + b
        case "sub":
            return apart
        case "mul":
            return a * b.offset if not b.terms else b * a.offset if not a.terms else None
    if apart.minimum(extents) >= 0:
        return a if operator == "maximum" else b
    if apart.maximum(extents) <= 0:
        return b if operator == "maximum" else a
    return None


def _holds(condition: Expression, extents: Extents) -> bool | None:
    """Truth of a comparison at all positions (True) or none (False); None where that is not known."""
    match condition:
        case Apply("lt", (Segment(), Integer(0))):
            return False
        case Apply("lt", (Apply("bitwise_xor", parts), Integer(0))):
            forms = [affine_of(x, extents) for x in parts]
            return False if all(f is not None and f.minimum(extents) >= 0 for f in forms) else None
        case Apply("lt" | "le" as operator, (a, b)):
            first, second = affine_of(a, extents), affine_of(b, extents)
        case _:
            return None
    if first is None or second is None:
        return None
    apart = first - second
    bound = 0 if operator == "lt" else 1
    if apart.maximum(extents) < bound:
        return True
    return False if apart.minimum(extents) >= bound else None
