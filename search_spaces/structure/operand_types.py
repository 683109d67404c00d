"""Element types of operands of dots: the narrowest that represents all values of one, computed or not."""

from __future__ import annotations

import numpy as np

from search_spaces.workloads.dtypes import round_to
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Gather, Literal
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.operators import ROUNDINGS

# Operand types of dots with prologues.
MULTIPLIED = ("float32", "float16", "bfloat16")
# Operators whose values are among those of their operands, up to the sign.
_CHOOSING = frozenset({"maximum", "minimum", "neg", "abs"})


def is_computed(operand: Expression) -> bool:
    """True if an operand is more than a tensor as stored."""
    return not isinstance(operand, Access)


def element_type(expression: Expression, dtypes: dict[str, str]) -> str | None:
    """The narrowest of float32, float16 and bfloat16 that represents every value of the expression.

    None for integers, booleans and 8-bit floats, which dots with prologues do not multiply. `dtypes` are those of the
    inputs.
    """
    match expression:
        case Access(tensor) | Gather(tensor):
            return dtypes[tensor] if dtypes[tensor] in MULTIPLIED else None
        case _ if is_integral(expression):
            return None
        case Apply(operator) if operator in ROUNDINGS:
            return ROUNDINGS[operator] if ROUNDINGS[operator] in MULTIPLIED else None
        case Apply(operator, arguments) if operator in (*_CHOOSING, "where"):
            chosen = arguments[1:] if operator == "where" else arguments
            types = {element_type(a, dtypes) for a in chosen if not isinstance(a, Literal)}
            narrow = types.pop() if len(types) == 1 else None
            literals = [a.value for a in chosen if isinstance(a, Literal)]
            return narrow if narrow and all(_holds(narrow, v) for v in literals) else "float32"
        case _:
            return "float32"


def _holds(dtype: str, value: float) -> bool:
    with np.errstate(over="ignore"):
        return float(round_to(np.array([value], np.float32), dtype)[0]) == value
