"""ATen's pointwise operators as expressions of their arguments' elements.

Expressions are float32. The caller rounds the result to its element type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from autosched.tracing.operators.pointwise import common_rules, function_rules
from autosched.tracing.operators.pointwise.common_rules import same, unary
from autosched.tracing.operators.pointwise.function_rules import Rounding, floored_quotient
from autosched.tracing.values.templates import simplified
from search_spaces.workloads import activations
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Literal

# Every float32 from here on is an integer.
_INTEGERS_FROM = 2.0**23


def _not(a: Expression) -> Expression:
    return ex.call("eq", a, Literal(0.0))


def truth(a: Expression) -> Expression:
    return _not(_not(a))


def _and(a: Expression, b: Expression) -> Expression:
    return ex.mul(truth(a), truth(b))


def _or(a: Expression, b: Expression) -> Expression:
    return ex.call("maximum", truth(a), truth(b))


def _ne(a: Expression, b: Expression) -> Expression:
    return _not(ex.call("eq", a, b))


def _sigmoid(x: Expression) -> Expression:
    return ex.div(Literal(1.0), ex.add(Literal(1.0), ex.call("exp", ex.call("neg", x))))


def _ceil(x: Expression) -> Expression:
    return ex.call("neg", ex.call("floor", ex.call("neg", x)))


def _trunc(x: Expression) -> Expression:
    return ex.call("where", ex.call("lt", x, Literal(0.0)), _ceil(x), ex.call("floor", x))


def _round(x: Expression, *, decimals: int = 0) -> Expression:
    """To nearest, ties to even, of that many decimals: digits before the point if negative."""
    if decimals == 0:
        return _nearest(x)
    power_of_ten = Literal(10.0 ** abs(decimals))
    if decimals > 0:
        return ex.div(_nearest(ex.mul(x, power_of_ten)), power_of_ten)
    return ex.mul(_nearest(ex.div(x, power_of_ten)), power_of_ten)


def _nearest(x: Expression) -> Expression:
    """The nearest integer: x + 1/2 truncated, and one less for a tie with an odd result; 0 with x's sign."""
    more = ex.add(x, Literal(0.5))
    up = ex.call("floor", more)
    odd = ex.sub(up, ex.mul(Literal(2.0), ex.call("floor", ex.mul(Literal(0.5), up))))
    nearest = ex.sub(up, ex.mul(ex.call("eq", more, up), odd))
    nearest = ex.call("where", ex.call("eq", nearest, Literal(0.0)), ex.mul(x, Literal(0.0)), nearest)
    return ex.call("where", ex.call("lt", ex.call("abs", x), Literal(_INTEGERS_FROM)), nearest, x)


def _sign(x: Expression) -> Expression:
    return ex.sub(ex.call("lt", Literal(0.0), x), ex.call("lt", x, Literal(0.0)))


def _div(a: Expression, b: Expression, *, rounding_mode: str | None = None, rounding: Rounding = same) -> Expression:
    """a / b, truncated ("trunc") or floored ("floor"), the latter by way of the remainder, as in PyTorch.

    `rounding`: applied to the result of every step.
    """
    match rounding_mode:
        case None:
            return ex.div(a, b)
        case "trunc":
            return _trunc(rounding(ex.div(a, b)))
        case _:
            return floored_quotient(a, b, rounding)


def _scaled(change: str) -> Callable[..., Expression]:
    """add or sub, whose second argument may be scaled."""

    def combine(a: Expression, b: Expression, *, alpha: Expression | None = None) -> Expression:
        return simplified(ex.Apply(change, (a, b if alpha is None else ex.mul(alpha, b))))

    return combine


def _angle(x: Expression) -> Expression:
    """The angle of a real number: pi below 0, and NaN of NaN."""
    number = ex.call("where", ex.call("eq", x, x), Literal(0.0), x)
    return ex.call("where", ex.call("lt", x, Literal(0.0)), Literal(math.pi), number)


# By the name of the operator in ATen. Operators with two names take tensors, or a tensor and a number.
RULES: Mapping[str, Callable[..., Expression]] = {
    **common_rules.RULES,
    **function_rules.RULES,
    **{name: unary(name) for name in ("exp", "log", "sqrt", "rsqrt", "tanh", "sin", "cos", "floor")},
    "erf": unary("erf_relative"),
    "add": _scaled("add"),
    "sub": _scaled("sub"),
    "div": _div,
    "ne": _ne,
    "logical_not": _not,
    "bitwise_not": _not,
    "logical_and": _and,
    "bitwise_and": _and,
    "logical_or": _or,
    "bitwise_or": _or,
    "logical_xor": lambda a, b: _ne(truth(a), truth(b)),
    "bitwise_xor": lambda a, b: _ne(truth(a), truth(b)),
    "isnan": lambda x: _ne(x, x),
    "isinf": lambda x: ex.call("eq", ex.call("abs", x), Literal(math.inf)),
    "ceil": _ceil,
    "trunc": _trunc,
    "round": _round,
    "sign": _sign,
    "sgn": _sign,
    "reciprocal": lambda x: ex.div(Literal(1.0), x),
    "angle": _angle,
    "sigmoid": _sigmoid,
    "relu": activations.relu,
    # Dynamo writes it, for optimizers' steps.
    "prims.fma.default": lambda a, b, c: ex.add(ex.mul(a, b), c),
}

# Operators of several steps, each of which eager rounds to its operand type.
STEPWISE = frozenset({"div"})
# Operators that select an argument, or give 0 or 1: nothing is rounded.
SELECTING = frozenset({"where", "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "relu", "neg", "abs", "clone"})
SELECTING |= {"alias", "detach", "fmax", "fmin"}
# Comparisons, exact for integers of any size if one side is below 2^24.
COMPARING = frozenset({"lt", "le", "eq", "ne", "gt", "ge"})
