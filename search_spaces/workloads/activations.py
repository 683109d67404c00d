"""Activations and chains of them, composed of the pointwise operators that every backend prints."""

from __future__ import annotations

import math
from dataclasses import dataclass

from search_spaces.errors import InputError
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
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


def tanh_of_softplus(x: Expression) -> Expression:
    """tanh(log(1 + exp(x))), which mish multiplies by x (Misra, 2019), as n / (n + 2) with n = exp(x) (exp(x) + 2).

    One function of three. Beyond 20 the result is 1 in every element type, and n would become infinite.
    """
    power = ex.call("exp", ex.call("minimum", x, Literal(20.0)))
    n = ex.mul(power, ex.add(power, Literal(2.0)))
    return ex.div(n, ex.add(n, Literal(2.0)))


def silu(x: Expression) -> Expression:
    """x / (1 + exp(-x))."""
    return ex.div(x, ex.add(Literal(1.0), ex.call("exp", ex.call("neg", x))))


def hardswish(x: Expression) -> Expression:
    """x min(max(x + 3, 0), 6) / 6 (Howard et al., "Searching for MobileNetV3", 2019)."""
    clipped = ex.call("minimum", ex.call("maximum", ex.add(x, Literal(3.0)), Literal(0.0)), Literal(6.0))
    return ex.div(ex.mul(x, clipped), Literal(6.0))


_ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelutanh": gelu_tanh, "silu": silu, "hardswish": hardswish}
# Default of constructors, with or without a link that uses it.
UNUSED_SCALE = 2.0
CHAIN_LINKS = (*_ACTIVATIONS, "bias", "bn", "residual", "gate", "scale", "rowscale", "colscale")


@dataclass(frozen=True)
class Place:
    """The place of a chain's values in a tensor: an index and an extent for every dimension, and its strides.

    `column` is the dimension that vectors of biases and scales follow, `row` that of one scale a row, if there is one.
    """

    index: tuple[Affine, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    column: int = -1
    row: int | None = None


def place_of(axes: tuple[Axis, ...]) -> Place:
    """Dense values with these axes: the last one has the columns, the one before it, if any, the rows."""
    row = -2 if len(axes) > 1 else None
    return Place(tuple(map(axis_index, (a.name for a in axes))), tuple(a.extent for a in axes), row=row)


def apply_chain(
    x: Expression, chain: str, place: Place, dtype: str, scale: float
) -> tuple[Expression, tuple[Tensor, ...]]:
    """`x` after the links of `chain` in order ("bias_gelu_scale"), and the extra inputs these need.

    `bias` adds a vector along the columns, and `bn`, a normalisation with moments that are known, multiplies by one and
    adds another; `residual` adds and `gate` multiplies by a tensor of the full shape, `scale` multiplies by the
    constant; `rowscale` and `colscale` multiply by a float32 vector along the rows and along the columns, as quantised
    operands need it; the others are activations. A link may stand more than once.

    Raises:
        InputError: a link is unknown, or there are no rows to scale, or `scale` is given without its link.
    """
    if not isinstance(chain, str):
        raise InputError(f"chain {chain!r}; expected links joined by '_', such as 'bias_gelu'")
    # Records contain None if it is not used.
    if scale not in (None, UNUSED_SCALE) and "scale" not in chain.split("_"):
        raise InputError(f"scale={scale} without a link 'scale' in {chain!r}; such as {f'{chain}_scale'.lstrip('_')!r}")
    extra: list[Tensor] = []

    def operand(link: str, along: int | None = None, element: str = dtype) -> Expression:
        """A tensor of the full shape, or a vector along one of its dimensions."""
        name = link if all(t.name != link for t in extra) else f"{link}{len(extra)}"
        if along is None:
            extra.append(Tensor(name, place.shape, element, place.strides))
            return Access(name, place.index)
        extra.append(Tensor(name, (place.shape[along],), element))
        return Access(name, (place.index[along],))

    links = tuple(name for name in CHAIN_LINKS if name != "rowscale" or place.row is not None)
    for link in chain.split("_") if chain else ():
        match link:
            case "bias":
                x = ex.add(x, operand(link, place.column))
            case "bn":
                scaled = ex.mul(x, operand("bnscale", place.column))
                x = ex.add(scaled, operand("bnshift", place.column))
            case "residual":
                x = ex.add(x, operand(link))
            case "gate":
                x = ex.mul(x, operand(link))
            case "scale":
                x = ex.mul(x, Literal(scale))
            case "rowscale" if place.row is not None:
                x = ex.mul(x, operand(link, place.row, "float32"))
            case "colscale":
                x = ex.mul(x, operand(link, place.column, "float32"))
            case _ if link in _ACTIVATIONS:
                x = _ACTIVATIONS[link](x)
            case _:
                raise InputError(f"unknown link {link!r} in {chain!r} (allowed, joined by '_': {', '.join(links)})")
    return x, tuple(extra)
