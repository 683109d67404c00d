"""Which iterations of a loop there are, as Triton text: all, those within its bound, those that are of use."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.backend import CompileError
from autosched.backends.triton.language.index import Indexing
from search_spaces.programs.statements import For
from search_spaces.programs.tiles import Bound
from search_spaces.workloads.expressions.affine import Affine


def iterations(loop: For, indexing: Indexing) -> str:
    """How many iterations of the loop are within its bound."""
    return str(loop.extent) if loop.bound is None else _within(loop, loop.bound, str(loop.extent), indexing)


def _within(loop: For, bound: Bound, most: str, indexing: Indexing) -> str:
    """At most `most`, how many iterations come before the loop leaves the bound."""
    step, rest = loop.along(bound)
    if step <= 0:
        raise CompileError(f"loop {loop.variable} does not approach its bound {bound.start} < {bound.size}")
    begin = indexing.affine(rest)
    left = str(bound.size) if begin == "0" else f"{bound.size} - ({begin})"
    return f"tl.minimum({most}, tl.cdiv({left}, {step}))"


def _ended(loop: For, group: Sequence[Bound], indexing: Indexing) -> str:
    """The first iteration that is not within all of these bounds."""
    end = str(loop.extent)
    for bound in group:
        end = _within(loop, bound, end, indexing)
    return end


def turns(loop: For, indexing: Indexing) -> str:
    """The iterations of a loop that are of use: how many, or the first of them and the end."""
    first, end = first_and_end(loop, indexing)
    return end if first == "0" else f"{first}, {end}"


def first_and_end(loop: For, indexing: Indexing) -> tuple[str, str]:
    """The first iteration of a loop that is of use, and the one behind the last."""
    first, end = "0", iterations(loop, indexing)
    for bound in loop.useful:
        step, rest = loop.along(bound)
        if step > 0:
            end = _within(loop, bound, end, indexing)
        elif step < 0:
            # What is cut towards 0 is not more than 0.
            before = indexing.affine(rest + Affine(offset=1 - bound.size))
            first = f"tl.maximum({first}, tl.cdiv({before}, {-step}))"
    for group in loop.since:
        first = f"tl.maximum({first}, {_ended(loop, group, indexing)})"
    if loop.until:
        end = f"tl.minimum({end}, {_ended(loop, loop.until, indexing)})"
    return first, end
