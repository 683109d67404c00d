"""The body of a tiled contraction: the pipelined reduction loop of one output tile, and what is then stored.

acc = 0
for k.0 (pipelined): acc += dot(a_tile, b_tile)
store out_tile = epilogue(acc), whole or cut into subtiles
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from search_spaces.programs.lowering import Emitter, Names, start_of
from search_spaces.programs.tile_program import (
    Bound,
    Dot,
    Fill,
    For,
    Grid,
    GridAxis,
    Launch,
    Load,
    Slice,
    Statement,
    Tile,
)
from search_spaces.schedules.knobs import Values
from search_spaces.sketches.dots.operand_copies import Operand
from search_spaces.sketches.dots.output_tiles import OutputTile, loaded
from search_spaces.structure.forms import ContractionForm, accumulator_dtype
from search_spaces.workloads.expression import Affine
from search_spaces.workloads.workload import Workload

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
    def shared(self) -> bool:
        """Whether several programs share the reduction of a tile."""
        return self.splits > 1 or self.streamed

    @property
    def has_tail(self) -> bool:
        """Whether the last of several steps along k reaches beyond its end."""
        steps, tile = self.values.tiling("k")
        return steps > 1 and self.form.k.extent % tile != 0

    @property
    def uneven(self) -> bool:
        """Whether some of the parts of the reduction have fewer steps than others."""
        return self.values.tiling("k")[0] % self.splits != 0

    @cached_property
    def output(self) -> OutputTile:
        return OutputTile(self.form.batch, self.form.m, self.form.n, self.values)

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns the accumulator has."""
        return self.output.shape

    @property
    def extents(self) -> dict[str, int]:
        """How long the tiles are along every axis that they have."""
        return {self.form.k.name: self.values.tile("k"), **dict(zip(self.output.axes, self.shape, strict=True))}

    @property
    def accumulator(self) -> Tile:
        return Tile("acc", self.output.axes, self.shape, accumulator_dtype(self.workload))

    def grid(self, num_sms: int) -> Grid:
        """The output tiles, and the parts of the reduction, in the schedule's order."""
        values = self.values
        return self.output.grid(
            [GridAxis("k.split", self.splits)] if self.splits > 1 else [],
            persistent=None if values["grid"] == "tiles" else num_sms * values.integer("per_sm"),
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
        iterations = -(-steps // self.splits)
        start = (
            start_of(("k.0", tile_k), ("k.split", iterations * tile_k))
            if self.splits > 1
            else start_of(("k.0", tile_k))
        )
        peeled = values["tail"] == "peeled"
        loop = For(
            "k.0",
            iterations - peeled,
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
        place = {**self.output.place, self.form.k.name: along_k}
        return (
            self._load(a, f"a{suffix}", place, self.values.word("a_load")),
            self._load(b, f"b{suffix}", place, self.values.word("b_load")),
            Dot(self.accumulator, f"a{suffix}", f"b{suffix}", self.form.k.name, precision_of(self.workload)),
        )

    def _load(self, operand: Operand, name: str, place: dict[str, Slice], how: str) -> Load:
        pieces = [(x, place[x]) for x in operand.axes]
        axes = tuple(x for x, s in pieces if s.extent is not None)
        extents = tuple(s.extent for _, s in pieces if s.extent is not None)
        load = Load(Tile(name, axes, extents, operand.dtype), operand.buffer, tuple(s for _, s in pieces))
        return loaded(load, how, self.output.axes)

    def finish(self) -> list[Statement]:
        """Apply the epilogue to the accumulator and store the output."""
        names = Names(set(_OWN))
        dtypes = {t.name: t.dtype for t in self.workload.inputs}
        body: list[Statement] = []
        for (part,), place in self.output.subtiles([self.accumulator], names, body):
            emitter = Emitter(place, dtypes, names, tiles={self.form.contraction.name: part})
            result = emitter.tile(self.form.result, "out")
            body += [self.output.addressed(s) for s in emitter.body]
            body.append(self.output.store(self.workload.output.name, result, place))
        return body

    def store_partial(self, buffer: str, index: Slice, atomic: bool) -> list[Statement]:
        """Store the accumulator to `buffer[index, batch …, m, n]`, or add it to what is there."""
        body: list[Statement] = []
        for (part,), place in self.output.subtiles([self.accumulator], Names(set(_OWN)), body):
            body.append(self.output.store(buffer, part, place, [index], atomic))
        return body


def precision_of(workload: Workload) -> Literal["ieee", "tf32", "fast"]:
    """The precision of the workload's dots."""
    match workload.precision:
        case "tf32" | "fast" as precision:
            return precision
        case _:
            return "ieee"
