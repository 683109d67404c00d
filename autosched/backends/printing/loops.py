"""Which iterations of a loop there are: all, those within its bound, those that are of use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autosched.backends.backend import CompileError
from search_spaces.programs.statements import For
from search_spaces.programs.tiles import Bound
from search_spaces.workloads.expressions.affine import Affine


class Words(Protocol):
    """How a language says what iterations are counted with."""

    def affine(self, value: Affine) -> str:
        """A form of the kernel's variables, "0" where it is always that."""
        ...

    def least(self, a: str, b: str) -> str: ...

    def most(self, a: str, b: str) -> str: ...

    def rounded_up(self, text: str, divisor: int) -> str:
        """The quotient, rounded up; of what is less than 0 it may be cut towards 0."""
        ...


def iterations(loop: For, words: Words) -> str:
    """How many iterations of the loop are within its bound."""
    return str(loop.extent) if loop.bound is None else _within(loop, loop.bound, str(loop.extent), words)


def first_and_end(loop: For, words: Words) -> tuple[str, str]:
    """The first iteration of a loop that is of use, and the one behind the last."""
    first, end = "0", iterations(loop, words)
    for bound in loop.useful:
        step, rest = loop.along(bound)
        if step > 0:
            end = _within(loop, bound, end, words)
        elif step < 0:
            # What is cut towards 0 is not more than 0.
            before = words.affine(rest + Affine(offset=1 - bound.size))
            first = words.most(first, words.rounded_up(before, -step))
    for group in loop.since:
        first = words.most(first, _ended(loop, group, words))
    if loop.until:
        end = words.least(end, _ended(loop, loop.until, words))
    return first, end


def _within(loop: For, bound: Bound, most: str, words: Words) -> str:
    """At most `most`, how many iterations come before the loop leaves the bound."""
    step, rest = loop.along(bound)
    if step <= 0:
        raise CompileError(f"loop {loop.variable} does not approach its bound {bound.start} < {bound.size}")
    begin = words.affine(rest)
    left = str(bound.size) if begin == "0" else f"{bound.size} - ({begin})"
    return words.least(most, words.rounded_up(left, step))


def _ended(loop: For, group: Sequence[Bound], words: Words) -> str:
    """The first iteration that is not within all of these bounds."""
    end = str(loop.extent)
    for bound in group:
        end = _within(loop, bound, end, words)
    return end
