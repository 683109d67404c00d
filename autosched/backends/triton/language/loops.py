"""Which iterations of a loop there are, as Triton text: all, those within its bound, those that are of use."""

from __future__ import annotations

from autosched.backends.printing import loops
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.words import Words
from search_spaces.programs.statements import For


def iterations(loop: For, indexing: Indexing) -> str:
    """How many iterations of the loop are within its bound."""
    return loops.iterations(loop, Words(indexing))


def turns(loop: For, indexing: Indexing) -> str:
    """The iterations of a loop that are of use: how many, or the first of them and the end."""
    first, end = first_and_end(loop, indexing)
    return end if first == "0" else f"{first}, {end}"


def first_and_end(loop: For, indexing: Indexing) -> tuple[str, str]:
    """The first iteration of a loop that is of use, and the one behind the last."""
    return loops.first_and_end(loop, Words(indexing))
