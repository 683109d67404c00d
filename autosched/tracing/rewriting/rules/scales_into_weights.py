"""Scales and biases after a product with constants, multiplied into these: batch norm as it is used, layer scale.

    ((x @ W + b) - μ) · γ·rsqrt(σ² + ε) + β    →    x @ (W ⊙ s) + ((b - μ)·s + β),    s = γ·rsqrt(σ² + ε)

x @ W stands for any product with constants that has one dimension of its own in the result: linear layers, and
convolutions, also of groups, whose weights are scaled by output channel. Factors that do not vary along this dimension
stay behind the product. Scaled weights and the one bias are computed once, in float64, and rounded once.

Condition: W and what varies along its own dimension are constant; the values between have no other readers and are no
results, as the product would be computed twice. Scales that are plain numbers stay: they cost an epilogue nothing.

Exactness: folded. W ⊙ s is rounded once, and roundings on the way are left out: with unit roundoff u of the weights'
type a result differs by at most 2·u·|s|·Σ|x·W|, which the original's own rounding of x @ W may be far below: the check
of an instance (`instances`) judges. A scale of 0 or infinity, or sums that only one of both overflows with, may give
other infinities and NaN.

Source: B. Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
CVPR 2018, section 3.2 (batch norm folding).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autosched.tracing.operators.rules import Result
from autosched.tracing.operators.view_translation import permute
from autosched.tracing.rewriting.affine import affine, is_merged
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.scaled_products import behind, channels_of, folded, is_of_channels
from autosched.tracing.rewriting.terms import is_constant
from autosched.tracing.values.values import Product, Value
from search_spaces.workloads.expressions import expression as ex


def _matches(equalities: Equalities) -> Iterator[Match]:
    readers = equalities.readers()
    for product in equalities.terms():
        if not isinstance(product, Product) or is_merged(equalities, readers, product):
            continue
        if not (channels := channels_of(product)):
            continue
        place = len(product.shape) - channels[-1]
        for value in behind(equalities, readers, product):
            found = affine(equalities, value, place, to_product=True)
            scales = found.scale is not None and is_constant(found.scale)
            if scales and is_of_channels(found, product, channels):
                yield Match(((value, folded(value, found, product, channels)),))
                break


def _product(sizes: Sequence[int]) -> tuple[Value, int]:
    # Along a dimension of size 1 nothing is a scale of columns.
    m, k, n = sizes[0], sizes[1], sizes[2] + 1
    return matmul(leaf("x", (m, k)), leaf("w", (k, n), constant=True)), n


def _scaled(product: Value, constant: bool = True) -> Value:
    line = product.shape[-1:]
    return pointwise(ex.mul, product, leaf("scale", line, constant=constant), name="scaled")


def _example(sizes: Sequence[int]) -> list[Value]:
    product, n = _product(sizes)
    mean, scale, bias = (leaf(name, (n,), constant=True) for name in ("mean", "scale", "bias"))
    return [pointwise(lambda y, m, s, b: ex.add(ex.mul(ex.sub(y, m), s), b), product, mean, scale, bias)]


def _read_twice(sizes: Sequence[int]) -> list[Value]:
    product, _ = _product(sizes)
    return [pointwise(ex.add, _scaled(product), product)]


def _returned(sizes: Sequence[int]) -> list[Value]:
    product, _ = _product(sizes)
    return [product, _scaled(product)]


def _transposed(sizes: Sequence[int]) -> list[Value]:
    """Scales of rows of the product."""
    n = sizes[0] + 1
    product = matmul(leaf("x", (n, n)), leaf("w", (n, n), constant=True))
    return [_scaled(permute(Result("transposed", (n, n), "float32", ""), product, (1, 0)))]


def _by_an_argument(sizes: Sequence[int]) -> list[Value]:
    return [_scaled(_product(sizes)[0], constant=False)]


def _by_a_number(sizes: Sequence[int]) -> list[Value]:
    return [pointwise(lambda y: ex.mul(y, ex.Literal(0.5)), _product(sizes)[0])]


RULE = Rule(
    name="scales into weights",
    exactness="folded",
    matches=_matches,
    example=_example,
    refused=(_read_twice, _returned, _transposed, _by_an_argument, _by_a_number),
)
