"""The output tile of a contraction: its place, its program, and its accumulators in subtiles.

Swapped, accumulators are transposed tiles, (n, m): the rows of a dot, of which there are at least 64 in a warp-group
dot, then lie along n, and a thin m costs no padding. With several positions of the batch, accumulators are (b, m, n).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.anchors.contractions.batch_tiles import batch_axis, batch_tile
from search_spaces.anchors.contractions.class_tiles import ClassTiles, class_tiles
from search_spaces.decisions.memory.transfers import is_by_pointers
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.halos import HALO
from search_spaces.programs.lowering import start_of
from search_spaces.programs.statements import Load, Split, Statement, Store
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names


@dataclass(frozen=True)
class OutputTile:
    """A tile of the outputs, by the knobs m, n, swap, subtiles and epilogue_load."""

    form: Contraction
    values: Values

    @property
    def axes(self) -> tuple[str, str]:
        """Rows and columns of the accumulators."""
        m, n = self.form.m.name, self.form.n.name
        return (n, m) if self.values.flag("swap") else (m, n)

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.values.tile("m"), self.values.tile("n")
        return (n, m) if self.values.flag("swap") else (m, n)

    @cached_property
    def batch(self) -> dict[str, int]:
        """Positions of the tile along an axis of the batch, if it has several."""
        size = batch_tile(self.values)
        return {batch_axis(self.form).name: size} if size > 1 else {}

    @property
    def all_axes(self) -> tuple[str, ...]:
        """The axes of the accumulators: of the batch, rows and columns."""
        return (*self.batch, *self.axes)

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Positions of the accumulators along each of their axes."""
        return (*self.batch.values(), *self.shape)

    @cached_property
    def classes(self) -> dict[str, ClassTiles]:
        """The tiles of rows and of columns, by their axes."""
        return {x.name: class_tiles(self.form, self.values, k) for x, k in ((self.form.m, "m"), (self.form.n, "n"))}

    def start(self, axis: str) -> Affine:
        """Start of the tile in its rows or in its columns."""
        return start_of((f"{axis}.0", self.classes[axis].size))

    @property
    def place(self) -> dict[str, Slice]:
        """Slices of the tile, by axis of the outputs."""
        place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in self.form.axes}
        place |= {x: Slice(start_of((f"{x}.0", size)), size, x) for x, size in self.batch.items()}
        for axis, tiles in self.classes.items():
            place.update(tiles.place(self.start(axis)))
        return place

    def grid(self, shares: Sequence[GridAxis]) -> Grid:
        """All tiles, once for each of the `shares` of their reduction."""
        within = {x for tiles in self.classes.values() if tiles.ranged for x in tiles.axes}
        counts = {axis: count for tiles in self.classes.values() for axis, count in tiles.counts.items()}
        counts |= {x.name: -(-x.extent // self.batch[x.name]) for x in self.form.batch if x.name in self.batch}
        around = [x for x in self.form.outer if x not in within]
        if HALO in (self.values.get("a_load"), self.values.get("b_load")):
            # Groups of channels of the same pixels run together: a halo has a part of their lines each.
            around.sort(key=lambda x: x in self.form.batch)
        outer = [*(GridAxis(f"{x.name}.0", counts.get(x.name, x.extent)) for x in around), *shares]
        return Grid((*outer, *(GridAxis(f"{axis}.0", tiles.count) for axis, tiles in self.classes.items())))

    def subtiles(
        self, accumulators: Sequence[Tile], names: Names, body: list[Statement]
    ) -> Iterator[tuple[list[Tile], dict[str, Slice]]]:
        """The accumulators in parts along their columns, each with its place; the cuts are written to `body`."""
        column = self.axes[-1]
        cut = [self._pieces(tile, column, names, body) for tile in accumulators]
        for position, tiles in enumerate(zip(*cut, strict=True)):
            width = tiles[0].shape[-1]
            first = Affine(offset=position * width)
            yield (
                list(tiles),
                {x: piece.part(first, width) if piece.axis == column else piece for x, piece in self.place.items()},
            )

    def _pieces(self, accumulator: Tile, column: str, names: Names, body: list[Statement]) -> list[Tile]:
        tiles = [accumulator]
        while len(tiles) < self.values.integer("subtiles"):
            halves = []
            for tile in tiles:
                shape, wanted = (*tile.shape[:-1], tile.shape[-1] // 2), f"{accumulator.name}_part"
                first, second = (Tile(names.fresh(wanted), tile.axes, shape, tile.dtype) for _ in range(2))
                body.append(Split(first, second, tile.name, column))
                halves += [first, second]
            tiles = halves
        return tiles

    def addressed(self, s: Statement) -> Statement:
        """A statement of the epilogue; it loads whole tiles by descriptor if the schedule says so."""
        if (
            isinstance(s, Load)
            and len(s.dst.axes) == len(self.all_axes)
            and self.values["epilogue_load"] == "descriptor"
        ):
            return replace(s, via="descriptor")
        return s

    def store(
        self, buffer: str, tile: Tile, place: dict[str, Slice], index: Sequence[Slice] = (), atomic: bool = False
    ) -> Store:
        """Store to `buffer[index…, axes…]`, or add there."""
        where = (*index, *place.values())
        return Store(buffer, where, tile.name, atomic=atomic)


def loaded(load: Load, how: str, free: Collection[str]) -> Load:
    """The load of a tile of an operand, by descriptor or by pointers; `free` are the axes that are not reduced."""
    if not is_by_pointers(how):
        return replace(load, via="im2col" if how == "im2col" else "descriptor")
    if load.guarded:
        return load
    # Rows beyond the end give rows of the output beyond its end, which are not stored. The last dimension is loaded in
    # vectors, for which the compiler must see neighbours.
    rows = {*free} - {load.slices[-1].axis}
    return replace(load, slices=tuple(replace(s, clamped=True) if s.axis in rows else s for s in load.slices))
