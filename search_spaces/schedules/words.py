"""Values of decisions that not all backends distinguish: one without an effect is replaced by its plain equivalent.

    backend without descriptors of its own:   a_load=descriptor  specialize=none      →   a_load=pointer
    backend whose loops are not flattened:    grid=persistent_flat                    →   grid=persistent

So different schedules of a backend are different kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces.programs.halos import HALO
from search_spaces.programs.im2col import IM2COL
from search_spaces.schedules.knobs import Knob, KnobValue, Values
from search_spaces.schedules.rules import Rule


@dataclass(frozen=True)
class _Word:
    """A value of decisions and its plain equivalent, under conditions on other decisions if there are any."""

    decisions: tuple[str, ...]
    said: KnobValue
    plain: KnobValue
    beside: tuple[tuple[str, KnobValue, bool], ...] = ()

    def is_said(self, decision: str, values: Mapping[str, KnobValue]) -> bool:
        """True if the decision has the value; of `beside`, each decision equals its value or, with False, differs."""
        there = all((values[name] == value) is so for name, value, so in self.beside if name in values)
        return values.get(decision) == self.said and there


_MOVED = ("a_load", "b_load", "rows_load", "walked_load", "store", "epilogue_load")
# Descriptors of programs without a producer, and of the transposed partial sums of a split reduction;
# loops that compilers flatten into one; kernels that are launched before their predecessor has ended; windows that
# producers load, and those that are views of tiles in shared memory.
_WORDS: Mapping[str, _Word] = {
    "descriptors": _Word(_MOVED, "descriptor", "pointer", (("specialize", "none", True),)),
    "descriptors of parts": _Word(("store",), "descriptor", "pointer", (("split", 1, False), ("swap", True, True))),
    "flattening": _Word(("grid",), "persistent_flat", "persistent"),
    "early launch": _Word(("join",), "ahead", "after"),
    IM2COL: _Word(("a_load", "b_load"), "im2col", "pointer"),
    HALO: _Word(("a_load", "b_load"), HALO, "pointer"),
}
# Those of Triton.
USUAL_WORDS = frozenset(_WORDS) - {IM2COL, HALO}


def plainly(values: Values, words: frozenset[str]) -> Values:
    """The values with plain equivalents of those that a backend with these words does not distinguish."""
    said = {
        decision: word.plain
        for name, word in _WORDS.items()
        if name not in words
        for decision in word.decisions
        if word.is_said(decision, values)
    }
    return Values({**values, **said}) if said else values


def word_rules(words: frozenset[str], knobs: Sequence[Knob]) -> tuple[Rule, ...]:
    """Rules that forbid the values that a backend with these words does not distinguish."""
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
    # A condition that always holds need not be decided first.
    beside = (x for x, value, so in word.beside if x in values and any((v == value) is not so for v in values[x]))
    return Rule((decision, *beside), lambda chosen: reason if word.is_said(decision, chosen) else None)
