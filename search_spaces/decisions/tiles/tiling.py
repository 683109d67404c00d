"""Sizes of tiles: how much of each axis or class of axes a program, a loop's iteration, or a cache takes at once.

Before:  for m in 4096: for k in 512: body
After (m=32x128, k=8x64):  grid m.0 in 32: for k.0 in 8: body of 128 positions of m and 64 of k

Also called split (TVM, Halide), multi-level tiling (Ansor), `TileShape` (CUTLASS), block sizes (Triton).
"""

from __future__ import annotations

from collections.abc import Iterable

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice, Tiling, cover

NAMES = (
    "batch",
    "m",
    "n",
    "k",
    "c",
    "d",
    "e",
    "thin",
    "wide",
    "rows",
    "columns",
    "planes",
    "volumes",
    "blocks",
    "panels",
)
WHERE_NOT = "Where a tile has no such axis; others are taken one position at a time."


def tiling(name: str, extent: int, level: str, sizes: Iterable[int]) -> Decision:
    """Tiles of one of these sizes, as many as cover the extent, at one level of the grid or of a loop."""
    return nested(name, extent, (level, "tile"), (cover(extent, (size,)) for size in sizes))


def nested(
    name: str, extent: int, levels: tuple[str, ...], values: Iterable[tuple[int, ...]], likely: int = 1
) -> Decision:
    """Levels of a loop, the outermost first. `likely`: the first value is drawn so many times as often as each other.

    The base program is made with it.
    """
    return Decision(Tiling(name, extent, levels, tuple(values), likely))


def counted(name: str, counts: Iterable[int]) -> Decision:
    """Numbers of positions or of pieces, from which the levels of the loop follow."""
    return Decision(Choice(name, tuple(counts)))
