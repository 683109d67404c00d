"""ATen's mathematical functions of floating-point numbers as expressions: powers, remainders, and named functions.

Most are operators that backends compute as one (`autosched.backends.formulas`); those here are composed of such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autosched.tracing.operators.pointwise.common_rules import binary, unary
from autosched.tracing.values.templates import simplified
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Literal

# Rounding of a number to an element type.
Rounding = Callable[[Expression], Expression]

_ZERO, _ONE = Literal(0.0), Literal(1.0)


def _where(condition: Expression, a: Expression, b: Expression) -> Expression:
    return ex.call("where", condition, a, b)


def _is_number(x: Expression) -> Expression:
    return ex.call("eq", x, x)


def _pow(x: Expression, y: Expression) -> Expression:
    return simplified(ex.Apply("pow", (x, y)))


def opposite(r: Expression, b: Expression) -> Expression:
    """True where r is not 0 and its sign differs from that of b."""
    return _where(ex.call("lt", b, _ZERO), ex.call("lt", _ZERO, r), ex.call("lt", r, _ZERO))


def remainder(a: Expression, b: Expression) -> Expression:
    """Remainder of a / b with the sign of b."""
    r = ex.call("fmod", a, b)
    return _where(opposite(r, b), ex.add(r, b), r)


def floored_quotient(a: Expression, b: Expression, rounding: Rounding) -> Expression:
    """a / b rounded down by way of the remainder, as PyTorch does (c10/util/generic_math.h, div_floor_floating)."""
    r = ex.call("fmod", a, b)
    whole = rounding(ex.sub(rounding(ex.div(rounding(ex.sub(a, r)), b)), opposite(r, b)))
    down = ex.call("floor", whole)
    nearest = ex.add(down, ex.call("lt", Literal(0.5), rounding(ex.sub(whole, down))))
    return _where(ex.call("eq", b, _ZERO), ex.div(a, b), nearest)


def _fmax(a: Expression, b: Expression) -> Expression:
    """The larger one, or the one that is not NaN."""
    return _where(_is_number(a), _where(ex.call("lt", a, b), b, a), b)


def _fmin(a: Expression, b: Expression) -> Expression:
    return _where(_is_number(a), _where(ex.call("lt", b, a), b, a), b)


def _signbit(x: Expression) -> Expression:
    """True for a negative number, or -0; NaN is taken to be positive."""
    return ex.call("maximum", ex.call("lt", x, _ZERO), ex.call("lt", ex.div(_ONE, x), _ZERO))


def _copysign(size: Expression, sign: Expression) -> Expression:
    magnitude = ex.call("abs", size)
    return _where(_signbit(sign), ex.call("neg", magnitude), magnitude)


RULES: Mapping[str, Callable[..., Expression]] = {
    **{name: unary(name) for name in ("exp2", "log2", "log10", "expm1", "log1p", "sinh", "cosh", "tan")},
    **{name: unary(name) for name in ("asinh", "acosh", "atanh", "asin", "acos", "atan")},
    **{name: unary(name) for name in ("erfc", "lgamma", "digamma")},
    **{name: binary(name) for name in ("atan2", "hypot", "fmod")},
    "pow": _pow,
    "remainder": remainder,
    "fmax": _fmax,
    "fmin": _fmin,
    "signbit": _signbit,
    "special_erfcx": unary("erfcx"),
    "ldexp": lambda x, exponent: ex.mul(x, ex.call("pow", Literal(2.0), exponent)),
    "copysign": _copysign,
}
