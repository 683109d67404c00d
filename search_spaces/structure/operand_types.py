"""Element types of operands of dots: those that represent all values of one, computed or not.

x[m, k] * q[k, n]      of bfloat16 x and int8 q: bfloat16 has 8 bits of significand, and holds both
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from search_spaces.workloads.dtypes import holds, holds_integers, is_float, round_to
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Gather, Literal
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.whole_numbers import whole_numbers

# Operand types of dots with prologues, those that dot units multiply fastest first.
MULTIPLIED = ("float16", "bfloat16", "float32")
# Operators whose values are among those of their operands, up to the sign.
_CHOOSING = frozenset({"maximum", "minimum", "neg", "abs", "where"})


def is_computed(operand: Expression) -> bool:
    """True if an operand is more than a tensor as stored."""
    return not isinstance(operand, Access)


def operand_type(operands: Iterable[Expression], dtypes: Mapping[str, str]) -> str | None:
    """The first of `MULTIPLIED` that represents every value of every operand; None for values of integers.

    `dtypes` are those of the inputs.
    """
    held = [holding(e, dtypes) for e in operands]
    return next((x for x in MULTIPLIED if all(x in types for types in held)), None)


def holding(e: Expression, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """The types of `MULTIPLIED` that represent every value of an expression; () for values of integers."""
    if is_integral(e):
        return ()
    if whole := whole_numbers(e, dtypes):
        return tuple(x for x in MULTIPLIED if holds_integers(x, max(map(abs, whole))))
    match e:
        case Literal(value):
            return tuple(x for x in MULTIPLIED if _is_of(x, value))
        case Access(tensor, _, fill) if is_float(dtypes[tensor]):
            return tuple(x for x in MULTIPLIED if holds(x, dtypes[tensor]) and _is_of(x, fill or 0.0))
        case Gather(tensor) if is_float(dtypes[tensor]):
            # Elements that are not there are NaN, which all of them have.
            return tuple(x for x in MULTIPLIED if holds(x, dtypes[tensor]))
        case Apply(operator, (of,)) if operator in ROUNDINGS:
            # Of a type that has all values, each is rounded to itself.
            types, rounded = holding(of, dtypes), ROUNDINGS[operator]
            return types if rounded in types else tuple(x for x in MULTIPLIED if holds(x, rounded))
        case Apply(operator, arguments) if operator in _CHOOSING:
            chosen = [holding(a, dtypes) for a in (arguments[1:] if operator == "where" else arguments)]
            return tuple(x for x in MULTIPLIED if all(x in types for types in chosen))
        case _:
            return ("float32",)


def _is_of(element: str, value: float) -> bool:
    # A number is read as a float32.
    if element == "float32":
        return True
    with np.errstate(over="ignore"):
        return float(round_to(np.array([value], np.float32), element)[0]) == value
