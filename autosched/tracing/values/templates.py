"""Expressions with placeholders for the elements of their arguments.

add(0[], mul(2, 1[]))   filled with   x[i], exp(y[i])   →   add(x[i], mul(2, exp(y[i])))
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from autosched.tracing.values.conversions import NOT_A_NUMBER
from autosched.tracing.values.values import Pointwise, Value, View, placeholder
from search_spaces.workloads import activations
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Literal
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import rewritten

_ONE = Literal(1.0)
# Integer powers up to this one are products, larger ones are computed as any power.
_MULTIPLIED = 8


def template(combine: Callable[..., Expression], arguments: Sequence[Value]) -> tuple[Expression, tuple[Value, ...]]:
    """`combine` of the arguments' elements, and those of the arguments that it reads: numbers stand in it as such."""
    expression = combine(*(placeholder(n, a.dtype) for n, a in enumerate(arguments)))
    numbers = [_number(a) for a in arguments]
    read = tuple(a for a, number in zip(arguments, numbers, strict=True) if number is None)
    if len(read) == len(arguments):
        return expression, read
    places = itertools.count()
    elements = [
        placeholder(next(places), a.dtype) if number is None else number
        for a, number in zip(arguments, numbers, strict=True)
    ]
    return filled(expression, elements), read


def _number(value: Value) -> Expression | None:
    """The number that all elements of a value are, also of its views; None where it is computed."""
    while isinstance(value, View):
        value = value.argument
    match value:
        case Pointwise(arguments=(), expression=Literal() | Integer() as number):
            return number
        case Pointwise(arguments=(), expression=expression) if expression == NOT_A_NUMBER:
            return expression
    return None


def filled(expression: Expression, elements: Sequence[Expression]) -> Expression:
    """A template with these elements substituted for its placeholders."""

    def change(e: Expression) -> Expression | None:
        match e:
            case Access(number, ()):
                return elements[int(number)]
            case Apply("to_integer", (Access(number, ()),)) if is_integral(elements[int(number)]):
                return elements[int(number)]
            case Apply("add" | "pow" | "tanh" as operator, arguments) if any(isinstance(a, Access) for a in arguments):
                return simplified(Apply(operator, tuple(filled(a, elements) for a in arguments)))
            case _:
                return None

    return rewritten(expression, change)


def simplified(e: Apply) -> Expression:
    """A simpler form by its arguments: sums that avoid cancellation, powers as products, mish by one function."""
    match e:
        case Apply("add", (Literal(1.0), Apply("tanh", (x,))) | (Apply("tanh", (x,)), Literal(1.0))):
            return activations.one_plus_tanh(x)
        case Apply("add", (Literal(1.0), Apply("erf_relative", (x,)))):
            return ex.add(_ONE, ex.call("erf", x))
        case Apply("add", (Apply("erf_relative", (x,)), Literal(1.0))):
            return ex.add(ex.call("erf", x), _ONE)
        case Apply(
            "tanh", (Apply("where", (Apply("lt", (Literal(20.0), x)), y, Apply("log1p", (Apply("exp", (z,)),)))),)
        ):
            return activations.tanh_of_softplus(x) if x == y == z else e
        case Apply("pow", (x, Literal(exponent))):
            return _power(x, exponent)
        case _:
            return e


def _power(x: Expression, exponent: float) -> Expression:
    """x to a constant power: by multiplications where it is a small whole number, by roots where it is 1/2 or -1/2."""
    if exponent == 0.5:
        return ex.call("sqrt", x)
    if exponent == -0.5:
        return ex.call("rsqrt", x)
    if not math.isfinite(exponent) or exponent != int(exponent) or abs(exponent) > _MULTIPLIED:
        return ex.call("pow", x, Literal(exponent))
    factors = [x] * abs(int(exponent))
    product: Expression = factors[0] if factors else _ONE
    for factor in factors[1:]:
        product = ex.mul(product, factor)
    return product if exponent >= 0 else ex.div(_ONE, product)
