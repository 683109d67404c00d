"""From one layout to another: threads write their elements to shared memory, and read those of the new layout.

__syncthreads();
store<2>(scratch + own_m * 136 + own_n …)           rows are padded by 16 bytes, so that columns are in other banks
__syncthreads();
load<8>(…)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.language.scope import call
from autosched.backends.cuda.language.types import VECTOR_BYTES, element_bytes, memory_type
from autosched.backends.cuda.registers.layouts import Layout, Spread, simplified, vector
from autosched.backends.cuda.registers.positions import Positions
from autosched.backends.cuda.registers.shared import SharedMemory
from autosched.backends.cuda.registers.tiles import Held, Tiles
from search_spaces.programs.tiles import Tile


class Exchange:
    """Prints the exchanges of one kernel."""

    def __init__(self, tiles: Tiles, positions: Positions, shared: SharedMemory) -> None:
        self._tiles = tiles
        self._positions = positions
        self._shared = shared
        self.types: set[str] = set()  # element types that were exchanged

    def as_in(self, held: Held, layout: Layout) -> Held:
        """The tile in this layout, which may have more axes: itself, or a copy."""
        wanted = {x: layout[x] for x in held.tile.axes}
        if all(held.layout[x] == spread for x, spread in wanted.items()):
            return held
        moved = self._tiles.temporary(held.tile, f"{held.name}_moved", wanted)
        self.move(held, moved)
        return moved

    def move(self, source: Held, target: Held) -> None:
        """Write the elements of the source to the target, a tile of the same axes."""
        axes = source.tile.axes
        positions = {x: self._positions.within(x, target.layout[x]) for x in axes}
        self.read(target, self.written(source, exchanged_along(source, target)), positions)

    def written(self, source: Held, row: Sequence[str]) -> Scratch:
        """The tile in scratch memory, in such rows, where all threads may read it until the next barrier."""
        scratch = Scratch(source.tile, row)
        fastest = scratch.fastest
        self.types.add(source.tile.dtype)
        scratch.at = self._shared.scratch(scratch.bytes)
        count = math.gcd(vector(source.layout[fastest]), scratch.most) if fastest else 1
        positions = {x: self._positions.within(x, source.layout[x]) for x in source.tile.axes}
        at = self._tiles.at(source.tile.axes, source.layout)
        apart = source.apart(fastest) if fastest else 1
        pointer = f"{scratch.pointer} + {scratch.index(positions)}"
        line = call(f"store<{count}, {apart}>", pointer, source.address(at)) + ";"
        self._tiles.each(source.layout, source.tile.axes, [line], {fastest: count})
        self._shared.meet()
        return scratch

    def read(self, target: Held, scratch: Scratch, positions: Mapping[str, str]) -> None:
        """Set every element of the target to the one of the scratch memory at these positions along its tile's axes.

        If the positions along the fastest axis are those of the target, neighbours are read together.
        """
        fastest = scratch.fastest
        together = bool(fastest) and positions[fastest] == self._own(target, fastest)
        count = math.gcd(vector(target.layout[fastest]), scratch.most) if together else 1
        at = self._tiles.at(target.tile.axes, target.layout)
        apart = target.apart(fastest) if together else 1
        pointer = f"{scratch.pointer} + {scratch.index(positions)}"
        line = call(f"load<{count}, {apart}>", target.address(at), pointer) + ";"
        self._tiles.each(target.layout, target.tile.axes, [line], {fastest: count} if together else {})

    def _own(self, target: Held, axis: str) -> str:
        return self._positions.within(axis, target.layout[axis]) if axis in target.tile.axes else ""


class Scratch:
    """A tile in scratch memory, from `at` on: rows of the fastest axes, padded, the other axes row-major."""

    def __init__(self, tile: Tile, row: Sequence[str]) -> None:
        self._tile = tile
        self.fastest = row[0] if row else ""
        self.at = ""
        size = element_bytes(tile.dtype)
        self.most = VECTOR_BYTES // size
        self._pitch: dict[str, int] = {}
        apart = 1
        for axis in [*row, *(x for x in reversed(tile.axes) if x not in row)]:
            self._pitch[axis] = apart
            apart *= tile.extent(axis)
            if axis == row[-1] and len(tile.axes) > len(row):
                apart = (-(-apart // self.most) + 1) * self.most
        self.bytes = apart * size

    def index(self, positions: Mapping[str, str]) -> str:
        return sum_of(*(scaled(positions[x], self._pitch[x]) for x in self._tile.axes))

    @property
    def pointer(self) -> str:
        return f"reinterpret_cast<{memory_type(self._tile.dtype)}*>({self.at})"


def exchanged_along(source: Held, target: Held) -> tuple[str, ...]:
    """The axis along which most neighbours are together in registers, on either side.

    If neighbouring threads of the target have all of it, the axis of the next ones follows: both are a row of memory.
    """
    axes: Sequence[str] = source.tile.axes
    if not axes:
        return ()
    fastest = max(axes, key=lambda x: vector(source.layout[x]) * vector(target.layout[x]))
    lanes = _lanes(target.layout[fastest]) if len(axes) > 2 else 0
    beside = (x for x in axes if lanes and x != fastest and _begins_at(lanes, target.layout[x]))
    return (fastest, *itertools.islice(beside, 1))


def _lanes(spread: Spread) -> int:
    """Neighbouring lanes that have all positions of an axis, each a vector; 0 if other threads have some."""
    digits = simplified(spread)
    rest = digits[vector(spread) > 1 :]
    if not rest:
        return 1
    return rest[0].size if len(rest) == 1 and rest[0].kind == "lane" and rest[0].place == 1 else 0


def _begins_at(lane: int, spread: Spread) -> bool:
    """True if neighbours along an axis are neighbouring lanes from this one on."""
    first = simplified(spread)[:1]
    return bool(first) and first[0].kind == "lane" and first[0].place == lane
