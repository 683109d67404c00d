"""Sums over a part of a product's batch, as one product.

    sum over r of (sum over k of a[r, m, k] * b[r, k, n])   →   sum over (r, k) of a[r, m, k] * b[r, k, n]

The condition: nobody else reads the product, and whatever is summed is a loop of both operands. Gradients have it where
several heads of queries share one of keys and values, and where a weight is broadcast; there it always applies
(`callables.cutting`), as what it leaves out is stored and read once for every r.

Exactness: the same products, summed in another order; the rounding of every product before its sum is left out. For R
products of K terms the error stays below (R K + 1) u Σ|a b|, u of float32, where it was that and R roundings to the
products' type. Infinities and NaN are the same, but for sums that overflow in the products' type, or in another order
only. Source: T. Dao et al., "FlashAttention-2", 2023, section 3.1.2, sums gradients of shared heads so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import permute
from autosched.tracing.rewriting.contractions.building import Builder
from autosched.tracing.rewriting.contractions.loops import Monomial, SumOfProducts
from autosched.tracing.rewriting.contractions.reading import known_of, sum_of_products
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.values.values import Reduced, Value
from search_spaces.workloads.expressions import expression as ex


def _matches(equalities: Equalities) -> Iterator[Match]:
    sums = [v for v in equalities.terms() if isinstance(v, Reduced) and v.operator == "sum"]
    known = known_of(equalities) if sums else None
    for value in sums:
        found = sum_of_products(known, value, whole=True) if known and known.is_sum(value) else None
        if found is None or found.contractions != 2 or len(found.monomials) != 1:
            continue
        (monomial,) = found.monomials
        if _is_product(found, monomial):
            builder = Builder(found)
            yield Match(((value, builder.total([builder.in_any_order(monomial)], [monomial.coefficient])),))


def _is_product(found: SumOfProducts, monomial: Monomial) -> bool:
    """True for two factors with rows and columns of their own, and all summed loops."""
    if len(monomial.factors) != 2:
        return False
    kept = {*found.kept}
    a, b = ({*found.loops_of(f)} for f in monomial.factors)
    return a - kept == b - kept and bool(a - b) and bool(b - a)


def _product(sizes: Sequence[int]) -> Value:
    r, m, k, n = sizes[0], sizes[1] + 1, sizes[2], sizes[3] + 1
    shape = (r, m, n)
    return product(
        Result("each", shape, "float32", ""), leaf("a", (r, m, k)), leaf("b", (r, k, n)), shape, (0, 1, 3), (0, 3, 2)
    )


def _sum(made: Value, *dims: int) -> Value:
    shape = tuple(n for d, n in enumerate(made.shape) if d not in dims)
    return Result("sum", shape, "float32", "").reduced("sum", made, dims)


def _example(sizes: Sequence[int]) -> list[Value]:
    return [_sum(_product(sizes), 0)]


def _of_heads(sizes: Sequence[int]) -> list[Value]:
    """Groups of two heads, whose columns come first."""
    each = _product((2 * sizes[0], *sizes[1:]))
    r, m, n = each.shape
    turned = permute(Result("turned", (r, n, m), "float32", ""), each, (0, 2, 1))
    return [_sum(reshape(turned, (r // 2, 2, n, m)), 1)]


def _read_elsewhere(sizes: Sequence[int]) -> list[Value]:
    each = _product(sizes)
    return [_sum(each, 0), pointwise(lambda e: ex.call("neg", e), each)]


def _of_rows(sizes: Sequence[int]) -> list[Value]:
    return [_sum(_product(sizes), 1)]


def _of_largest(sizes: Sequence[int]) -> list[Value]:
    each = _product(sizes)
    return [Result("largest", each.shape[1:], "float32", "").reduced("max", each, (0,))]


RULE = Rule(
    name="sums into products",
    exactness="reassociated",
    matches=_matches,
    example=_example,
    others=(_of_heads,),
    refused=(_read_elsewhere, _of_rows, _of_largest),
)
