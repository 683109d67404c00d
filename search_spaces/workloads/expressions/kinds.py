"""The two kinds of values: a float32, or an integer of 64 bits."""

from __future__ import annotations

from search_spaces.errors import InputError
from search_spaces.workloads.expressions.expression import Apply, Expression, Integer, Segment, to_text
from search_spaces.workloads.expressions.operators import COMPARISONS, OF_EITHER, OF_INTEGERS
from search_spaces.workloads.expressions.walking import distinct


def is_integral(expression: Expression) -> bool:
    """True if the value of the expression is an integer, not a float32."""
    while isinstance(expression, Apply) and expression.operator in OF_EITHER:
        # Both are of one kind, which a leaf reveals at once.
        first, last = expression.arguments[-2:][0], expression.arguments[-1]
        expression = last if isinstance(first, Apply) else first
    if isinstance(expression, Apply):
        return expression.operator == "to_integer" or expression.operator in OF_INTEGERS
    return isinstance(expression, Integer | Segment)


def check_kinds(expression: Expression) -> None:
    """Raise InputError if an operator has an argument of a kind that it does not take."""
    for e in distinct(expression):
        why = _why_not_of_kind(e)
        if why:
            raise InputError(f"{to_text(e)}: {why}")


def _why_not_of_kind(e: Expression) -> str | None:
    if isinstance(e, Segment) and not all(map(is_integral, e.looked_up)):
        return "expected a position that is an integer"
    if not isinstance(e, Apply) or e.operator == "to_integer":
        return None
    condition, arguments = (e.arguments[0], e.arguments[1:]) if e.operator == "where" else (None, e.arguments)
    kinds = {is_integral(a) for a in arguments}
    if e.operator in OF_INTEGERS or e.operator == "to_float":
        return "expected integers" if False in kinds else None
    if e.operator in OF_EITHER or e.operator in COMPARISONS:
        mixed = len(kinds) > 1 or (condition is not None and is_integral(condition))
        return "expected integers or float32, not both" if mixed else None
    return "expected float32, got integers" if True in kinds else None
