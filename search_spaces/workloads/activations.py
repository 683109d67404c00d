"""Activations and chains of them, composed of the pointwise operators that every backend prints."""

from __future__ import annotations

import math

from search_spaces.errors import InputError
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Expression, Literal
from search_spaces.workloads.workload import Axis, Tensor


def relu(x: Expression) -> Expression:
    return ex.call("maximum", x, Literal(0.0))


def gelu(x: Expression) -> Expression:
    """0.5 x (1 + erf(x / sqrt 2)), the exact form (Hendrycks and Gimpel, 2016)."""
    inner = ex.call("erf", ex.mul(x, Literal(math.sqrt(0.5))))
    return ex.mul(ex.mul(Literal(0.5), x), ex.add(Literal(1.0), inner))


def gelu_tanh(x: Expression) -> Expression:
    """The tanh form of gelu: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    cube = ex.mul(ex.mul(x, x), x)
    inner = ex.mul(Literal(math.sqrt(2.0 / math.pi)), ex.add(x, ex.mul(Literal(0.044715), cube)))
    return ex.mul(ex.mul(Literal(0.5), x), one_plus_tanh(inner))


def one_plus_tanh(x: Expression) -> Expression:
    """1 + tanh(x) as 2 / (1 + exp(-2 x)): fewer operations, and no cancellation where tanh is near -1."""
    return ex.div(Literal(2.0), ex.add(Literal(1.0), ex.call("exp", ex.mul(Literal(-2.0), x))))


def silu(x: Expression) -> Expression:
    """x / (1 + exp(-x))."""
    return ex.div(x, ex.add(Literal(1.0), ex.call("exp", ex.call("neg", x))))


_ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelutanh": gelu_tanh, "silu": silu}
# Default of constructors, with or without a link that uses it.
UNUSED_SCALE = 2.0
CHAIN_LINKS = (*_ACTIVATIONS, "bias", "residual", "gate", "scale", "rowscale", "colscale")


def apply_chain(
    x: Expression, chain: str, axes: tuple[Axis, ...], dtype: str, scale: float
) -> tuple[Expression, tuple[Tensor, ...]]:
    """`x` after the links of `chain` in order ("bias_gelu_scale"), and the extra inputs these need.

    `bias` adds a vector along the last axis, `residual` adds and `gate` multiplies by a tensor of the full shape,
    `scale` multiplies by the constant; `rowscale` and `colscale` multiply by a float32 vector along the last axis but
    one and along the last, as quantised operands need it; the others are activations. A link may stand more than once.

    Raises:
        InputError: a link is unknown, or there is one axis and a row to scale, or `scale` is given without its link.
    """
    if not isinstance(chain, str):
        raise InputError(f"chain {chain!r}; expected links joined by '_', such as 'bias_gelu'")
    # Records contain None if it is not used.
    if scale not in (None, UNUSED_SCALE) and "scale" not in chain.split("_"):
        raise InputError(f"scale={scale} without a link 'scale' in {chain!r}; such as {f'{chain}_scale'.lstrip('_')!r}")
    extra: list[Tensor] = []

    def operand(link: str, over: tuple[Axis, ...], element: str = dtype) -> Expression:
        name = link if all(t.name != link for t in extra) else f"{link}{len(extra)}"
        extra.append(Tensor(name, tuple(a.extent for a in over), element))
        return Access(name, tuple(Affine(((a.name, 1),)) for a in over))

    for link in chain.split("_") if chain else ():
        match link:
            case "bias":
                x = ex.add(x, operand(link, axes[-1:]))
            case "residual":
                x = ex.add(x, operand(link, axes))
            case "gate":
                x = ex.mul(x, operand(link, axes))
            case "scale":
                x = ex.mul(x, Literal(scale))
            case "rowscale" if len(axes) > 1:
                x = ex.mul(x, operand(link, axes[-2:-1], "float32"))
            case "colscale":
                x = ex.mul(x, operand(link, axes[-1:], "float32"))
            case _ if link in _ACTIVATIONS:
                x = _ACTIVATIONS[link](x)
            case _:
                raise InputError(
                    f"unknown link {link!r} in {chain!r} (allowed, joined by '_': {', '.join(CHAIN_LINKS)})"
                )
    return x, tuple(extra)
