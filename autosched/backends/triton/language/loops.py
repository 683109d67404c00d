"""Ranges of a loop's iterations, as Triton text: all, those within its bound, and the useful ones."""

from __future__ import annotations

from autosched.backends.printing import loops
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.words import Words
from search_spaces.programs.statements import For


def iterations(loop: For, indexing: Indexing) -> str:
    """Number of iterations of the loop within its bound."""
    return loops.iterations(loop, Words(indexing))


def turns(loop: For, indexing: Indexing) -> str:
    """The useful iterations of a loop: their number, or the first of them and the end."""
    first, end = first_and_end(loop, indexing)
    return end if first == "0" else f"{first}, {end}"


def first_and_end(loop: For, indexing: Indexing) -> tuple[str, str]:
    """The first useful iteration of a loop, and the one after the last."""
    return loops.first_and_end(loop, Words(indexing))
