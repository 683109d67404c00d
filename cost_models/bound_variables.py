"""Variables that a kernel binds to data, as the grid and loop variables on which they depend.

    item: () int64 = m.0;  number: () int64 = sum of done over segment;  let m.segment in 65 = number

With m.0, m.segment changes as well: loads at it are of other places in other programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from search_spaces.programs.statements import Gather, Let, Load, Position, Statement, produced, read, statements
from search_spaces.programs.tile_program import Kernel
from search_spaces.programs.tiles import Slice


def bound_variables(kernel: Kernel) -> Mapping[str, tuple[str, ...]]:
    """The variables on which each one that is bound to data depends, in order; none of a kernel without such."""
    found, tiles = dict[str, tuple[str, ...]](), dict[str, set[str]]()
    body = [*statements(kernel.body)]
    last = max((n for n, s in enumerate(body, 1) if isinstance(s, Let)), default=0)
    for s in body[:last]:
        own = {v for piece in _slices(s) for v in piece.start.axes} | {v for x in read(s) for v in tiles.get(x, ())}
        own = {v for x in own for v in found.get(x, (x,))}
        if isinstance(s, Let):
            found[s.variable] = tuple(sorted(own))
        for tile in produced(s):
            tiles.setdefault(tile.name, set()).update(own)
    return found


def live_tiles(kernel: Kernel) -> int:
    """Tiles of the grid, as many as usually are live, if any are."""
    grid = kernel.grid
    live = next((round(s.usual) for s in kernel.body if isinstance(s, Let) and s.variable == grid.live), 0)
    return live * grid.tiles // grid.axes[0].extent if live else grid.tiles


def repeats(
    slices: Sequence[Slice], kernel: Kernel, bound: Mapping[str, tuple[str, ...]], extents: Mapping[str, int]
) -> dict[str, float]:
    """Values of grid variables, one after the other, that usually have the same place, by which data places these.

    Tiles of equally long segments have the same entry of a table: as many as there are tiles for each entry.
    """
    found, part = dict[str, float](), live_tiles(kernel) / kernel.grid.tiles
    for variable in {v for piece in slices for v in piece.start.axes if v in bound}:
        for of in bound[variable]:
            each = part * extents[of] / extents[variable]
            found[of] = max(1.0, min(each, found.get(of, each)))
    return found


def _slices(s: Statement) -> Iterator[Slice]:
    match s:
        case Load(slices=slices):
            yield from slices
        case Gather(index=index):
            yield from (i for i in index if isinstance(i, Slice))
        case Position(piece=piece):
            yield piece
