"""Softmax among values: the difference of scores and their maximum, and what is divided by its sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autosched.tracing.rewriting.affine import Readers
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.shifts import Split, Splitting
from autosched.tracing.values.values import Pointwise, Reduced, Value, View
from autosched.tracing.values.views import Reshape
from search_spaces.workloads.expressions.expression import Access, Apply


@dataclass(frozen=True, eq=False)
class _Lowered:
    """Scores less their maximum: `difference` of `scores` and the view `kept` of `maximum`."""

    difference: Pointwise
    scores: Value
    kept: View
    maximum: Reduced

    def of(self, scores: Value) -> Value:
        """The same of other scores."""
        maximum = replace(self.maximum, name=f"{self.maximum.name}_unshifted", argument=scores)
        kept = replace(self.kept, name=f"{self.kept.name}_unshifted", argument=maximum)
        return replace(self.difference, name=f"{self.difference.name}_unshifted", arguments=(scores, kept))


@dataclass(frozen=True, eq=False)
class Unshifted:
    """The `pair` of scores less their maximum, and the same of scores without a shift of whole rows."""

    pair: tuple[Value, Value]
    split: Split


def unshifted(equalities: Equalities) -> Iterator[Unshifted]:
    """The scores of softmax that have shifts, where nothing is computed twice without these."""
    readers = equalities.readers()
    for value in equalities.terms():
        if (found := _lowered(equalities, value)) is None:
            continue
        # Also of the forms that other rules have found.
        for scores in equalities.forms(found.scores):
            split = Splitting.along_dims(scores, found.maximum.dims)
            if split is not None and _are_read_here_alone(equalities, readers, found, split):
                yield Unshifted((value, found.of(split.rest)), split)


def _lowered(equalities: Equalities, value: Value) -> _Lowered | None:
    match value:
        case Pointwise(
            arguments=(scores, View(argument=Reduced(operator="max") as maximum, kind=Reshape()) as kept),
            expression=Apply("sub", (Access("0", ()), Access("1", ()))),
        ):
            if kept.shape == _kept(scores, maximum) and equalities.are_equal(maximum.argument, scores):
                return _Lowered(value, scores, kept, maximum)
    return None


def _kept(whole: Value, folded: Reduced) -> tuple[int, ...]:
    """The shape of a reduction of the whole value that keeps its dimensions."""
    return tuple(1 if d in folded.dims else n for d, n in enumerate(whole.shape))


def _are_read_here_alone(equalities: Equalities, readers: Readers, found: _Lowered, split: Split) -> bool:
    """True if no product and no maximum is computed a second time, and nothing between is a result."""
    own = {equalities.number(v) for v in (found.difference, found.maximum, found.kept, *split.through)}
    between = own - {equalities.number(found.difference)}
    read = (r for v in (found.maximum, found.kept, *split.dear) for r in readers.get(equalities.number(v), ()))
    return equalities.results.isdisjoint(between) and all(equalities.number(r) in own for r in read)


def averaged_dims(equalities: Equalities, value: Value) -> Sequence[int]:
    """The dimensions along which a value is divided by its sum, so that it sums to 1; none where it is not."""
    match value:
        case Pointwise(
            arguments=(whole, View(argument=Reduced(operator="sum") as total, kind=Reshape()) as kept),
            expression=Apply("div", (Access("0", ()), Access("1", ()))),
        ):
            if kept.shape == _kept(whole, total) and equalities.are_equal(total.argument, whole):
                return total.dims
    return ()
