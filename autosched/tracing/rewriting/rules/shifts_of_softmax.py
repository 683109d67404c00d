"""Shifts of whole rows, which softmax does not see.

    s + c - max(s + c)              →    s - max(s)              c the same along the row
    softmax(q · (k + b))            →    softmax(q · k)          a bias of keys adds q · b to a row
    softmax(s - slope·(i - j))      →    softmax(s + slope·j)    distances of ALiBi, less those of the row

Scores less their maximum, or less 0 where that is -infinity, are read through views, roundings, scales that are the
same along the row, sums, products, and masks that put -infinity in the place of scores, to which a finite shift adds
nothing. A mask that puts another number there, a bound on the scores, or any other function of them shows the shift, so
that it stays.

Condition: c is not the bias of a layer, which `biases_of_attention` is about; the maximum, and the shifted values that
products are behind, have no other readers and are no results, as both would be computed then.

Exactness: sums in another order. The roundings of s + c are left out, at most u |s + c| of each, u of the narrowest
type that it has: the error is less than before by what c contributed. NaN and infinities may differ where c is not
finite, as a row of which c is -infinity was NaN. Source: J.-B. Cordonnier et al., "Multi-Head Attention: Collaborate
Instead of Concatenate", 2020 (biases of keys); the invariance of softmax is older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from autosched.tracing.operators.rules import Result
from autosched.tracing.operators.view_translation import permute
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import exponentials, folded, leaf, matmul, pointwise
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.rewriting.softmax import unshifted
from autosched.tracing.values.values import Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Literal


def _matches(equalities: Equalities) -> Iterator[Match]:
    for found in unshifted(equalities):
        if not found.split.of_a_layer:
            yield Match((found.pair,))


def _keys(sizes: Sequence[int]) -> tuple[Value, Value]:
    # Along a dimension of size 1 everything is the same.
    k, n = sizes[1], sizes[2] + 1
    return leaf("k", (n, k)), leaf("b", (k,), constant=True)


def _scores(sizes: Sequence[int], keys: Value) -> Value:
    turned = permute(Result("turned", keys.shape[::-1], "float32", ""), keys, (1, 0))
    return matmul(leaf("q", (sizes[0], sizes[1])), turned, "scores")


def _biased_scores(sizes: Sequence[int]) -> Value:
    return _scores(sizes, pointwise(ex.add, *_keys(sizes), name="biased"))


def _masked(sizes: Sequence[int], scores: Value, fill: float) -> Value:
    mask = leaf("mask", scores.shape, dtype="bool")

    def chosen(score: Expression, shown: Expression) -> Expression:
        return ex.call("where", shown, ex.mul(score, Literal(0.5)), Literal(fill))

    return pointwise(chosen, scores, mask, name="masked")


def _example(sizes: Sequence[int]) -> list[Value]:
    return [exponentials(_biased_scores(sizes))]


def _with_a_mask(sizes: Sequence[int]) -> list[Value]:
    return [exponentials(_masked(sizes, _biased_scores(sizes), float("-inf")))]


def _lowered_by(sizes: Sequence[int], subtracted: Callable[[Expression], Expression]) -> list[Value]:
    """Masked scores less a function of their maximum."""
    scores = _masked(sizes, _biased_scores(sizes), float("-inf"))
    return [pointwise(ex.sub, scores, pointwise(subtracted, folded("max", scores), name="subtracted"))]


def _with_masked_rows(sizes: Sequence[int]) -> list[Value]:
    lowest = Literal(float("-inf"))
    return _lowered_by(sizes, lambda m: ex.call("where", ex.call("eq", m, lowest), Literal(0.0), m))


def _with_a_bounded_maximum(sizes: Sequence[int]) -> list[Value]:
    return _lowered_by(sizes, lambda m: ex.call("maximum", m, Literal(0.0)))


def _of_distances(sizes: Sequence[int]) -> list[Value]:
    m, n = sizes[0], sizes[2] + 1
    rows, columns, slope = leaf("i", (m, 1)), leaf("j", (n,)), leaf("slope", (), constant=True)
    distances = Result("distances", (m, n), "float32", "").pointwise(ex.sub, columns, rows)
    return [exponentials(pointwise(lambda s, d, a: ex.add(s, ex.mul(d, a)), leaf("s", (m, n)), distances, slope))]


def _with_a_finite_mask(sizes: Sequence[int]) -> list[Value]:
    return [exponentials(_masked(sizes, _biased_scores(sizes), -1e4))]


def _bounded(sizes: Sequence[int]) -> list[Value]:
    return [exponentials(pointwise(lambda e: ex.call("tanh", e), _biased_scores(sizes)))]


def _along_the_row(sizes: Sequence[int]) -> list[Value]:
    keys, _ = _keys(sizes)
    return [exponentials(_scores(sizes, pointwise(ex.add, keys, leaf("b", (keys.shape[0], 1)))))]


def _of_a_layer(sizes: Sequence[int]) -> list[Value]:
    keys, bias = _keys(sizes)
    layer = matmul(keys, leaf("w", (sizes[1], sizes[1]), constant=True), "layer")
    return [exponentials(_scores(sizes, pointwise(ex.add, layer, bias)))]


def _returned(sizes: Sequence[int]) -> list[Value]:
    scores = _biased_scores(sizes)
    return [scores, exponentials(scores)]


RULE = Rule(
    name="shifts of softmax",
    exactness="reassociated",
    matches=_matches,
    example=_example,
    others=(_with_a_mask, _with_masked_rows, _of_distances),
    refused=(_with_a_finite_mask, _with_a_bounded_maximum, _bounded, _along_the_row, _returned, _of_a_layer),
)
