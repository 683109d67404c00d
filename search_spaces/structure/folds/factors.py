"""Factors of a summand that are constant along the sum, and so are moved out of it.

    sum over c of round(exp(x[c]) / total) * y[c]     =     (sum over c of round(exp(x[c])) * y[c]) / total

A rounding error is the same share of a value before and after a division.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from search_spaces.workloads.expressions.expression import Apply, Expression, call, mul
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import variables

Outside = Callable[[Expression], Expression]


def taken_out(summand: Expression, axes: Collection[str]) -> tuple[Expression, Outside]:
    """The remaining summand over the axes, and a function that completes its sum."""
    match summand:
        case Apply("mul" | "div", (a, b)) if not variables(b) & {*axes}:
            rest, outside = taken_out(a, axes)
            return rest, lambda total: call(summand.operator, outside(total), b)
        case Apply("mul", (a, b)) if not variables(a) & {*axes}:
            rest, outside = taken_out(b, axes)
            return rest, lambda total: mul(a, outside(total))
        case Apply("mul", (a, b)):
            (first, around), (second, within) = taken_out(a, axes), taken_out(b, axes)
            if (first, second) == (a, b):
                return summand, _itself
            return mul(first, second), lambda total: around(within(total))
        case Apply(operator, (a,)) if operator in ROUNDINGS:
            rest, outside = taken_out(a, axes)
            return (summand, _itself) if rest == a else (call(operator, rest), outside)
        case _:
            return summand, _itself


def _itself(total: Expression) -> Expression:
    return total
