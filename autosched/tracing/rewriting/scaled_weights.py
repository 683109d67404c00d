"""Weights of a product with scales, shifts and centring multiplied in: constants, computed before the first call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autosched.tracing.operators.rules import Result, converted, reshape
from autosched.tracing.rewriting.terms import is_constant
from autosched.tracing.values.values import Product, Value, View
from autosched.tracing.values.views import Permutation
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Literal


def scaled(weights: Value, dims: Sequence[int], scale: Value | None, centred: bool = False) -> Value:
    """`weights * scale` along dimensions, less the mean along these where it is `centred`, rounded once.

    The result is a permutation of memory where the weights are one, so that they stay as they lie.
    """
    if scale is None and not centred:
        return weights
    if isinstance(weights, View) and isinstance(weights.kind, Permutation) and len(dims) == 1:
        inner = scaled(weights.argument, [weights.kind.order[dims[0]]], scale, centred)
        return replace(weights, name=f"{weights.name}_scaled", argument=inner)
    result = Result(f"{weights.name}_scaled", weights.shape, weights.dtype, weights.line)
    whole = result.part("whole", weights.shape, "float32")
    made = weights if scale is None else whole.pointwise(ex.mul, weights, _along(scale, weights, dims))
    if centred:
        made = converted(made, "float32")
        sums = whole.keeping(whole.reduced("sum", made, dims), dims, True)
        part = Literal(1 / math.prod(weights.shape[d] for d in dims))
        made = whole.pointwise(lambda x, total: ex.sub(x, ex.mul(total, part)), made, sums)
    return result.pointwise(lambda x: x, made)


def _along(line: Value, weights: Value, dims: Sequence[int]) -> Value:
    """A constant along dimensions of the weights, in order, to be broadcast along the others."""
    sizes = tuple(n if d in dims else 1 for d, n in enumerate(weights.shape))
    return reshape(line, sizes) if line.shape else line


def summed_with(shift: Value, product: Product, dim: int) -> Value:
    """The sums of products that a constant along the summed dimension of the first operand contributes: of the shape of
    the result, with size 1 along dimensions that the second does not have.
    """
    weights = product.b
    whole = Result(f"{product.name}_shift", weights.shape, "float32", product.line)
    terms = whole.pointwise(ex.mul, weights, _along(shift, weights, [dim]))
    sums = whole.reduced("sum", terms, [dim])
    own = dict(zip(product.b_loops, weights.shape, strict=True))
    return reshape(sums, tuple(own.get(n, 1) for n in range(len(product.shape))))


def is_weighted(product: Value) -> bool:
    """True for a product with constants as its second operand, which has one dimension of its own in the result."""
    if not isinstance(product, Product) or not is_constant(product.b) or is_constant(product.a):
        return False
    rank = len(product.shape)
    own = [n for n in product.b_loops if n < rank]
    return len(own) == 1 and own[0] not in product.a_loops


def summed_place(product: Product) -> int | None:
    """The one summed dimension of the first operand, counted from the last; None where there are several."""
    rank = len(product.shape)
    summed = [d for d, n in enumerate(product.a_loops) if n >= rank]
    own = [n for n in product.a_loops if n < rank]
    return len(product.a_loops) - summed[0] if len(summed) == 1 and own == sorted(own) else None
