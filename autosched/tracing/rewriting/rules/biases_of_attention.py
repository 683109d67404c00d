"""Biases of the layers that make attention's keys and values, of which the scores need none, and the results only one.

    softmax(q·(x·W + b)ᵀ)       →    softmax(q·(x·W)ᵀ)                   q·b is the same for all keys
    P·(x·W + b)·O + c           →    P·(x·W)·O + (b·O + c)               rows of P sum to 1

P is divided by its sums, whatever it is; the bias passes it, the heads' views and the roundings behind them, and is
multiplied into the next layer's bias once. Where attention keeps scores out by masks of -infinity, both still hold; a
row that is wholly masked is NaN as before. A softmax that is 0 there does not sum to 1, and is no division by a sum.

Condition: b, O and c are constant; the values between have no other readers and are no results. Where queries, keys and
values are one wide product, this takes them apart, as only queries keep a bias: it is left out of one rewriting.

Exactness: folded. The roundings of x·W + b are left out and others are made, of x·W and P·(x·W), with the unit roundoff
u of their type: a result differs by at most 2·u·Σ|P·(x·W)·O| + 2·u·Σ|b·O|, which a bias that cancels most of x·W would
make large: the check of an instance (`instances`) refuses that. NaN and infinities may differ where b is not finite.
Source: as of
`shifts_of_softmax`; A. Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022, whose keys
have no bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autosched.tracing.operators.rules import Result
from autosched.tracing.operators.view_translation import permute
from autosched.tracing.rewriting.averages import without_biases
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf, matmul, pointwise, softmax
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.softmax import unshifted
from autosched.tracing.values.values import Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Literal


def _matches(equalities: Equalities) -> Iterator[Match]:
    for found in unshifted(equalities):
        if found.split.of_a_layer:
            yield Match((found.pair,))
    yield from without_biases(equalities)


def _layer(name: str, x: Value, width: int) -> Value:
    weight = leaf(f"{name}_weight", (x.shape[1], width), constant=True)
    bias = leaf(f"{name}_bias", (width,), constant=True)
    return pointwise(ex.add, matmul(x, weight, name), bias, name=f"{name}_biased")


def _input(sizes: Sequence[int]) -> Value:
    # One key has no others to be compared with.
    return leaf("x", (sizes[0] + 1, sizes[1]))


def _scores(sizes: Sequence[int], keys: Value) -> Value:
    turned = permute(Result("turned", keys.shape[::-1], "float32", ""), keys, (1, 0))
    return matmul(leaf("q", (sizes[3], keys.shape[1])), turned, "scores")


def _with_biased_keys(sizes: Sequence[int]) -> list[Value]:
    return [softmax(_scores(sizes, _layer("k", _input(sizes), sizes[2])))]


def _averages(sizes: Sequence[int]) -> Value:
    scores = leaf("scores", (sizes[3], sizes[0] + 1))
    return matmul(softmax(scores), _layer("v", _input(sizes), sizes[2]), "averages")


def _with_biased_values(sizes: Sequence[int]) -> list[Value]:
    return [_layer("o", _averages(sizes), sizes[1])]


def _example(sizes: Sequence[int]) -> list[Value]:
    x = _input(sizes)
    weights = softmax(_scores(sizes, _layer("k", x, sizes[2])))
    return [_layer("o", matmul(weights, _layer("v", x, sizes[2]), "averages"), sizes[1])]


def _without_sums(sizes: Sequence[int]) -> list[Value]:
    """Weights that do not sum to 1."""
    weights = leaf("weights", (sizes[3], sizes[0] + 1))
    return [_layer("o", matmul(weights, _layer("v", _input(sizes), sizes[2]), "averages"), sizes[1])]


def _where_masked(sizes: Sequence[int]) -> list[Value]:
    """A softmax that is 0 where a row is masked."""
    scores = leaf("scores", (sizes[3], sizes[0] + 1))
    masked = leaf("masked", (sizes[3], 1), dtype="bool")
    weights = pointwise(lambda p, m: ex.call("where", m, Literal(0.0), p), softmax(scores), masked)
    return [_layer("o", matmul(weights, _layer("v", _input(sizes), sizes[2]), "averages"), sizes[1])]


def _of_other_sums(sizes: Sequence[int]) -> list[Value]:
    """Softmax over the queries."""
    n = sizes[0] + 1
    weights = softmax(leaf("scores", (n, n)))
    turned = permute(Result("turned", (n, n), "float32", ""), weights, (1, 0))
    return [_layer("o", matmul(turned, _layer("v", _input(sizes), sizes[2]), "averages"), sizes[1])]


def _with_a_returned_average(sizes: Sequence[int]) -> list[Value]:
    averages = _averages(sizes)
    return [averages, _layer("o", averages, sizes[1])]


RULE = Rule(
    name="biases of attention",
    exactness="folded",
    matches=_matches,
    example=_example,
    others=(_with_biased_keys, _with_biased_values),
    refused=(_without_sums, _where_masked, _of_other_sums, _with_a_returned_average),
)
