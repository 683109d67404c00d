"""Parts of concatenations that lie in one of what was concatenated.

    cat([a, b], 1)[:, :n]    →    a            where a has n columns
    split(cat([a, b]))       →    a, b

What undoes a concatenation reads it where it was, so that nobody stores the whole for it, nor tests at every element
which of them it is of.

Exactness: the same elements, NaN and infinities too. Source: Z. Jia et al., "TASO", SOSP 2019 (split of concat).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.view_translation import piece
from autosched.tracing.rewriting.equalities import Equalities
from autosched.tracing.rewriting.examples import leaf
from autosched.tracing.rewriting.rule import Match, Rule
from autosched.tracing.values.values import Joined, Value, View
from autosched.tracing.values.views import Selection, Slicing


def _matches(equalities: Equalities) -> Iterator[Match]:
    for value in equalities.terms():
        if isinstance(value, View) and isinstance(value.argument, Joined) and len(equalities.forms(value)) == 1:
            part = _part(value, value.argument)
            if part is not None:
                yield Match(((value, part),))


def _part(view: View, whole: Joined) -> Value | None:
    """The view as one of the part that it lies in; None if there is none."""
    match view.kind:
        case Slicing(dim=dim, start=start, step=step, count=count) if dim == whole.dim and step > 0 and count:
            last = start + (count - 1) * step
        case Selection(dim=dim, at=start) if dim == whole.dim:
            last, step, count = start, 1, 1
        case _:
            return None
    begin = 0
    for part in whole.parts:
        end = begin + part.shape[dim]
        if begin <= start and last < end and not whole.in_groups:
            made = piece(part, dim, start - begin, count, step)
            return made if made.shape == view.shape else reshape(made, view.shape)
        begin = end
    return None


def _joined(sizes: Sequence[int]) -> Joined:
    m, n, o, _ = sizes
    parts = leaf("a", (m, n)), leaf("b", (m, o + 1))
    return Result("joined", (m, n + o + 1), "float32", "").of(Joined, parts=parts, dim=1)


def _example(sizes: Sequence[int]) -> list[Value]:
    n, o = sizes[1:3]
    return [piece(_joined(sizes), 1, n, o + 1), piece(_joined(sizes), 1, n + 1, o)]


def _across(sizes: Sequence[int]) -> list[Value]:
    return [piece(_joined(sizes), 1, sizes[1] - 1, 2)]


RULE = Rule(
    name="parts of concatenations",
    exactness="same",
    matches=_matches,
    example=_example,
    refused=(_across,),
)
