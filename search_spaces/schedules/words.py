"""Words of backends: what a schedule says that a backend has no word for is said plainly, as it is made then.

    backend without descriptors of its own:   a_load=descriptor  specialize=none      →   a_load=pointer
    backend whose loops are not flattened:    grid=persistent_flat                    →   grid=persistent

So two schedules of a backend that differ are two kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from search_spaces.schedules.knobs import KnobValue, Values
from search_spaces.schedules.rules import Rule


@dataclass(frozen=True)
class _Word:
    """A value of decisions, and the plain one in its place; beside which values of another decision, if not of all."""

    decisions: tuple[str, ...]
    said: KnobValue
    plain: KnobValue
    beside: str = ""
    others: Callable[[KnobValue], bool] = bool

    def is_said(self, decision: str, values: Mapping[str, KnobValue]) -> bool:
        return values.get(decision) == self.said and (self.beside not in values or self.others(values[self.beside]))


_MOVED = ("a_load", "b_load", "rows_load", "walked_load", "store", "epilogue_load")
# Descriptors by which programs without a producer move tensors, and those of parts of a split reduction; loops that
# compilers flatten into one; kernels that are launched before the one before them has ended.
_WORDS: Mapping[str, _Word] = {
    "descriptors": _Word(_MOVED, "descriptor", "pointer", "specialize", lambda kind: kind == "none"),
    "descriptors of parts": _Word(("store",), "descriptor", "pointer", "split_k", lambda parts: parts != 1),
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


def word_rules(words: frozenset[str], decisions: frozenset[str]) -> tuple[Rule, ...]:
    """What schedules for a backend that has these words do not say."""
    return tuple(
        _unsaid(name, word, decision, decisions)
        for name, word in _WORDS.items()
        if name not in words
        for decision in word.decisions
        if decision in decisions
    )


def _unsaid(name: str, word: _Word, decision: str, decisions: frozenset[str]) -> Rule:
    reason = f"{decision}={word.said} is {decision}={word.plain} for a backend without {name}"
    about = (decision, *((word.beside,) if word.beside in decisions else ()))
    return Rule(about, lambda values: reason if word.is_said(decision, values) else None)
