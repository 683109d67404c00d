"""ATen's pointwise operators as values: their arguments as elements, their numbers as constants, what they round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autosched.tracing.binding import Bound, check_declared
from autosched.tracing.mixed_types import as_eager_holds
from autosched.tracing.pointwise_rules import COMPARING, RULES, SELECTING, truth
from autosched.tracing.rules import Result, UnsupportedError, literal
from autosched.tracing.values import EXACT_BELOW, Pointwise, Value
from search_spaces.dtypes import is_float
from search_spaces.expression import Expression

# Quotients of integers up to here are cut to the right one although a GPU's division is 2 units in the last place off.
_DIVIDED_BELOW = 2.0**21
# Operators whose result is 1 or 0 as it is.
_TRUE_OR_FALSE = {*COMPARING, *SELECTING, *(n for n in RULES if n.startswith(("logical", "bitwise", "is")))}


def pointwise(result: Result, name: str, bound: Bound) -> Value:
    """A pointwise operator: tensors become the arguments of its rule, numbers constants in it.

    Raises:
        UnsupportedError: the rule does not declare an argument, or float32 may not hold what comes of it.
    """
    check_declared(RULES[name], bound, own=0)
    options = {n: v for n, v in bound.options.items() if isinstance(v, Value) or n in bound.numbers}
    plain = {n: v for n, v in bound.options.items() if n not in options}
    given = as_eager_holds(result, name, [*bound.required, *options.values()])
    tensors = tuple(v for v in given if isinstance(v, Value))
    places = [_Place() if isinstance(v, Value) else literal(v) for v in given]
    limit = _limit(name, [v.limit if isinstance(v, Value) else abs(v) for v in given])
    alpha = options.get("alpha", 1)
    limit = limit * max(abs(alpha), 1.0) if name in ("add", "sub", "rsub") else limit
    limit = math.inf if is_float(result.dtype) else 1.0 if result.dtype == "bool" else limit
    _check_exact(result, name, given, limit)

    def combine(*elements: Expression) -> Expression:
        rest = iter(elements)
        filled: list[Any] = [next(rest) if isinstance(p, _Place) else p for p in places]
        count = len(bound.required)
        made = RULES[name](*filled[:count], **dict(zip(options, filled[count:], strict=True)), **plain)
        # Sums and products of booleans are True or False, too.
        return truth(made) if result.dtype == "bool" and name not in _TRUE_OR_FALSE else made

    if name in SELECTING and all(t.dtype == result.dtype for t in tensors[1 if name == "where" else 0 :]):
        return result.of(Pointwise, arguments=tensors, combine=combine, limit=limit)
    return result.pointwise(combine, *tensors, limit=limit)


class _Place:
    """Where the element of a tensor goes."""


def _limit(name: str, limits: Sequence[float]) -> float:
    """How large the integers can be that come of such a pointwise operator."""
    if name in COMPARING or name.startswith(("logical", "bitwise", "is")):
        return 1.0
    if name in SELECTING:
        return max(limits[1:] if name == "where" else limits)
    if name in ("add", "sub", "rsub"):
        return sum(limits[:2])
    if name in ("remainder", "fmod", "div") and limits[0] <= _DIVIDED_BELOW:
        return limits[0] if name == "div" else limits[1]
    return limits[0] * limits[1] if name == "mul" else float("inf")


def _check_exact(result: Result, name: str, given: Sequence[Any], limit: float) -> None:
    """Raise UnsupportedError where float32 may not hold an integer that matters."""
    tensors = [v for v in given if isinstance(v, Value)]
    if name in COMPARING:
        sizes = [v.limit if isinstance(v, Value) else abs(v) for v in given if v is not None]
        if all(not is_float(v.dtype) for v in tensors) and min(sizes) >= EXACT_BELOW:
            raise UnsupportedError(f"a comparison of integers that may both exceed {EXACT_BELOW:g}")
    elif name.startswith("bitwise") and any(v.dtype != "bool" for v in tensors):
        raise UnsupportedError("arithmetic on the bits of integers")
    elif result.dtype == "int8" and limit > 127:
        raise UnsupportedError("arithmetic on int8, which may wrap around")
    elif not is_float(result.dtype) and result.dtype != "bool" and name not in SELECTING and limit > EXACT_BELOW:
        raise UnsupportedError(f"arithmetic on integers that may exceed {EXACT_BELOW:g}")
