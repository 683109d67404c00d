"""The programs of a kernel, and the order in which they compute its tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GridAxis:
    variable: str
    extent: int


@dataclass(frozen=True, slots=True)
class Grid:
    """The programs of a kernel, the part of each, and their order.

    Programs are numbered row-major over `axes` (the first varies slowest). With `group=(v, g)`, axis `v` is cut into
    groups of `g`, and the position within a group varies fastest of all, so that neighbours share operands in cache:

        for m.0, for n.0                         axes (m.0, n.0)
        for m.0 // g, for n.0, for m.0 % g       the same with group ("m.0", g); the last group may be smaller

    The grouped axis must be the first or the second-last of the order (the slower of the last two).

    `persistent`: launch at most this many programs, each of which loops over the grid with that stride.

    `stream`: (loop variable v, its extent). All (tile, v) pairs, tiles in program order, are dealt to the persistent
    programs in equal and contiguous shares; a program runs the body once for every tile of its share, with the loop
    over v only over its share of the tile. Several programs then work on one tile, so that their stores must add.
    (Stream-K: Osama et al., PPoPP 2023.)

        for tile in 8: for v in 10                                3 programs: 8 tiles in 3 iterations, the last with 2
        for program in 3: for (tile, v) in 80/3 of the pairs      all 3 programs end at once

    `live`: the variable that the body binds to a number of positions of the first axis, before it uses any variable of
    the grid. Tiles at later positions have no effect, and persistent programs may end before them.
    """

    axes: tuple[GridAxis, ...]
    group: tuple[str, int] | None = None
    persistent: int | None = None
    stream: tuple[str, int] | None = None
    live: str = ""

    @property
    def tiles(self) -> int:
        """Number of tiles of the grid."""
        return math.prod(a.extent for a in self.axes)

    @property
    def pieces(self) -> int:
        """Number of pieces into which the work can be dealt: tiles, or with `stream` the iterations of all of them."""
        return self.tiles * (self.stream[1] if self.stream else 1)

    @property
    def programs(self) -> int:
        """Number of programs launched."""
        return self.tiles if self.persistent is None else min(self.persistent, self.pieces)

    @property
    def walked(self) -> bool:
        """True if some programs compute several tiles, or parts of several."""
        return self.stream is not None or self.programs < self.tiles

    def shares(self) -> Iterator[tuple[int, range]]:
        """Of a stream: every (tile number, iterations of the loop) of a program, program after program."""
        assert self.stream is not None
        iterations = self.stream[1]
        share, longer = divmod(self.pieces, self.programs)
        for program in range(self.programs):
            # The first `longer` programs compute one pair more.
            first, end = (p * share + min(p, longer) for p in (program, program + 1))
            for tile in range(first // iterations, -(-end // iterations)):
                yield tile, range(max(first - tile * iterations, 0), min(end - tile * iterations, iterations))

    def order(self) -> Iterator[dict[str, int]]:
        """The axis values of every tile, in program order."""
        for number in range(self.tiles):
            yield self.position(number)

    def position(self, number: int) -> dict[str, int]:
        """The axis values of tile `number`."""
        values: dict[str, int] = {}
        axes = self.axes
        if self.group is None:
            for axis in reversed(axes):
                number, values[axis.variable] = divmod(number, axis.extent)
            return values
        slow, fast = axes[-2], axes[-1]
        outer, number = divmod(number, slow.extent * fast.extent)
        for axis in reversed(axes[:-2]):
            outer, values[axis.variable] = divmod(outer, axis.extent)
        size = self.group[1]
        group, within = divmod(number, size * fast.extent)
        height = min(size, slow.extent - group * size)
        values[slow.variable] = group * size + within % height
        values[fast.variable] = within // height
        return values
