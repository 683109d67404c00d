"""Which iterations of a loop there are, as Triton text: all, those within its bound, those that are of use."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.printing import loops
from autosched.backends.triton.language.index import Indexing
from search_spaces.programs.statements import For
from search_spaces.workloads.expressions.affine import Affine


def iterations(loop: For, indexing: Indexing) -> str:
    """How many iterations of the loop are within its bound."""
    return loops.iterations(loop, _Words(indexing))


def turns(loop: For, indexing: Indexing) -> str:
    """The iterations of a loop that are of use: how many, or the first of them and the end."""
    first, end = first_and_end(loop, indexing)
    return end if first == "0" else f"{first}, {end}"


def first_and_end(loop: For, indexing: Indexing) -> tuple[str, str]:
    """The first iteration of a loop that is of use, and the one behind the last."""
    return loops.first_and_end(loop, _Words(indexing))


@dataclass(frozen=True)
class _Words:
    indexing: Indexing

    def affine(self, value: Affine) -> str:
        return self.indexing.affine(value)

    def least(self, a: str, b: str) -> str:
        return f"tl.minimum({a}, {b})"

    def most(self, a: str, b: str) -> str:
        return f"tl.maximum({a}, {b})"

    def rounded_up(self, text: str, divisor: int) -> str:
        return f"tl.cdiv({text}, {divisor})"
