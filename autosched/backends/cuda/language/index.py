"""Affine forms of grid and loop variables as C++ text."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.backends.printing.scope import Identifiers
from search_spaces.programs.tiles import Flat
from search_spaces.workloads.expressions.affine import Affine


class Indexing:
    """Prints the indices of one kernel, whose variables have these extents.

    It is also the `Words` of `printing.grid` and `printing.loops`.
    """

    quotient = "/"

    def __init__(self, extents: Mapping[str, int], identifiers: Identifiers, digits: Mapping[str, Flat] = {}) -> None:
        """`digits`: the variables that follow from others."""
        self.extents = dict(extents)
        self._digits = digits
        self._identifiers = identifiers

    def variable(self, name: str) -> str:
        """The identifier of a grid or loop variable, or the text of a digit of some."""
        if flat := self._digits.get(name):
            return f"({grouped(self.affine(flat.start))} {flat.text('/')})"
        return self._identifiers.of(("variable", name), name)

    def affine(self, value: Affine, wide: bool = False) -> str:
        """The text of an affine form; variables that are always 0 vanish. `wide`: in 64 bits."""
        parts = []
        for name, coefficient in self.varying(value):
            variable = f"int64({self.variable(name)})" if wide else self.variable(name)
            parts.append(variable if coefficient == 1 else f"{variable} * {coefficient}")
        if value.offset or not parts:
            parts.append(str(value.offset))
        return " + ".join(parts).replace("+ -", "- ")

    def defined(self, identifier: str, value: str) -> str:
        return f"const int {identifier} = {value};"

    def least(self, a: str, b: str) -> str:
        return f"min({a}, {b})"

    def most(self, a: str, b: str) -> str:
        return f"max({a}, {b})"

    def rounded_up(self, text: str, divisor: int) -> str:
        return text if divisor == 1 else f"({text} + {divisor - 1}) / {divisor}"

    def varying(self, value: Affine) -> list[tuple[str, int]]:
        """The terms of variables that have several values."""
        return [(name, c) for name, c in value.terms if self.extents[name] > 1]


def sum_of(*parts: str) -> str:
    """The sum of printed terms; those that are 0 vanish."""
    return " + ".join(p for p in parts if p != "0") or "0"


def scaled(text: str, factor: int, wide: bool = False) -> str:
    """A printed number times a constant, as a term of a sum. `wide`: in 64 bits."""
    if text == "0" or factor == 0:
        return "0"
    if text.isdigit() and not wide:
        return str(int(text) * factor)
    if factor == 1 and not wide:
        return text
    return f"{grouped(text)} * {factor}{'ll' if wide else ''}"


def grouped(text: str) -> str:
    """The text in parentheses, unless it is a name, a number or a call."""
    return f"({text})" if " " in text and not _is_closed(text) else text


def _is_closed(text: str) -> bool:
    """True if all spaces are between parentheses or brackets."""
    depth = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character in " ?" and depth == 0:
            return False
    return True
