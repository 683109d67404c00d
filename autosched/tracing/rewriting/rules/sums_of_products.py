"""Sums of products in the cheapest order.

    (A·B)·v        →   A·(B·v)                       matrix chain order
    (Q·Kᵀ)·V       →   Q·(Kᵀ·V)                      attention without softmax
    sum(A·B, 1)    →   A·sum(B, 1)                   reductions through products
    A·B + A·C      →   A·(B + C)                     common factors

A value is read as a sum of products of tensors over loops (an einsum), through views and roundings; an order of the
products is found by dynamic programming over the operations and bytes of every one, and factors that several have in
common are multiplied once. It is rewritten where that promises a tenth of the time at least. Intermediate results that
others read are kept, as they are computed anyway.

Exactness: sums in another order; PyTorch's roundings of what is no longer computed are left out, and what is computed
instead is rounded as PyTorch would. For sums of n products of k factors the error stays below (n + 2 k) u Σ|products|,
u of the element type, as before; a sum B + C that cancels is rounded relative to itself. Overflows of what is no longer
computed are left out, and others may come; 0 · inf and inf - inf may appear in other places, so that NaN and infinities
may differ. Sources: C.-C. Lam et al., "On Optimizing a Class of Multi-Dimensional Loops with Reductions for Parallel
Execution", 1997; A. Katharopoulos et al., "Transformers are RNNs", 2020; Z. Jia et al., "TASO", SOSP 2019.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autosched.tracing.rewriting.contractions.cheapest import cheaper_forms
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.values.values import Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Literal


def _matches(equalities: Equalities) -> Iterator[Match]:
    yield from cheaper_forms(equalities, folded=False)


def _example(sizes: Sequence[int]) -> list[Value]:
    # Larger where the rule pays.
    m, k, n, o = sizes[0] * 16, sizes[1], sizes[2] * 16, sizes[3]
    a, b, c = leaf("a", (m, k)), leaf("b", (k, o)), leaf("c", (k, o))
    chain = matmul(matmul(a, leaf("d", (k, n)), "wide"), leaf("e", (n, o)), "narrow")
    return [chain, pointwise(ex.add, matmul(a, b, "first"), matmul(a, c, "second"), name="sum")]


def _read_elsewhere(sizes: Sequence[int]) -> list[Value]:
    m, k, n, o = sizes
    wide = matmul(leaf("a", (m, k)), leaf("d", (k, n)), "wide")
    return [wide, matmul(wide, leaf("e", (n, o)), "narrow")]


def _relu_between(sizes: Sequence[int]) -> list[Value]:
    m, k, n, o = sizes[0] * 16, sizes[1], sizes[2] * 16, sizes[3]
    wide = matmul(leaf("a", (m, k)), leaf("d", (k, n)), "wide")
    return [matmul(pointwise(lambda e: ex.call("maximum", e, Literal(0.0)), wide), leaf("e", (n, o)), "narrow")]


RULE = Rule(
    name="sums of products",
    exactness="reassociated",
    matches=_matches,
    example=_example,
    refused=(_read_elsewhere, _relu_between),
)
