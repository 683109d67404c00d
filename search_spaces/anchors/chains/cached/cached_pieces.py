"""Pieces of the streamed axes on a CPU, one after the other: all of them, or those that a mask leaves.

    for c0.0 in 64: marks[c0.0] = max of load kept[b.0, c0.0]          once for a program, in private memory
    for c0.0 in 64 where marks:                                        in every loop over the pieces
      for c.0 in 2: …

A piece is one position of every streamed axis but the last, and a part of that one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.anchors.chains.chain_mask import mask_of
from search_spaces.anchors.chains.masked_loops import conditions_along, streamed_along
from search_spaces.anchors.loops.loop_parts import ruled_out
from search_spaces.decisions.loops.skipping import is_skipping
from search_spaces.programs.lowering import Emitter, start_of
from search_spaces.programs.statements import For, Load, Reduce, Statement, Store
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.chains.chain import Chain
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Expression, mul
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis


def is_in_pieces(chain: Chain, values: Values) -> bool:
    """True if all parts of a program loop over pieces of the streamed axes."""
    return len(chain.walked) > 1 or is_skipping(values)


@dataclass(frozen=True)
class Pieces:
    """The pieces of one program; `rows`: slices of its rows, and of the axes of which it has one position."""

    chain: Chain
    values: Values
    rows: Mapping[str, Slice]
    names: Names

    @cached_property
    def loops(self) -> tuple[tuple[Axis, str, int], ...]:
        """Axis, variable and iterations of the loops, the outermost first."""
        around = tuple((x, f"{x.name}.0", x.extent) for x in self.chain.walked[:-1])
        return (*around, (self.chain.c, "c.0", self.values.tiling("c")[0]))

    @cached_property
    def place(self) -> dict[str, Slice]:
        """Slices of a piece's positions."""
        length, c = self.values.tile("c"), self.chain.c.name
        around = {x.name: Slice(start_of((variable, 1))) for x, variable, _ in self.loops[:-1]}
        return {**around, c: Slice(start_of(("c.0", length)), length, c)}

    @property
    def cached(self) -> Slice:
        """The same slices in private memory, where the streamed axes are one."""
        length, c = self.values.tile("c"), self.chain.c.name
        terms, apart = [("c.0", length)], self.chain.c.extent
        for axis, variable, _ in reversed(self.loops[:-1]):
            terms.append((variable, apart))
            apart *= axis.extent
        return Slice(start_of(*terms), length, c)

    @cached_property
    def conditions(self) -> dict[str, Expression]:
        """Condition of the iterations that run, by axis; empty if all do."""
        if not is_skipping(self.values):
            return {}
        return {axis: functools.reduce(mul, found) for axis, found in conditions_along(self.chain).items()}

    @cached_property
    def known(self) -> frozenset[Expression]:
        """Conditions that hold everywhere in a piece."""
        known = (e for found in conditions_along(self.chain).values() for e in found if self.conditions)
        along = {e: streamed_along(self.chain, e) for e in known}
        return frozenset(e for e, axes in along.items() if len(axes) == 1 and self.chain.c not in axes)

    def ruled_out(self, e: Expression) -> Expression:
        """The expression in a fully masked piece; unchanged if all pieces run."""
        conditions = [c for found in conditions_along(self.chain).values() for c in found if self.conditions]
        return ruled_out(e, conditions[0]) if conditions else e

    @cached_property
    def marks(self) -> dict[str, Buffer]:
        """Private block masks, by axis."""
        extents = {axis.name: count for axis, _, count in self.loops}
        return {x: Buffer(self.names.fresh(f"{x}_marks"), (extents[x],), "bool", "own") for x in self.conditions}

    def marking(self) -> list[Statement]:
        """Compute the block masks, once for all loops."""
        return [self._marking(axis, condition) for axis, condition in self.conditions.items()]

    def _marking(self, axis: str, condition: Expression) -> For:
        variable, count = next((v, n) for x, v, n in self.loops if x.name == axis)
        inner = [x for x in streamed_along(self.chain, condition) if x.name != axis]
        place = {**self.rows, **self.place, **{x.name: Slice(Affine(), x.extent, x.name) for x in inner}}
        if not inner and place[axis].extent is None:
            # The CPU's passes are over columns: here of one position.
            place[axis] = Slice(start_of((variable, 1)), 1, axis)
        dtypes = {t.name: t.dtype for t in self.chain.workload.inputs}
        emitter = Emitter(place, dtypes, self.names)
        points = emitter.tile(condition, "kept")
        (along,) = points.axes
        mark = Tile(self.names.fresh("mark"), (), ())
        store = Store(self.marks[axis].name, (Slice(start_of((variable, 1))),), mark.name)
        return For(variable, count, (*emitter.body, Reduce(mark, points.name, along, "max"), store))

    def each(self, body: Sequence[Statement]) -> list[Statement]:
        """The body for every piece."""
        loads: list[Statement] = []
        made = tuple(body)
        for number, (axis, variable, count) in reversed([*enumerate(self.loops)]):
            loop = For(variable, count, made)
            if number == 0:
                inner = {x.name: Slice(Affine(), x.extent, x.name) for x, _, _ in self.loops[1:]}
                place = {**self.rows, **self.place, **inner}
                loop = replace(loop, useful=mask_of(self.chain).useful(place, variable))
            if axis.name in self.marks:
                buffer = self.marks[axis.name]
                slices = (Slice(Affine(), count, axis.name),)
                tile = Tile.along(slices, self.names.fresh("marks"), buffer.dtype)
                loads.append(Load(tile, buffer.name, slices))
                loop = replace(loop, marks=tile.name)
            made = (loop,)
        return [*loads, *made]
