"""Pieces of the streamed axes on a CPU, one after the other: all of them, or those that a mask leaves.

    for c0.0 in 64: marks[c0.0] = max of load kept[b.0, c0.0]          once for a program, in private memory
    for c0.0 in 64 where marks:                                        in every loop over the pieces
      for c.0 in 2: …

    let end0 = min of begin[m.0*64 : +64]; let end1 = max of …         if a mask is a range whose ends are data
    for c.0 in 64, of use where end0 - c.0*128 < 128 and …

A piece is one position of every streamed axis but the last, and a part of that one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.anchors.chains.chain_mask import mask_of
from search_spaces.anchors.chains.masked_loops import conditions_along, marked_along, streamed_along
from search_spaces.anchors.loops.loop_parts import Mask, failing, ruled_out
from search_spaces.anchors.loops.range_ends import bound
from search_spaces.decisions.loops.skipping import is_skipping
from search_spaces.programs.lowering import Emitter, start_of
from search_spaces.programs.statements import For, Let, Load, Reduce, Statement, Store
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.chains.chain import Chain
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Expression, mul
from search_spaces.workloads.expressions.walking import variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis


def is_in_pieces(chain: Chain, values: Values) -> bool:
    """True if all parts of a program loop over pieces of the streamed axes."""
    return len(chain.walked) > 1 or is_skipping(values)


@functools.lru_cache(256)
def ranged_out(chain: Chain) -> frozenset[Expression]:
    """Conditions that bound the pieces of use by ranges whose ends are data; none if these bound nothing.

    What is folded of a row's positions outside is to be the same for all conditions that leave these out: it is where
    folds start, so that rows of which nothing is left have the values of those whose positions are all masked.
    """
    mask = mask_of(chain)
    if not mask.ranged or len(chain.walked) > 1:
        return frozenset()
    bodies = [
        *(f.expression for f in chain.folds if f.name not in chain.carried),
        *(p.a for p in chain.carried.values()),
    ]
    found = [failing(e, mask.guards, mask.online | mask.ranged) for e in bodies]
    alike = all(len({ruled_out(e, c) for c in conditions}) == 1 for e, conditions in zip(bodies, found, strict=True))
    return frozenset.union(*found) if alike else frozenset()


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
    def _marked(self) -> dict[str, list[Expression]]:
        """Conditions of the iterations that run, by axis, without those that ranges replace; empty if all run."""
        if not is_skipping(self.values):
            return {}
        return marked_along(self.chain) if ranged_out(self.chain) else conditions_along(self.chain)

    @cached_property
    def conditions(self) -> dict[str, Expression]:
        """Condition of the iterations that run, by axis; empty if all do."""
        return {axis: functools.reduce(mul, found) for axis, found in self._marked.items()}

    @cached_property
    def known(self) -> frozenset[Expression]:
        """Conditions that hold everywhere in a piece."""
        known = (e for found in self._marked.values() for e in found)
        along = {e: streamed_along(self.chain, e) for e in known}
        return frozenset(e for e, axes in along.items() if len(axes) == 1 and self.chain.c not in axes)

    def ruled_out(self, e: Expression) -> Expression:
        """The expression in a fully masked piece; unchanged if all pieces run."""
        ranged = [c for c in ranged_out(self.chain) if is_skipping(self.values)]
        conditions = [*(c for found in self._marked.values() for c in found), *ranged]
        return next((out for c in conditions if (out := ruled_out(e, c)) != e), e)

    @cached_property
    def _mask(self) -> Mask:
        """The mask that bounds the loops over pieces."""
        mask = mask_of(self.chain)
        ranged = is_skipping(self.values) and ranged_out(self.chain)
        return replace(mask, forms=mask.forms | mask.online | mask.ranged) if ranged else mask

    @cached_property
    def _ends(self) -> tuple[dict[str, Slice], list[Statement]]:
        """The place of the ends of ranges, and the statements that bind them for the program's rows, and keep them."""
        rows, ends = self._emitter(self.rows), self._mask.guards.ends
        place = bound(self._mask.forms, ends, rows)
        m = self.chain.m.name
        kept = [
            (self.ends[e.expression], rows.tile(e.expression, "end"))
            for e in ends.values()
            if e.expression in self.ends
        ]
        of_rows = Slice(Affine(), self.rows[m].extent, m)
        stores = [Store(buffer.name, (of_rows,), tile.name) for buffer, tile in kept]
        lets = [s for s in rows.body if isinstance(s, Let)]
        return place, [*(s for s in rows.body if not isinstance(s, Let)), *stores, *lets]

    @cached_property
    def ends(self) -> dict[Expression, Buffer]:
        """Private memory for the ends of ranges of every row, by expression; folds read them there."""
        bounding = {v for form in self._mask.forms for v in form.axes}
        m, height = self.chain.m.name, self.rows[self.chain.m.name].extent or 1
        differing = [e for v, e in self._mask.guards.ends.items() if v in bounding and m in variables(e.expression)]
        return {e.expression: Buffer(self.names.fresh("ends_of_rows"), (height,), "int64", "own") for e in differing}

    def _emitter(self, place: Mapping[str, Slice]) -> Emitter:
        return Emitter(place, {t.name: t.dtype for t in self.chain.workload.inputs}, self.names)

    @cached_property
    def marks(self) -> dict[str, Buffer]:
        """Private block masks, by axis."""
        extents = {axis.name: count for axis, _, count in self.loops}
        return {x: Buffer(self.names.fresh(f"{x}_marks"), (extents[x],), "bool", "own") for x in self.conditions}

    def marking(self) -> list[Statement]:
        """Bind the ends of ranges, and compute the block masks, once for all loops."""
        return [*self._ends[1], *(self._marking(axis, condition) for axis, condition in self.conditions.items())]

    def _marking(self, axis: str, condition: Expression) -> For:
        variable, count = next((v, n) for x, v, n in self.loops if x.name == axis)
        inner = [x for x in streamed_along(self.chain, condition) if x.name != axis]
        place = {**self.rows, **self.place, **{x.name: Slice(Affine(), x.extent, x.name) for x in inner}}
        if not inner and place[axis].extent is None:
            # The CPU's passes are over columns: here of one position.
            place[axis] = Slice(start_of((variable, 1)), 1, axis)
        emitter = self._emitter(place)
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
                place = {**self.rows, **self.place, **inner, **self._ends[0]}
                loop = replace(loop, useful=self._mask.useful(place, variable))
            if axis.name in self.marks:
                buffer = self.marks[axis.name]
                slices = (Slice(Affine(), count, axis.name),)
                tile = Tile.along(slices, self.names.fresh("marks"), buffer.dtype)
                loads.append(Load(tile, buffer.name, slices))
                loop = replace(loop, marks=tile.name)
            made = (loop,)
        return [*loads, *made]
