"""ATen's pointwise operators with one expression for integers and floating-point numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression


def unary(operator: str) -> Callable[[Expression], Expression]:
    """A rule by the expression operator of this name."""
    return lambda x: ex.call(operator, x)


def binary(operator: str) -> Callable[[Expression, Expression], Expression]:
    """A rule of two arguments by the expression operator of this name."""
    return lambda a, b: ex.call(operator, a, b)


def same(x: Expression) -> Expression:
    """The identity."""
    return x


def _reversed_difference(a: Expression, b: Expression, *, alpha: Expression | None = None) -> Expression:
    return ex.sub(b, a if alpha is None else ex.mul(alpha, a))


def _clamp(x: Expression, *, min: Expression | None = None, max: Expression | None = None) -> Expression:
    raised = x if min is None else ex.call("maximum", x, min)
    return raised if max is None else ex.call("minimum", raised, max)


# By the name of the operator in ATen.
RULES: Mapping[str, Callable[..., Expression]] = {
    **dict.fromkeys(("clone", "alias", "detach", "_conj"), same),
    **{name: unary(name) for name in ("neg", "abs")},
    **{name: binary(name) for name in ("maximum", "minimum", "mul", "lt", "le", "eq")},
    "gt": lambda a, b: ex.call("lt", b, a),
    "ge": lambda a, b: ex.call("le", b, a),
    "rsub": _reversed_difference,
    "square": lambda x: ex.mul(x, x),
    "clamp": _clamp,
    "clamp_min": lambda x, low: _clamp(x, min=low),
    "clamp_max": lambda x, high: _clamp(x, max=high),
    "where": lambda c, a, b: ex.call("where", c, a, b),
}
