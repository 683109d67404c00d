"""Formulas as lines of text, in any language: terms that are used several times, or are long, get a name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from autosched.backends.formulas.terms import Term

NAMES = "xyz"
# As Python and C write them.
COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
# A term that is used once is printed where it is used, up to about this length of the line.
_LONGEST = 90


class Language(Protocol):
    """Syntax of a language for formulas."""

    def made(self, term: Term, arguments: Sequence[str]) -> str:
        """An operation on printed arguments, binding as tightly as a name."""
        ...

    def number(self, term: Term) -> str:
        """A constant, binding as tightly as a name."""
        ...

    def definition(self, name: str, term: Term, text: str) -> str:
        """The line that gives a term a name."""
        ...


def printed(formula: Term, language: Language) -> tuple[list[str], str]:
    """The lines that define terms of a formula of arguments called `NAMES`, and the formula in terms of these."""
    text = _Text(formula, language)
    result = text.of(formula)
    return text.lines, result


class _Text:
    def __init__(self, formula: Term, language: Language) -> None:
        self._language = language
        self._uses: Counter[int] = Counter()
        self._count(formula)
        self._known: dict[int, str] = {}
        self.lines: list[str] = []

    def _count(self, term: Term) -> None:
        self._uses[id(term)] += 1
        if self._uses[id(term)] == 1:
            for a in term.arguments:
                self._count(a)

    def of(self, term: Term) -> str:
        if term.operation == "argument":
            return NAMES[int(term.number)]
        if term.operation == "constant":
            return self._language.number(term)
        if id(term) in self._known:
            return self._known[id(term)]
        text = self._language.made(term, [self.of(a) for a in term.arguments])
        if self._uses[id(term)] > 1 or len(text) > _LONGEST:
            name = f"t{len(self.lines)}"
            self.lines.append(self._language.definition(name, term, text))
            text = name
        self._known[id(term)] = text
        return text


def bare(text: str) -> str:
    """Without parentheses around the whole."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if place == len(text) - 1 else text
    return text
