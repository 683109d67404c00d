"""Tiles as arrays of a thread's registers: their names, declarations and elements.

float x[4 * 8];                                       x: (m 16, n 256), of which a thread has 4 rows and 8 columns
for (int r_m = 0; r_m < 4; ++r_m)                     elements of all tiles are counted by the same variables, which
    for (int r_n = 0; r_n < 8; ++r_n)                 makes broadcasting by axis names plain indexing
        y[r_m * 8 + r_n] = x[r_m * 8 + r_n] * scale[r_n];
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.language.loops import unrolled
from autosched.backends.cuda.language.types import held_type
from autosched.backends.cuda.registers.layouts import Layout, registers
from autosched.backends.printing.scope import Block, Identifiers
from search_spaces.programs.statements import Let, Statement, children, produced, read
from search_spaces.programs.tiles import Tile


@dataclass(frozen=True)
class Held:
    """A tile in registers: an array called `name`, or one variable if a thread has one element."""

    name: str
    tile: Tile
    layout: Layout

    @property
    def counts(self) -> dict[str, int]:
        """Number of elements of a thread along every axis."""
        return {x: registers(self.layout[x]) for x in self.tile.axes}

    @property
    def elements(self) -> int:
        """Number of elements of a thread."""
        return math.prod(self.counts.values())

    @property
    def declaration(self) -> str:
        size = f"[{self.elements}]" if self.elements > 1 else ""
        return f"{held_type(self.tile.dtype)} {self.name}{size};"

    def apart(self, axis: str) -> int:
        """Distance in the array from one element along the axis to the next."""
        axes = self.tile.axes
        return math.prod(self.counts[x] for x in axes[axes.index(axis) + 1 :])

    def index(self, at: Mapping[str, str]) -> str:
        """Index in the array of the element with these numbers along the axes."""
        return sum_of(*(scaled(at[x], self.apart(x)) for x, count in self.counts.items() if count > 1))

    def element(self, at: Mapping[str, str]) -> str:
        """The element with these numbers along the axes."""
        return f"{self.name}[{self.index(at)}]" if self.elements > 1 else self.name

    def address(self, at: Mapping[str, str]) -> str:
        """A pointer to that element."""
        return f"{sum_of(self.name, self.index(at))}" if self.elements > 1 else f"&{self.name}"


class Tiles:
    """The tiles of one kernel, by their names in its statements.

    `local`: tiles in one body only, which are declared at their definition; others are declared outside of all loops.
    """

    def __init__(
        self, layouts: Mapping[str, Layout], local: Collection[str], identifiers: Identifiers, block: Block
    ) -> None:
        self._layouts = dict(layouts)
        self._local = local
        self._identifiers = identifiers
        self._block = block
        self._tiles: dict[str, Tile] = {}
        self._declared: dict[str, int] = {}
        self._temporaries = 0

    def __getitem__(self, name: str) -> Held:
        """A tile that was declared."""
        return Held(self.name(name), self._tiles[name], self._layouts[name])

    def name(self, tile: str) -> str:
        return self._identifiers.of(("tile", tile), tile)

    def layout(self, name: str) -> Layout:
        """The layout of the tile with this name, declared or not."""
        return self._layouts[name]

    def declare(self, tile: Tile) -> Held:
        """The tile as a destination, declared if it is not yet."""
        self._tiles[tile.name] = tile
        held = self[tile.name]
        local = tile.name in self._local
        scope = self._block.innermost if local else self._block.outermost
        if self._declared.get(held.name) != id(scope):
            self._declared[held.name] = id(scope)
            if local:
                self._block.write(held.declaration)
            else:
                scope.definitions.append(held.declaration)
        return held

    def temporary(self, tile: Tile, wanted: str, layout: Layout) -> Held:
        """A new temporary array with the elements and axes of the tile."""
        self._temporaries += 1
        name = self._identifiers.of(("temporary", self._temporaries), wanted)
        held = Held(name, tile, {x: layout[x] for x in tile.axes})
        self._block.write(held.declaration)
        return held

    # Loops over registers

    def variable(self, axis: str) -> str:
        """The variable that counts a thread's elements along an axis."""
        return self._identifiers.of(("register", axis), f"r_{axis}")

    def at(self, axes: Iterable[str], layout: Layout) -> dict[str, str]:
        """The variables that count the elements along these axes; 0 for a single one."""
        return {x: self.variable(x) if registers(layout[x]) > 1 else "0" for x in axes}

    def each(
        self, layout: Layout, axes: Sequence[str], lines: Sequence[str], steps: Mapping[str, int] | None = None
    ) -> None:
        """Write the lines for every element of a thread along these axes; `steps`: lengths of vectors along some."""
        counts = {x: registers(layout[x]) for x in axes}
        loops = [(self.variable(x), n, (steps or {}).get(x, 1)) for x, n in counts.items() if n > 1]
        self._block.write(unrolled(loops, lines))


def local_tiles(body: tuple[Statement, ...]) -> set[str]:
    """The tiles that the statements of only one body mention."""
    mentioned: dict[str, set[int]] = defaultdict(set)
    for number, part in enumerate(_bodies(body)):
        for s in part:
            for name in (*(t.name for t in produced(s)), *read(s)):
                mentioned[name].add(number)
    return {name for name, numbers in mentioned.items() if len(numbers) == 1}


def _bodies(body: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """Every body; what follows a variable bound to data is one of its own, as it is a scope of its own in the text."""
    part = list[Statement]()
    for s in body:
        part.append(s)
        if isinstance(s, Let):
            yield tuple(part)
            part = []
        for inner in children(s):
            yield from _bodies(inner)
    yield tuple(part)
