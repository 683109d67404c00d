"""Constant factors of products multiplied and added once.

    (x·A)·B            →   x·(A·B)
    x·W + (x·A)·B s    →   x·(W + A·B s)             low-rank adapters

As in `sums_of_products`, but products and sums of constants alone cost nothing: they are prepared before the first
call. The product of two small constants may be a large one: it is taken where reading it is cheaper.

Exactness: constants are combined in float64 and rounded once more, with an error of u |W + A·B| in every element, u of
their element type; PyTorch's roundings of x·A are left out. NaN and infinities may differ as in `sums_of_products`.
Source: E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autosched.tracing.rewriting.contractions.cheapest import cheaper_forms
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.values.values import Value
from search_spaces.workloads.expressions import expression as ex


def _matches(equalities: Equalities) -> Iterator[Match]:
    yield from cheaper_forms(equalities, folded=True)


def _example(sizes: Sequence[int]) -> list[Value]:
    # Larger where the rule pays.
    m, k, n, inner = sizes[0] * 16, sizes[1], sizes[2], sizes[3] * 8
    x, w = leaf("x", (m, k)), leaf("w", (k, n), constant=True)
    a, b = leaf("a", (k, inner), constant=True), leaf("b", (inner, n), constant=True)
    return [pointwise(ex.add, matmul(x, w, "dense"), matmul(matmul(x, a, "first"), b, "second"))]


def _one_constant(sizes: Sequence[int]) -> list[Value]:
    m, k, n, inner = sizes[0] * 16, sizes[1], sizes[2], sizes[3] * 8
    a, b = leaf("a", (k, inner)), leaf("b", (inner, n), constant=True)
    return [matmul(matmul(leaf("x", (m, k)), a, "first"), b, "second")]


RULE = Rule(
    name="constants of products",
    exactness="folded",
    matches=_matches,
    example=_example,
    refused=(_one_constant,),
)
