"""The body of a tiled contraction: the pipelined reduction loop of one output tile, and what is then stored.

    acc = 0
    for k.0 (pipelined): acc += dot(a_tile, b_tile)
    store out_tile = epilogue(acc), whole or cut into parts

Swapped, the accumulator is the transposed tile, (n, m): the dot's rows, of which there are at least 64 in a warp-group
dot, then lie along n, and a thin m costs no padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from search_spaces.expression import Affine
from search_spaces.knobs import Values
from search_spaces.lowering import Emitter, Names, start_of
from search_spaces.operand_copies import Operand
from search_spaces.structure import ContractionForm, accumulator_dtype
from search_spaces.tile_program import (
    Bound,
    Dot,
    Fill,
    For,
    Grid,
    GridAxis,
    Launch,
    Load,
    Slice,
    Split,
    Statement,
    Store,
    Tile,
)
from search_spaces.workload import Workload

Via = Literal["pointer", "descriptor"]
# The tiles of the reduction loop.
_OWN = ("acc", "a", "b", "a_tail", "b_tail")


@dataclass(frozen=True)
class DotTile:
    """One output tile of a contraction, and how its reduction is done, as the knobs of a schedule have it."""

    workload: Workload
    form: ContractionForm
    values: Values

    @property
    def splits(self) -> int:
        """Into how many parts the reduction is cut, each by a program of its own."""
        return self.values.integer("split_k")

    @property
    def streamed(self) -> bool:
        return self.values["grid"] == "stream_k"

    @property
    def has_tail(self) -> bool:
        """Whether the last of several steps along k reaches beyond its end."""
        steps, tile = self.values.tiling("k")
        return steps > 1 and self.form.k.extent % tile != 0

    @property
    def uneven(self) -> bool:
        """Whether some of the parts of the reduction have fewer steps than others."""
        return self.values.tiling("k")[0] % self.splits != 0

    @property
    def axes(self) -> tuple[str, str]:
        """Rows and columns of the accumulator."""
        m, n = self.form.m.name, self.form.n.name
        return (n, m) if self.values.flag("swap") else (m, n)

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.values.tile("m"), self.values.tile("n")
        return (n, m) if self.values.flag("swap") else (m, n)

    @property
    def extents(self) -> dict[str, int]:
        """How long the tiles are along every axis that they have."""
        return {self.form.k.name: self.values.tile("k"), **dict(zip(self.axes, self.shape, strict=True))}

    @property
    def accumulator(self) -> Tile:
        return Tile("acc", self.axes, self.shape, accumulator_dtype(self.workload))

    @property
    def place(self) -> dict[str, Slice]:
        """Where the output tile lies."""
        place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in self.form.batch}
        for axis, knob in ((self.form.m, "m"), (self.form.n, "n")):
            tile = self.values.tile(knob)
            place[axis.name] = Slice(start_of((f"{axis.name}.0", tile)), tile)
        return place

    def grid(self, units: int) -> Grid:
        """The output tiles, and the parts of the reduction, in the schedule's order."""
        values, form = self.values, self.form
        outer = [GridAxis(f"{x.name}.0", x.extent) for x in form.batch]
        outer += [GridAxis("k.split", self.splits)] if self.splits > 1 else []
        tiles = [GridAxis(f"{x.name}.0", values.tiling(k)[0]) for x, k in ((form.m, "m"), (form.n, "n"))]
        if values["order"] == "nm":
            tiles.reverse()
        size = values.integer("group")
        return Grid(
            (*outer, *tiles),
            group=(tiles[0].variable, size) if size > 1 else None,
            persistent=None if values["grid"] == "tiles" else units * values.integer("per_unit"),
            stream=("k.0", values.tiling("k")[0]) if self.streamed else None,
        )

    def launch(self) -> Launch:
        return Launch(
            num_warps=self.values.integer("warps"),
            num_stages=self.values.integer("stages"),
            num_ctas=self.values.integer("ctas"),
            max_registers=self.values.integer("max_registers"),
            producer_warps=int(self.values["specialize"] != "none"),
            alternating=self.values["specialize"] == "pingpong",
        )

    def accumulate(self, a: Operand, b: Operand) -> list[Statement]:
        """Sum up the products of the tile's rows and columns."""
        values, k = self.values, self.form.k
        steps, tile_k = values.tiling("k")
        turns = -(-steps // self.splits)
        start = start_of(("k.0", tile_k), ("k.split", turns * tile_k)) if self.splits > 1 else start_of(("k.0", tile_k))
        peeled = values["tail"] == "peeled"
        loop = For(
            "k.0",
            turns - peeled,
            self._step(a, b, "", Slice(start, tile_k)),
            pipeline_stages=values.integer("stages"),
            flatten=values["grid"] == "persistent_flat",
            bound=Bound(start, k.extent) if self.uneven else None,
        )
        body: list[Statement] = [Fill(self.accumulator, 0.0), loop]
        if peeled:
            body += self._step(a, b, "_tail", Slice(Affine(offset=(steps - 1) * tile_k), tile_k))
        return body

    def _step(self, a: Operand, b: Operand, suffix: str, along_k: Slice) -> tuple[Statement, ...]:
        """Load both operands at one place of the reduction, and add the products."""
        place = {**self.place, self.form.k.name: along_k}
        return (
            self._load(a, f"a{suffix}", place, self.values.word("a_load")),
            self._load(b, f"b{suffix}", place, self.values.word("b_load")),
            Dot(self.accumulator, f"a{suffix}", f"b{suffix}", self.form.k.name, _precision(self.workload)),
        )

    def _load(self, operand: Operand, name: str, place: dict[str, Slice], how: str) -> Load:
        pieces = [(x, place[x]) for x in operand.axes]
        via: Via = "descriptor"
        if how == "pointer":
            via = "pointer"
            # Rows beyond the end give rows of the output beyond its end, which are not stored. Along the last dimension
            # neighbours are loaded as vectors, which needs to know that they are neighbours.
            rows = {self.form.m.name, self.form.n.name} - {operand.axes[-1]}
            pieces = [(x, replace(s, clamped=True) if x in rows else s) for x, s in pieces]
        axes = tuple(x for x, s in pieces if s.extent is not None)
        extents = tuple(s.extent for _, s in pieces if s.extent is not None)
        return Load(Tile(name, axes, extents, operand.dtype), operand.buffer, tuple(s for _, s in pieces), via=via)

    def finish(self) -> list[Statement]:
        """Apply the epilogue to the accumulator and store the output."""
        names = Names(set(_OWN))
        dtypes = {t.name: t.dtype for t in self.workload.inputs}
        axes = tuple(x.name for x in self.form.contraction.axes)
        body: list[Statement] = []
        for part, place in self._parts(names, body):
            emitter = Emitter(place, dtypes, names, tiles={self.form.contraction.name: part})
            result = emitter.tile(self.form.result, "out")
            where = tuple(place[x] for x in axes)
            order = _order(result, place)
            body += [self._addressed(s) for s in emitter.body]
            body.append(Store(self.workload.output.name, where, result.name, via=self._via(), axes=order))
        return body

    def _addressed(self, s: Statement) -> Statement:
        """A statement of the epilogue; whole tiles that it loads come by descriptor where the schedule says so."""
        if isinstance(s, Load) and len(s.dst.axes) == len(self.axes) and self.values["epilogue_load"] == "descriptor":
            return replace(s, via="descriptor")
        return s

    def store_partial(self, buffer: str, index: Slice, atomic: bool) -> list[Statement]:
        """Store the accumulator to `buffer[index, batch …, m, n]`, or add it to what is there."""
        body: list[Statement] = []
        for part, place in self._parts(Names(set(_OWN)), body):
            where = (index, *(place[x.name] for x in self.form.contraction.axes))
            body.append(Store(buffer, where, part.name, via=self._via(), atomic=atomic, axes=_order(part, place)))
        return body

    def _via(self) -> Via:
        return "descriptor" if self.values["store"] == "descriptor" else "pointer"

    def _parts(self, names: Names, body: list[Statement]) -> Iterator[tuple[Tile, dict[str, Slice]]]:
        """The accumulator in parts along its columns, each with its place; the cuts are written to `body`."""
        column = self.axes[1]
        tiles = [self.accumulator]
        while len(tiles) < self.values.integer("parts"):
            halves = []
            for tile in tiles:
                shape = (tile.shape[0], tile.shape[1] // 2)
                first, second = (Tile(names.fresh("acc_part"), tile.axes, shape, tile.dtype) for _ in range(2))
                body.append(Split(first, second, tile.name, column))
                halves += [first, second]
            tiles = halves
        for position, tile in enumerate(tiles):
            width = tile.shape[1]
            start = self.place[column].start + Affine(offset=position * width)
            yield tile, {**self.place, column: Slice(start, width)}


def _order(tile: Tile, place: dict[str, Slice]) -> tuple[str, ...]:
    """The tile's axes in the order of the place, where that is another one than its own."""
    order = tuple(x for x in place if x in tile.axes)
    return () if order == tile.axes else order


def _precision(workload: Workload) -> Literal["ieee", "tf32", "fast"]:
    match workload.precision:
        case "tf32" | "fast" as precision:
            return precision
        case _:
            return "ieee"
