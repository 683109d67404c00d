"""Expressions for readers: parts that depend on no element are computed. Kernels compute the originals.

add(x[i], mul(2, 3))               →    add(x[i], 6)
where(eq(1, 0), x[i], y[i])        →    y[i]
eq(eq(lt(x[i], 0), 0), 0)          →    lt(x[i], 0)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from search_spaces.errors import InputError
from search_spaces.workloads.expressions.expression import Apply, Expression, Integer, Literal
from search_spaces.workloads.expressions.operators import COMPARISONS

# Operators that are computed; of others, such as exp, a reader sees the argument rather than six digits.
_COMPUTED: Mapping[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "abs": abs,
    "maximum": max,
    "minimum": min,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
}
_FALSE, _TRUE = Literal(0.0), Literal(1.0)


def with_constants_computed(expression: Expression) -> Expression:
    """The expression for readers; a shared part is visited once."""
    return _computed(expression, {})


def _computed(e: Expression, known: dict[int, Expression]) -> Expression:
    if not isinstance(e, Apply):
        return e
    made = known.get(id(e))
    if made is None:
        made = known[id(e)] = _shortened(e.operator, tuple([_computed(a, known) for a in e.arguments]))
    return made


def _shortened(name: str, arguments: tuple[Expression, ...]) -> Expression:
    match name, arguments:
        case "where", (Literal(chosen), yes, no):
            return yes if chosen else no
        case "eq", (Apply("eq", (truth, zero)), other) if zero == other == _FALSE and _is_truth(truth):
            return truth
        case "mul", (truth, one) | (one, truth) if one == _TRUE and _is_truth(truth):
            return truth
    made = Apply(name, arguments)
    return _number(made) or made


def _is_truth(expression: Expression) -> bool:
    """True if it is always 1 or 0."""
    match expression:
        case Apply("mul" | "maximum", (a, b)):
            return _is_truth(a) and _is_truth(b)
        case _:
            return expression in (_TRUE, _FALSE) or (
                isinstance(expression, Apply) and expression.operator in COMPARISONS
            )


def _number(made: Apply) -> Expression | None:
    """Its value, if that depends on nothing and is a number."""
    values = [a.value for a in made.arguments if isinstance(a, Literal | Integer)]
    if made.operator not in _COMPUTED or len(values) < len(made.arguments):
        return None
    whole = isinstance(made.arguments[0], Integer) and made.operator not in COMPARISONS
    try:
        value = _COMPUTED[made.operator](*values)
        return Integer(int(value)) if whole else Literal(float(value))
    except (ArithmeticError, InputError):
        # There is none, it is no number, or it has more than 64 bits.
        return None
