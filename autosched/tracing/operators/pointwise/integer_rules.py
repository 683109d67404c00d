"""ATen's pointwise operators on integers, as expressions of integers of 64 bits.

The caller wraps the result to its element type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autosched.tracing.operators.pointwise import common_rules
from autosched.tracing.operators.pointwise.common_rules import binary
from autosched.tracing.operators.rules import UnsupportedError
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal

# Powers are unrolled into products.
_HIGHEST_POWER = 32


def _scaled(operator: str) -> Callable[..., Expression]:
    def combine(a: Expression, b: Expression, *, alpha: Expression | None = None) -> Expression:
        return ex.call(operator, a, b if alpha is None else ex.mul(alpha, b))

    return combine


def _sign(x: Expression) -> Expression:
    above, below = ex.call("lt", Integer(0), x), ex.call("lt", x, Integer(0))
    return ex.sub(ex.call("to_integer", above), ex.call("to_integer", below))


def _checked(b: Expression) -> Expression:
    if b == Integer(0):
        raise UnsupportedError("integers divided by 0, for which PyTorch raises")
    return b


def _fmod(a: Expression, b: Expression) -> Expression:
    """Remainder of a / b with the sign of a."""
    return ex.sub(a, ex.mul(ex.call("quotient", a, _checked(b)), b))


def _with_sign_of(b: Expression, rest: Expression, kept: Expression, moved: Expression) -> Expression:
    """`moved` where a remainder's sign differs from that of b, else `kept`."""
    if isinstance(b, Integer) and b.value > 0:
        return ex.call("where", ex.call("lt", rest, Integer(0)), moved, kept)
    opposite = ex.call("lt", ex.call("bitwise_xor", rest, b), Integer(0))
    return ex.call("where", ex.call("eq", rest, Integer(0)), kept, ex.call("where", opposite, moved, kept))


def _remainder(a: Expression, b: Expression) -> Expression:
    """Remainder of a / b with the sign of b."""
    rest = _fmod(a, b)
    return _with_sign_of(b, rest, rest, ex.add(rest, b))


def _floor_divide(a: Expression, b: Expression) -> Expression:
    down = ex.call("quotient", a, _checked(b))
    return _with_sign_of(b, _fmod(a, b), down, ex.sub(down, Integer(1)))


def _div(a: Expression, b: Expression, *, rounding_mode: str) -> Expression:
    return ex.call("quotient", a, _checked(b)) if rounding_mode == "trunc" else _floor_divide(a, b)


def _pow(x: Expression, exponent: Expression) -> Expression:
    if not isinstance(exponent, Integer) or not 0 <= exponent.value <= _HIGHEST_POWER:
        raise UnsupportedError(f"powers of integers that are no constants from 0 to {_HIGHEST_POWER}")
    power: Expression = x if exponent.value else ex.add(ex.mul(x, Integer(0)), Integer(1))
    for _ in range(exponent.value - 1):
        power = ex.mul(power, x)
    return power


def _is_never(x: Expression) -> Expression:
    return ex.call("lt", x, x)


# By the name of the operator in ATen; the arguments are integers, or constants that are.
RULES: Mapping[str, Callable[..., Expression]] = {
    **common_rules.RULES,
    **dict.fromkeys(("floor", "ceil", "trunc", "round"), common_rules.same),
    **{name: binary(name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "bitwise_not": lambda x: ex.call("bitwise_xor", x, Integer(-1)),
    **dict.fromkeys(("bitwise_left_shift", "__lshift__"), binary("shift_left")),
    **dict.fromkeys(("bitwise_right_shift", "__rshift__"), binary("shift_right")),
    "ne": lambda a, b: ex.call("eq", ex.call("eq", a, b), Literal(0.0)),
    "isnan": _is_never,
    "isinf": _is_never,
    "add": _scaled("add"),
    "sub": _scaled("sub"),
    "fmax": binary("maximum"),
    "fmin": binary("minimum"),
    "signbit": lambda x: ex.call("lt", x, Integer(0)),
    "sign": _sign,
    "sgn": _sign,
    "relu": lambda x: ex.call("maximum", x, Integer(0)),
    "fmod": _fmod,
    "remainder": _remainder,
    "floor_divide": _floor_divide,
    "div": _div,
    "pow": _pow,
}
# Operators whose result is one of their arguments, or fits its type in any case.
FITTING = frozenset(
    {
        *("clone", "alias", "detach", "_conj", "floor", "ceil", "trunc", "round", "relu", "where", "sign", "sgn"),
        *(
            "maximum",
            "minimum",
            "fmax",
            "fmin",
            "clamp",
            "clamp_min",
            "clamp_max",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
        ),
        *("bitwise_right_shift", "__rshift__", "fmod", "remainder"),
    }
)
