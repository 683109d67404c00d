"""ATen's pointwise operators as expressions: how one element follows from the elements of the arguments.

Expressions are float32. What an operator rounds to its own element type is rounded by who translates the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from search_spaces import activations
from search_spaces import expression as ex
from search_spaces.expression import Expression, Literal

# From here on float32 has no halves.
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
    """To nearest, ties to even, of so many decimals: those before the point where they are below 0."""
    if decimals == 0:
        return _nearest(x)
    power_of_ten = Literal(10.0 ** abs(decimals))
    if decimals > 0:
        return ex.div(_nearest(ex.mul(x, power_of_ten)), power_of_ten)
    return ex.mul(_nearest(ex.div(x, power_of_ten)), power_of_ten)


def _nearest(x: Expression) -> Expression:
    """The nearest integer: half more and cut, and one less where that was a tie that came out odd."""
    more = ex.add(x, Literal(0.5))
    up = ex.call("floor", more)
    odd = ex.sub(up, ex.mul(Literal(2.0), ex.call("floor", ex.mul(Literal(0.5), up))))
    nearest = ex.sub(up, ex.mul(ex.call("eq", more, up), odd))
    return ex.call("where", ex.call("lt", ex.call("abs", x), Literal(_INTEGERS_FROM)), nearest, x)


def _sign(x: Expression) -> Expression:
    return ex.sub(ex.call("lt", Literal(0.0), x), ex.call("lt", x, Literal(0.0)))


def _log1p(x: Expression) -> Expression:
    """log(u) x / (u - 1) with u = 1 + x rounded: its error and that of u - 1 cancel (Goldberg, 1991, theorem 4)."""
    u = ex.add(Literal(1.0), x)
    tiny, endless = ex.call("eq", u, Literal(1.0)), ex.call("eq", u, Literal(math.inf))
    exact = ex.div(ex.mul(ex.call("log", u), x), ex.sub(u, Literal(1.0)))
    return ex.call("where", tiny, x, ex.call("where", endless, u, exact))


def _expm1(x: Expression) -> Expression:
    """(u - 1) x / log(u) with u = exp(x) rounded (Higham, Accuracy and Stability, section 1.14.1), for small x."""
    u = ex.call("exp", x)
    less = ex.sub(u, Literal(1.0))
    small = ex.call("where", ex.call("eq", u, Literal(1.0)), x, ex.div(ex.mul(less, x), ex.call("log", u)))
    return ex.call("where", ex.call("lt", ex.call("abs", x), Literal(1.0)), small, less)


def power(x: Expression, exponent: float) -> Expression:
    """x to a constant power: by multiplications and roots where it is a small multiple of a half."""
    if math.isinf(exponent):
        return _infinite_power(x, exponent)
    doubled = 2 * exponent
    if doubled == int(doubled) and abs(exponent) <= 8:
        whole, half = divmod(abs(int(doubled)), 2)
        if exponent == -0.5:
            return ex.call("rsqrt", x)
        factors = [x] * whole + [ex.call("sqrt", x)] * half
        product: Expression = factors[0] if factors else Literal(1.0)
        for factor in factors[1:]:
            product = ex.mul(product, factor)
        return product if exponent >= 0 else ex.div(Literal(1.0), product)
    size = ex.call("exp", ex.mul(Literal(exponent), ex.call("log", ex.call("abs", x))))
    if exponent != int(exponent):
        # Of a negative number there is no such power: its logarithm is NaN, as it should be.
        return ex.call("exp", ex.mul(Literal(exponent), ex.call("log", x)))
    odd = int(exponent) % 2 == 1
    return ex.call("where", ex.call("lt", x, Literal(0.0)), ex.call("neg", size), size) if odd else size


def _infinite_power(x: Expression, exponent: float) -> Expression:
    """0, 1 or infinity, by whether x is nearer to 0 than 1 is."""
    size = ex.call("abs", x)
    below, beyond = (Literal(0.0), Literal(math.inf))[:: 1 if exponent > 0 else -1]
    apart = ex.call("where", ex.call("lt", size, Literal(1.0)), below, size)
    return ex.call("where", ex.call("lt", Literal(1.0), size), beyond, apart)


def _pow(x: Expression, y: Expression) -> Expression:
    """x to a power that is data: exp(y log |x|), with the sign of odd powers and NaN for other powers below 0."""
    if isinstance(y, Literal):
        return power(x, y.value)
    size = ex.call("exp", ex.mul(y, ex.call("log", ex.call("abs", x))))
    whole = ex.call("eq", ex.call("floor", y), y)
    even = ex.call("eq", ex.mul(Literal(2.0), ex.call("floor", ex.mul(Literal(0.5), y))), y)
    signed = ex.call("where", even, size, ex.call("neg", size))
    below = ex.call("where", whole, signed, ex.div(Literal(0.0), Literal(0.0)))
    result = ex.call("where", ex.call("lt", x, Literal(0.0)), below, size)
    return ex.call("where", ex.call("eq", y, Literal(0.0)), Literal(1.0), result)


def _within(r: Expression, a: Expression, step: Expression) -> Expression:
    """A remainder r of a brought between 0 and `step`, which has the sign that it must have, and back to one that fits.

    The quotient may have been rounded to the next integer: then r is off by one step.
    """
    r = ex.call("where", ex.call("lt", ex.mul(r, step), Literal(0.0)), ex.add(r, step), r)
    return ex.call("where", ex.call("le", ex.call("abs", step), ex.call("abs", r)), ex.sub(r, step), r)


def _is_infinite(b: Expression) -> Expression:
    return ex.call("eq", ex.call("abs", b), Literal(math.inf))


def _remainder(a: Expression, b: Expression) -> Expression:
    """What is left of a after whole b, with the sign of b."""
    r = _within(ex.sub(a, ex.mul(b, ex.call("floor", ex.div(a, b)))), a, b)
    opposite = ex.call("lt", ex.mul(a, b), Literal(0.0))
    return ex.call("where", _is_infinite(b), ex.call("where", opposite, b, a), r)


def _fmod(a: Expression, b: Expression) -> Expression:
    """What is left of a after whole b, with the sign of a."""
    size = ex.call("abs", b)
    step = ex.call("where", ex.call("lt", a, Literal(0.0)), ex.call("neg", size), size)
    r = _within(ex.sub(a, ex.mul(b, _trunc(ex.div(a, b)))), a, step)
    return ex.call("where", _is_infinite(b), a, r)


def quotient(a: Expression, b: Expression, mode: str) -> Expression:
    """a / b, cut towards zero ("trunc") or down ("floor"), the latter by way of the remainder, as in PyTorch."""
    if mode == "trunc":
        return _trunc(ex.div(a, b))
    return _nearest(ex.div(ex.sub(a, _remainder(a, b)), b))


def _div(a: Expression, b: Expression, *, rounding_mode: str | None = None) -> Expression:
    return ex.div(a, b) if rounding_mode is None else quotient(a, b, rounding_mode)


def _scaled(change: str) -> Callable[..., Expression]:
    """add or sub, whose second argument may be scaled."""

    def combine(a: Expression, b: Expression, *, alpha: Expression | None = None) -> Expression:
        match change, a, b, alpha:
            case "add", Literal(1.0), ex.Apply("tanh", (x,)), None:
                return activations.one_plus_tanh(x)
            case "add", ex.Apply("tanh", (x,)), Literal(1.0), None:
                return activations.one_plus_tanh(x)
        return ex.call(change, a, b if alpha is None else ex.mul(alpha, b))

    return combine


def _reversed_difference(a: Expression, b: Expression, *, alpha: Expression | None = None) -> Expression:
    return ex.sub(b, a if alpha is None else ex.mul(alpha, a))


def _clamp(x: Expression, *, min: Expression | None = None, max: Expression | None = None) -> Expression:
    raised = x if min is None else ex.call("maximum", x, min)
    return raised if max is None else ex.call("minimum", raised, max)


def _relation(operator: str, swapped: bool = False) -> Callable[[Expression, Expression], Expression]:
    return lambda a, b: ex.call(operator, b, a) if swapped else ex.call(operator, a, b)


def _same(x: Expression) -> Expression:
    return x


def _unary(operator: str) -> Callable[[Expression], Expression]:
    return lambda x: ex.call(operator, x)


# By the name of the operator in ATen. Those of two names are the function of tensors and that of a tensor and a number.
RULES: Mapping[str, Callable[..., Expression]] = {
    **{name: _unary(name) for name in ("abs", "neg", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos")},
    **{name: _unary(name) for name in ("floor",)},
    **{name: _relation(name) for name in ("maximum", "minimum", "mul", "lt", "le", "eq")},
    **dict.fromkeys(("clone", "alias", "detach", "_conj"), _same),
    "add": _scaled("add"),
    "sub": _scaled("sub"),
    "rsub": _reversed_difference,
    "div": _div,
    "gt": _relation("lt", swapped=True),
    "ge": _relation("le", swapped=True),
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
    "square": lambda x: ex.mul(x, x),
    "sigmoid": _sigmoid,
    "relu": activations.relu,
    "log1p": _log1p,
    "expm1": _expm1,
    "erfc": lambda x: ex.sub(Literal(1.0), ex.call("erf", x)),
    "exp2": lambda x: ex.call("exp", ex.mul(x, Literal(math.log(2.0)))),
    "log2": lambda x: ex.mul(ex.call("log", x), Literal(1.0 / math.log(2.0))),
    "log10": lambda x: ex.mul(ex.call("log", x), Literal(1.0 / math.log(10.0))),
    "sinh": lambda x: ex.mul(Literal(0.5), ex.sub(_expm1(x), _expm1(ex.call("neg", x)))),
    "cosh": lambda x: ex.mul(Literal(0.5), ex.add(ex.call("exp", x), ex.call("exp", ex.call("neg", x)))),
    "tan": lambda x: ex.div(ex.call("sin", x), ex.call("cos", x)),
    "pow": _pow,
    "remainder": _remainder,
    "fmod": _fmod,
    "clamp": _clamp,
    "clamp_min": lambda x, low: _clamp(x, min=low),
    "clamp_max": lambda x, high: _clamp(x, max=high),
    "where": lambda c, a, b: ex.call("where", c, a, b),
}

# Operators whose result is one of their arguments, or 0 or 1: nothing is rounded.
SELECTING = frozenset({"where", "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "relu", "neg", "abs", "clone"})
SELECTING |= {"alias", "detach"}
# Operators that integers of any size are compared by, exactly as long as one side is below 2^24.
COMPARING = frozenset({"lt", "le", "eq", "ne", "gt", "ge"})
