"""Ranges of a loop's iterations: all, those within its bound, and the useful ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autosched.backends.backend import CompileError
from search_spaces.programs.statements import For
from search_spaces.programs.tiles import Bound
from search_spaces.workloads.expressions.affine import Affine


class Words(Protocol):
    """Syntax of a language for counting iterations."""

    def affine(self, value: Affine) -> str:
        """A form of the kernel's variables, "0" if it is always that."""
        ...

    def least(self, a: str, b: str) -> str: ...

    def most(self, a: str, b: str) -> str: ...

    def rounded_up(self, text: str, divisor: int) -> str:
        """The quotient, rounded up; a negative one may be cut towards 0."""
        ...


def iterations(loop: For, words: Words) -> str:
    """Number of iterations of the loop within its bound."""
    return str(loop.extent) if loop.bound is None else _within(loop, loop.bound, str(loop.extent), words)


def first_and_end(loop: For, words: Words) -> tuple[str, str]:
    """The first useful iteration of a loop, and the one after the last."""
    first, end = "0", iterations(loop, words)
    for bound in loop.useful:
        step, rest = loop.along(bound)
        if step > 0:
            end = _within(loop, bound, end, words)
        elif step < 0:
            # A quotient cut towards 0 is not above 0.
            before = words.affine(rest + Affine(offset=1 - bound.size))
            first = words.most(first, words.rounded_up(before, -step))
    for group in loop.since:
        first = words.most(first, _ended(loop, group, words))
    if loop.until:
        end = words.least(end, _ended(loop, loop.until, words))
    return first, end


def _within(loop: For, bound: Bound, most: str, words: Words) -> str:
    """Number of iterations before the loop leaves the bound, at most `most`."""
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
