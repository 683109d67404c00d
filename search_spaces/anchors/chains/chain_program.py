"""State of a chain's program that all its statements share: tiles, names, and the loading of operands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.anchors.chains.chain_mask import mask_of
from search_spaces.anchors.chains.chain_tiles import ChainTile
from search_spaces.anchors.loops.loop_parts import Mask
from search_spaces.anchors.rows.moving import MovingFolds, Running
from search_spaces.anchors.rows.row_parts import folded_in
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import (
    Load,
    Statement,
    Store,
)
from search_spaces.programs.tiles import Tile
from search_spaces.structure.chains.chain import Chain
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    call,
)
from search_spaces.workloads.expressions.expression import Position as PositionOf
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.expressions.walking import variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis

_ROUNDED_BY = {dtype: operator for operator, dtype in ROUNDINGS.items()}


@dataclass(frozen=True)
class ChainProgram:
    """One program: its tiles, and the names and emitters of its statements."""

    tile: ChainTile
    names: Names

    @property
    def chain(self) -> Chain:
        return self.tile.chain

    @cached_property
    def mask(self) -> Mask:
        return mask_of(self.chain)

    @cached_property
    def folds(self) -> MovingFolds:
        return MovingFolds(self.chain.walk, self.names)

    @cached_property
    def running(self) -> Running:
        """The tiles of all folds."""
        self.names.taken.update(f.name for f in self.chain.walk.folds)
        sizes = self.tile.statistic("")
        folds = {
            f.name: Tile(f.name, (), ()) if f.counts else self.tile.statistic(f.name, folded_in(f.stage))
            for f in self.chain.walk.folds
        }
        return folds | {n: replace(sizes, name=self.names.fresh(n)) for n in self.folds.held}

    @cached_property
    def points(self) -> Mapping[str, Tile]:
        """The tiles of the inner products, the same in all loops, and of the products in `Chain.beside`."""
        m, found = {self.chain.m.name: self.tile.values.tile("m")}, {}
        for product in (*self.chain.inner, *self.chain.beside):
            axes = {**m, **{x.name: self.tile.depth(x) for x in product.carried}}
            axes |= {} if product.carried else {self.chain.c.name: self.tile.width}
            name = self.names.fresh(f"{product.stage}_points")
            found[product.stage] = Tile(name, tuple(axes), tuple(axes.values()))
        return found

    def emitter(self) -> Emitter:
        """An emitter at the rows, and at the columns of an iteration."""
        dtypes = {t.name: t.dtype for t in self.chain.workload.inputs}
        return Emitter(self.tile.place, dtypes, self.names)

    def moved(self, s: Statement, knob: str, tensors: Collection[str]) -> Statement:
        """A statement with its addressing: whole tiles of these tensors by descriptor if the schedule says so."""
        if not isinstance(s, Load | Store) or s.buffer not in tensors or self.tile.values[knob] != "descriptor":
            return s
        return replace(s, via="descriptor") if sum(piece.extent is not None for piece in s.slices) > 1 else s

    def operand(self, e: Expression, dtype: str, reaches: bool = False) -> Expression:
        """The operand of a dot: 0 beyond the ends of the summed axes, and rounded to the dot's element type.

        Elements loaded beyond an end are 0, but values computed from them need not be, nor be finite.
        """
        if isinstance(e, Access):
            return e
        rounding = _ROUNDED_BY.get(dtype)
        if isinstance(e, Apply) and e.operator == rounding:
            (e,) = e.arguments
        ends = [x for x in self.chain.depths if x.extent % self.tile.depth(x)] + [self.chain.c] * reaches
        beyond = [x for x in ends if x.name in variables(e)]
        if isinstance(e, Gather) and not beyond:
            return e
        for axis in beyond:
            e = inside(e, axis, 0.0)
        return call(rounding, e) if rounding else e


def inside(e: Expression, axis: Axis, outside: float | int) -> Expression:
    """The expression where the axis has a position, and `outside` beyond its end."""
    here = call("lt", PositionOf(axis_index(axis.name)), Literal(float(axis.extent)))
    return call("where", here, e, Integer(outside) if isinstance(outside, int) else Literal(outside))
