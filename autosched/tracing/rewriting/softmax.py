"""Softmax among values: the difference of scores and their maximum, and what is divided by its sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autosched.tracing.operators.rules import Result
from autosched.tracing.rewriting.affine import Readers
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.shifts import Split, Splitting
from autosched.tracing.values.templates import filled
from autosched.tracing.values.values import Pointwise, Reduced, Value, View
from autosched.tracing.values.views import Reshape
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Literal, call

_ELEMENT = Access("0", ())
_LOWEST, _ZERO = Literal(float("-inf")), Literal(0.0)
# What shifts as its element does, unless that is -infinity, which no finite shift changes: the element, and 0 instead
# of -infinity, by which rows that are wholly masked are 0.
_SHIFTED = (_ELEMENT, call("where", call("eq", _ELEMENT, _LOWEST), _ZERO, _ELEMENT))
# Values between the maximum and what is subtracted, within each other: a comparison and a choice.
_MOST_BETWEEN = 2


@dataclass(frozen=True, eq=False)
class _Subtracted:
    """A function of the maximum of scores alone: `expression` of the view `kept`, through the values `between`."""

    kept: View
    maximum: Reduced
    expression: Expression = _ELEMENT
    between: tuple[Value, ...] = ()

    def of(self, scores: Value) -> Value:
        """The same of other scores."""
        maximum = replace(self.maximum, name=f"{self.maximum.name}_unshifted", argument=scores)
        kept = replace(self.kept, name=f"{self.kept.name}_unshifted", argument=maximum)
        if self.expression == _ELEMENT:
            return kept
        result = Result(f"{kept.name}_or_0", kept.shape, kept.dtype, kept.line)
        return result.elementwise(lambda _: self.expression, kept)


@dataclass(frozen=True, eq=False)
class _Lowered:
    """Scores less their maximum, or less 0 in rows of -infinity: `difference` of `scores` and what is `subtracted`."""

    difference: Pointwise
    scores: Value
    subtracted: _Subtracted

    def of(self, scores: Value) -> Value:
        """The same of other scores."""
        arguments = scores, self.subtracted.of(scores)
        return replace(self.difference, name=f"{self.difference.name}_unshifted", arguments=arguments)


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
            split = Splitting.along_dims(scores, found.subtracted.maximum.dims)
            if split is not None and _are_read_here_alone(equalities, readers, found, split):
                yield Unshifted((value, found.of(split.rest)), split)


def _lowered(equalities: Equalities, value: Value) -> _Lowered | None:
    match value:
        case Pointwise(arguments=(scores, largest), expression=Apply("sub", (Access("0", ()), Access("1", ())))) if (
            found := _subtracted(largest)
        ) is not None and found.expression in _SHIFTED:
            same = equalities.are_equal(found.maximum.argument, scores)
            return _Lowered(value, scores, found) if same and found.kept.shape == _kept(scores, found.maximum) else None
    return None


def _subtracted(value: Value, most: int = _MOST_BETWEEN) -> _Subtracted | None:
    """The value as a function of one maximum, through at most so many values; None where it is none."""
    match value:
        case View(argument=Reduced(operator="max") as maximum, kind=Reshape()):
            return _Subtracted(value, maximum)
        case Pointwise(arguments=arguments, expression=expression) if arguments and most:
            parts = [part for a in arguments if (part := _subtracted(a, most - 1)) is not None]
            if len(parts) < len(arguments) or len({p.kept for p in parts}) > 1 or value.shape != parts[0].kept.shape:
                return None
            between = dict.fromkeys((value, *(v for p in parts for v in p.between)))
            return replace(parts[0], expression=filled(expression, [p.expression for p in parts]), between=(*between,))
    return None


def _kept(whole: Value, folded: Reduced) -> tuple[int, ...]:
    """The shape of a reduction of the whole value that keeps its dimensions."""
    return tuple(1 if d in folded.dims else n for d, n in enumerate(whole.shape))


def _are_read_here_alone(equalities: Equalities, readers: Readers, found: _Lowered, split: Split) -> bool:
    """True if no product and no maximum is computed a second time, and nothing between is a result."""
    lowest = found.subtracted
    own = {
        equalities.number(v) for v in (found.difference, lowest.maximum, lowest.kept, *lowest.between, *split.through)
    }
    between = own - {equalities.number(found.difference)}
    again = lowest.maximum, lowest.kept, *lowest.between, *split.dear
    read = (r for v in again for r in readers.get(equalities.number(v), ()))
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
