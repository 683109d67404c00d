"""Numbers that scale a product, multiplied into the layer that one of its operands comes from.

    ((x·W + b)·Kᵀ)·c    →    (x·(c·W) + c·b)·Kᵀ                 attention's 1/√d in the queries' layer

There are as many scores as pairs of a query and a key, each of which saves a multiplication; constants are scaled once.

Condition: W and b are constant, c is a number, and the values between have no other readers and are no results, as they
would be computed twice.

Exactness: folded. c·W and c·b are rounded once more, unless c is a power of two: with unit roundoff u of their type a
result differs by at most u·|c|·Σ|x·W·K| beyond the original's own roundings. NaN and infinities may differ where
products overflow that the scale makes small, or the other way round.
Source: A. Vaswani et al., "Attention Is All You Need", 2017, section 3.2.1; NVIDIA's FasterTransformer and others scale
the queries' weights when they load a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autosched.tracing.fusion.regions import below
from autosched.tracing.operators.rules import Result, converted, reshape
from autosched.tracing.operators.view_translation import permute
from autosched.tracing.rewriting.affine import Affine, Readers, affine, combined, is_merged, placed, rounds
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.scaled_products import behind, channels_of, folded, is_of_channels, regrouped
from autosched.tracing.rewriting.terms import is_constant
from autosched.tracing.values.values import Leaf, Product, Value, View
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Literal


def _matches(equalities: Equalities) -> Iterator[Match]:
    readers = equalities.readers()
    for product in equalities.terms():
        if not isinstance(product, Product) or is_constant(product.a) or is_constant(product.b):
            continue
        for value in behind(equalities, readers, product):
            scale = _number(equalities, value, product)
            layers = () if scale is None else _layers(equalities, readers, product)
            if scale is not None and (layer := next(iter(layers), None)) is not None:
                made = layer.scaled(scale)
                sums = replace(product, a=made) if layer.first else replace(product, b=made)
                yield Match(((value, _in_place_of(value, replace(sums, name=f"{product.name}_scaled"))),))
                break


def _number(equalities: Equalities, value: Value, product: Product) -> Value | None:
    """The number by which a value is a multiple of the product; None if it is none."""
    found = affine(equalities, value, 1, to_product=True)
    if found.scale is None or any(isinstance(v, Leaf) for v in below([found.scale])):
        return None
    multiple = not found.changes(Affine(found.core, 1, scale=found.scale))
    return found.scale if multiple and regrouped(found.core, 1) is product else None


def _in_place_of(value: Value, product: Value) -> Value:
    shaped = reshape(product, value.shape) if product.shape != value.shape else product
    return converted(shaped, value.dtype)


@dataclass(frozen=True, eq=False)
class _Layer:
    """A function of a `product` with constants, as `found`, and the views and roundings `through` which it is read.

    `first`: by the first operand of another product, else by the second one.
    """

    value: Value
    found: Affine
    product: Product
    through: tuple[Value, ...]
    first: bool

    def scaled(self, scale: Value) -> Value:
        """The operand with the layer's constants scaled; its bias has the layer's type, as biases have."""
        found, extent = self.found, self.found.extent
        shift = found.shift
        if shift is not None:
            shift = converted(combined(ex.mul, (shift, scale), extent), self.value.dtype)
        found = replace(found, scale=combined(ex.mul, (found.scale, scale), extent), shift=shift)
        return placed(folded(self.value, found, self.product, channels_of(self.product)), self.through)


def _layers(equalities: Equalities, readers: Readers, product: Product) -> Iterator[_Layer]:
    """The layers that the operands come from, where nobody else reads what is between."""
    for here, first in ((product.a, True), (product.b, False)):
        through, reader = list[Value](), equalities.number(product)
        while _is_read_by(equalities, readers, here, reader) and (isinstance(here, View) or rounds(here)):
            through.append(here)
            reader = equalities.number(here)
            (here,) = here.operands
        found = affine(equalities, here, 1, to_product=True)
        core = regrouped(found.core, 1)
        if not isinstance(core, Product) or not _is_read_by(equalities, readers, here, reader):
            continue
        channels = channels_of(core)
        alone = here is core or here in behind(equalities, readers, core)
        of_layer = bool(channels) and len(core.shape) - channels[-1] == 1 and is_of_channels(found, core, channels)
        if alone and of_layer and not is_merged(equalities, readers, core):
            yield _Layer(here, found, core, tuple(through), first)


def _is_read_by(equalities: Equalities, readers: Readers, value: Value, reader: int) -> bool:
    """True if a value is no result, and this class is the only one that reads it."""
    number = equalities.number(value)
    read = {equalities.number(r) for r in readers.get(number, ())}
    return number not in equalities.results and read == {reader}


def _scaled_scores(sizes: Sequence[int], queries: Value, number: float = 0.3) -> Value:
    keys = leaf("k", (sizes[3] + 1, queries.shape[1]))
    turned = permute(Result("turned", keys.shape[::-1], "float32", ""), keys, (1, 0))
    return pointwise(lambda s: ex.mul(s, Literal(number)), matmul(queries, turned, "scores"), name="scaled")


def _queries(sizes: Sequence[int], constant: bool = True) -> Value:
    # Along a dimension of size 1 nothing is a channel.
    m, k, n = sizes[0], sizes[1], sizes[2] + 1
    layer = matmul(leaf("x", (m, k)), leaf("w", (k, n), constant=constant), "layer")
    return pointwise(ex.add, layer, leaf("b", (n,), constant=constant), name="q")


def _example(sizes: Sequence[int]) -> list[Value]:
    return [_scaled_scores(sizes, _queries(sizes))]


def _without_a_bias(sizes: Sequence[int]) -> list[Value]:
    m, k, n = sizes[0], sizes[1], sizes[2] + 1
    return [_scaled_scores(sizes, matmul(leaf("x", (m, k)), leaf("w", (k, n), constant=True), "layer"))]


def _with_returned_queries(sizes: Sequence[int]) -> list[Value]:
    queries = _queries(sizes)
    return [queries, _scaled_scores(sizes, queries)]


def _of_two_scales(sizes: Sequence[int]) -> list[Value]:
    """Scores that are read as they are, too."""
    scaled = _scaled_scores(sizes, _queries(sizes))
    return [scaled, *scaled.operands]


def _behind_a_function(sizes: Sequence[int]) -> list[Value]:
    queries = pointwise(lambda q: ex.call("maximum", q, Literal(0.0)), _queries(sizes), name="positive")
    return [_scaled_scores(sizes, queries)]


RULE = Rule(
    name="scales of products",
    exactness="folded",
    matches=_matches,
    example=_example,
    others=(_without_a_bias,),
    refused=(_with_returned_queries, _of_two_scales, _behind_a_function),
)
