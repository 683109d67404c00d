"""Perfect nests of loops as strides: how far each loop moves in two buffers; loops that continue others are merged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from search_spaces.programs.statements import For, Statement


@dataclass(frozen=True)
class Level:
    """A loop of a nest: its iterations, and how far each moves in the two buffers, in elements."""

    extent: int
    a: int
    b: int


def perfect_nest(s: Statement) -> tuple[tuple[For, ...], tuple[Statement, ...]]:
    """The loops of a nest, outermost first, each with all its iterations; and the statements within all of them."""
    loops: list[For] = []
    body: tuple[Statement, ...] = (s,)
    while len(body) == 1 and isinstance(body[0], For) and _is_whole(body[0]):
        loops.append(body[0])
        body = body[0].body
    return tuple(loops), body


def _is_whole(loop: For) -> bool:
    """True if every iteration of a single loop runs."""
    return not (loop.bound or loop.useful or loop.until or loop.since or loop.marks or loop.digits)


def merged(levels: Iterable[Level]) -> list[Level]:
    """The levels, outermost first, with each that continues the next one in both buffers merged with it."""
    found: list[Level] = []
    for x in reversed([*levels]):
        if found and (x.a, x.b) == (found[0].a * found[0].extent, found[0].b * found[0].extent):
            found[0] = Level(x.extent * found[0].extent, found[0].a, found[0].b)
        elif x.extent > 1 or not found:
            found.insert(0, x)
    return found
