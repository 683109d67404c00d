"""Norms, and scales and shifts of constants, moved behind the product that reads them.

    ((x·r) ⊙ γ) @ W               →    r · (x @ (γ ⊙ W))                      RMS norm: r = rsqrt(mean(x²) + ε)
    (((x - mean x)·r) ⊙ γ + β) @ W   →    r · (x @ (C(γ ⊙ W))) + β @ W           layer norm: C = I - 11ᵀ/n

r does not vary along the summed dimension and scales rows of the result, in the product's epilogue; γ ⊙ W, centred
where the mean is subtracted, and β @ W are constants that are computed once. The product reads x as it lies in memory,
and what is left of the norm reads x and writes a number per row. It need not be a norm: any r, γ and β will do.

Condition: W, γ and β are constant; x has the type of the product's operands, so that x without r is not rounded once
more and cannot overflow; what r multiplies has no readers but such products, as it is computed otherwise anyway.

Exactness: folded. Roundings of the norm are left out, γ ⊙ W is rounded once: with unit roundoff u of the operands' type
a result differs by at most 2·u·r·Σ|x·γ·W|, the bound of the original's own roundings. Centred, columns of C(γ ⊙ W) sum
to 0 but for their roundings, so that a mean far above the deviation adds |mean x|·r·u·Σ|γ·W|: the check of an instance
(`instances`) refuses that. Where r is 0 or infinite, or x·W overflows in float32, infinities and NaN may differ.

Sources: N. Graef et al., "FlashNorm: fast normalization for LLMs", 2024; M. Wu et al., "Mirage: a multi-level
superoptimizer for tensor programs", OSDI 2025, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from autosched.tracing.operators.rules import Result, converted, copyable, reshape
from autosched.tracing.rewriting.affine import Affine, Readers, affine, is_merged, regroups, rounds
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.scaled_weights import is_weighted, scaled, summed_place, summed_with
from autosched.tracing.values.values import Product, Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression


def _matches(equalities: Equalities) -> Iterator[Match]:
    readers = equalities.readers()
    for value in equalities.terms():
        if not isinstance(value, Product) or not is_weighted(value) or (place := summed_place(value)) is None:
            continue
        if is_merged(equalities, readers, value):
            continue
        found = affine(equalities, value.a, place)
        if (found.factors or found.scale or found.shift or found.centred) and _only_products(
            equalities, readers, found.through[: found.factored or len(found.through)], place
        ):
            yield from _behind(value, found)


def _only_products(equalities: Equalities, readers: Readers, through: Sequence[Value], place: int) -> bool:
    """True if these values are read by one another and by products with constants alone, and are no results."""
    between = {equalities.number(v) for v in through}
    rest = list(between)
    while rest:
        number = rest.pop()
        if number in equalities.results:
            return False
        for reader in readers.get(number, ()):
            own = equalities.number(reader)
            if own in between or (
                isinstance(reader, Product) and is_weighted(reader) and summed_place(reader) == place
            ):
                continue
            if not regroups(reader, place) and not rounds(reader):
                return False
            between.add(own)
            rest.append(own)
    return True


def _behind(product: Product, found: Affine) -> Iterator[Match]:
    core = converted(found.core, product.a.dtype) if product.a.dtype == "float32" else found.core
    if core.dtype != product.a.dtype or core.shape != product.a.shape:
        return
    summed = len(product.a_loops) - found.place
    dim = product.b_loops.index(product.a_loops[summed])
    weights = scaled(product.b, [dim], found.scale, found.centred)
    sums = replace(product, name=f"{product.name}_unscaled", strides=None, a=copyable(core), b=weights)
    factors = [_of_result(f, product, summed) for f in found.factors]
    shift = () if found.shift is None else (summed_with(found.shift, product, dim),)

    def combine(total: Expression, *others: Expression) -> Expression:
        for factor in others[: len(factors)]:
            total = ex.mul(total, factor)
        return ex.add(total, others[-1]) if shift else total

    result = Result(f"{product.name}_rescaled", product.shape, product.dtype, product.line)
    yield Match(((product, result.pointwise(combine, sums, *factors, *shift)),))


def _of_result(factor: Value, product: Product, summed: int) -> Value:
    """A factor of rows of the first operand as one of the result."""
    sizes = dict(zip(product.a_loops, factor.shape, strict=True))
    return reshape(factor, tuple(sizes.get(n, 1) for n in range(len(product.shape))))


def _example(sizes: Sequence[int]) -> list[Value]:
    normed = _normed(sizes)
    return [_product_with(normed, sizes[2]), _product_with(normed, sizes[3], "v")]


def _normed(sizes: Sequence[int]) -> Value:
    m, k, *_ = sizes
    x, r = leaf("x", (m, k)), leaf("r", (m, 1))
    gamma, beta = leaf("gamma", (k,), constant=True), leaf("beta", (k,), constant=True)
    return pointwise(lambda x, r, g, b: ex.add(ex.mul(ex.mul(x, r), g), b), x, r, gamma, beta)


def _product_with(normed: Value, size: int, name: str = "w", constant: bool = True) -> Value:
    return matmul(normed, leaf(name, (normed.shape[1], size), constant=constant), f"by_{name}")


def _layer_norm(sizes: Sequence[int]) -> list[Value]:
    m, k, n, _ = sizes
    x, r, gamma = leaf("x", (m, k)), leaf("r", (m, 1)), leaf("gamma", (k,), constant=True)
    whole = Result("mean", (m, 1), "float32", "")
    sums = whole.keeping(whole.reduced("sum", x, [1], shape=(m,)), [1], True)
    mean = pointwise(lambda total: ex.mul(total, ex.Literal(1 / k)), sums)
    return [_product_with(pointwise(lambda x, u, r, g: ex.mul(ex.mul(ex.sub(x, u), r), g), x, mean, r, gamma), n)]


def _of_a_sum(sizes: Sequence[int]) -> list[Value]:
    x, y, r = leaf("x", sizes[:2]), leaf("y", sizes[:2]), leaf("r", (sizes[0], 1))
    return [_product_with(pointwise(lambda x, y, r: ex.mul(ex.add(x, y), r), x, y, r), sizes[2])]


def _returned(sizes: Sequence[int]) -> list[Value]:
    normed = _normed(sizes)
    return [normed, _product_with(normed, sizes[2])]


def _read_otherwise(sizes: Sequence[int]) -> list[Value]:
    normed = _normed(sizes)
    positive = pointwise(lambda y: ex.call("maximum", y, ex.Literal(0.0)), normed)
    return [_product_with(normed, sizes[2]), _product_with(positive, sizes[2], "v")]


def _with_an_argument(sizes: Sequence[int]) -> list[Value]:
    return [_product_with(_normed(sizes), sizes[2], constant=False)]


RULE = Rule(
    name="norm into product",
    exactness="folded",
    matches=_matches,
    example=_example,
    others=(_layer_norm, _of_a_sum),
    refused=(_returned, _read_otherwise, _with_an_argument),
)
