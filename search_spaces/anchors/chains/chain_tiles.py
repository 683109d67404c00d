"""Positions of the tiles of a chain: the rows of one program, its loop over the streamed axes, and the grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from search_spaces.anchors.chains.chain_mask import mask_of
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import start_of
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values, padded
from search_spaces.structure.chains.chain import Chain
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.workload import Axis


@dataclass(frozen=True)
class ChainTile:
    """The rows of one program and its loop, for the knobs of a schedule.

    `portion`: positions of the carried axis in one program, if these are not all.
    """

    chain: Chain
    values: Values
    portion: int = 0

    @property
    def splits(self) -> int:
        """Number of programs that share the loop of some rows (split-K)."""
        return self.values.integer("split")

    @property
    def width(self) -> int:
        """Columns of a tile: positions of the streamed axis that tiles lie along."""
        return self.values.tile("c")

    @property
    def steps(self) -> int:
        """Iterations of a program along the streamed axis that tiles lie along."""
        return -(-self.values.tiling("c")[0] // (1 if self.chain.walked[:-1] else self.splits))

    @property
    def even(self) -> bool:
        """True if the loop needs no mask at the end: tiles end there, or rows see nothing beyond it."""
        return self.chain.c.extent % self.width == 0 or mask_of(self.chain).ends

    @property
    def at_once(self) -> bool:
        """True if the whole streamed axis is in one tile, and there is no producer warp."""
        whole = self.values.tiling("c")[0] == 1 and len(self.chain.walked) == 1
        return whole and self.values["specialize"] == "none"

    @property
    def flat(self) -> bool:
        """True if one loop streams everything: the outer one, if tiles have all columns and a producer loads them."""
        whole = self.values.tiling("c")[0] == 1 and self.values["specialize"] != "none"
        return whole and len(self.chain.walked) == 2

    @property
    def share(self) -> int:
        """Iterations of a program in the outermost loop."""
        return -(-self.chain.walked[0].extent // self.splits) if self.chain.walked[:-1] else self.steps

    @property
    def iterations(self) -> dict[str, int]:
        """Iterations of the loop over each of the streamed axes, within a program."""
        first, *others = self.chain.walked[:-1] or (self.chain.c,)
        return {x.name: x.extent for x in others} | {self.chain.c.name: self.steps, first.name: self.share}

    @property
    def columns(self) -> Slice:
        """Slice of an iteration's columns."""
        if self.at_once or self.flat:
            return Slice(Affine(), self.width, self.chain.c.name)
        parts = (("c.split", self.steps * self.width),) if self.splits > 1 and not self.chain.walked[:-1] else ()
        return Slice(start_of(("c.0", self.width), *parts), self.width, self.chain.c.name)

    @cached_property
    def rows(self) -> dict[str, Slice]:
        """Slices of the rows."""
        place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in self.chain.outer}
        count, height = self.values.tiling("m")
        if self.values["direction"] == "ascending":
            start = start_of(("m.0", height))
        else:
            start = Affine.of(("m.0", -height), offset=(count - 1) * height)
        return {**place, self.chain.m.name: Slice(start, height, self.chain.m.name)}

    @cached_property
    def place(self) -> dict[str, Slice]:
        """Slices of all axes in an iteration: rows, columns, and all of the summed or carried axes."""
        around = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in self.chain.walked[:-1]}
        if around and self.splits > 1:
            dealt = self.chain.walked[0].name
            around[dealt] = Slice(start_of((f"{dealt}.0", 1), ("c.split", self.share)))
        depths = {x.name: Slice(self._begin(x), self.depth(x), x.name) for x in self.chain.depths}
        return {**self.rows, **around, self.chain.c.name: self.columns, **depths}

    def depth(self, axis: Axis) -> int:
        """Length of tiles along a summed or carried axis."""
        if axis in self.looped:
            return self.values.tile("d")
        return self.piece if axis in self.cut else padded(max(axis.extent, 16))

    @property
    def piece(self) -> int:
        """Positions of the carried axis in one program; 0 if it has all of them."""
        return self.portion or (self.values.tile("e") if "e" in self.values else 0)

    def _begin(self, axis: Axis) -> Affine:
        return start_of((f"{axis.name}.0", self.piece)) if axis in self.cut else Affine()

    @property
    def cut(self) -> tuple[Axis, ...]:
        """The carried axis that is divided among programs."""
        return tuple(x for p in self.chain.carried.values() for x in p.carried)[:1] if self.piece else ()

    @property
    def looped(self) -> tuple[Axis, ...]:
        """The axis of the inner products that has a loop of its own."""
        return tuple(x for p in self.chain.inner for x in p.summed if self.values.tiling("d")[0] > 1)[:1]

    def grid(self) -> Grid:
        """All tiles of rows, and the parts of a split loop, if any."""
        rows = GridAxis("m.0", self.values.tiling("m")[0])
        outer = [GridAxis(f"{x.name}.0", x.extent) for x in self.chain.outer]
        axes = [*outer, rows, *([GridAxis("c.split", self.splits)] if self.splits > 1 else [])]
        axes += [GridAxis(f"{x.name}.0", -(-x.extent // self.piece)) for x in self.cut]
        return Grid(tuple(axes))

    def statistic(self, name: str, dtype: str = "float32") -> Tile:
        """The running value of a fold: one number per row, or for each of what it carries."""
        carried = self.chain.carried[name].carried if name in self.chain.carried else ()
        sizes = {self.chain.m.name: self.values.tile("m"), **{x.name: self.depth(x) for x in carried}}
        return Tile(name, tuple(sizes), tuple(sizes.values()), dtype)
