"""Words of backends: what a schedule says that a backend has no word for is said plainly, as it is made then.

    backend without descriptors of its own:   a_load=descriptor  specialize=none      →   a_load=pointer
    backend whose loops are not flattened:    grid=persistent_flat                    →   grid=persistent

So two schedules of a backend that differ are two kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces.schedules.knobs import Knob, KnobValue, Values
from search_spaces.schedules.rules import Rule


@dataclass(frozen=True)
class _Word:
    """A value of decisions, and the plain one in its place; where these other decisions are so, if not everywhere."""

    decisions: tuple[str, ...]
    said: KnobValue
    plain: KnobValue
    beside: tuple[tuple[str, KnobValue, bool], ...] = ()

    def is_said(self, decision: str, values: Mapping[str, KnobValue]) -> bool:
        """Whether the values say it; of `beside`, each decision has the value or, where that is false, another one."""
        there = all((values[name] == value) is so for name, value, so in self.beside if name in values)
        return values.get(decision) == self.said and there


_MOVED = ("a_load", "b_load", "rows_load", "walked_load", "store", "epilogue_load")
# Descriptors by which programs without a producer move tensors, and those of transposed parts of a split reduction;
# loops that compilers flatten into one; kernels that are launched before the one before them has ended.
_WORDS: Mapping[str, _Word] = {
    "descriptors": _Word(_MOVED, "descriptor", "pointer", (("specialize", "none", True),)),
    "descriptors of parts": _Word(("store",), "descriptor", "pointer", (("split", 1, False), ("swap", True, True))),
    "flattening": _Word(("grid",), "persistent_flat", "persistent"),
    "early launch": _Word(("join",), "ahead", "after"),
}
EVERY_WORD = frozenset(_WORDS)


def plainly(values: Values, words: frozenset[str]) -> Values:
    """The values as they are made by a backend that has these words."""
    said = {
        decision: word.plain
        for name, word in _WORDS.items()
        if name not in words
        for decision in word.decisions
        if word.is_said(decision, values)
    }
    return Values({**values, **said}) if said else values


def word_rules(words: frozenset[str], knobs: Sequence[Knob]) -> tuple[Rule, ...]:
    """What schedules for a backend that has these words and knobs do not say."""
    values = {k.name: k.values for k in knobs}
    return tuple(
        _unsaid(name, word, decision, values)
        for name, word in _WORDS.items()
        if name not in words
        for decision in word.decisions
        if decision in values
    )


def _unsaid(name: str, word: _Word, decision: str, values: Mapping[str, Sequence[KnobValue]]) -> Rule:
    reason = f"{decision}={word.said} is {decision}={word.plain} for a backend without {name}"
    # What can only be so need not be decided first.
    beside = (x for x, value, so in word.beside if x in values and any((v == value) is not so for v in values[x]))
    return Rule((decision, *beside), lambda chosen: reason if word.is_said(decision, chosen) else None)
