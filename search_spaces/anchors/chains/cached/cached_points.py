"""The body of a chain on a CPU: points of an inner product, folds of their rows, and a product of their results.

The results of each part are private memory for the next: the points of the program's rows, and the folded values of
every row. If there are several streamed axes, or a mask rules out some positions, all parts loop over pieces
(`cached_pieces`):

    for pieces: points = dot(rows, piece of k)
    for pieces: top = max(top, max of points);  for pieces: points = exp(points - top);  total += sum of points
    sums = 0;  for pieces: sums += dot(points, piece of v)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.anchors.chains.cached.cached_folds import CachedFolds
from search_spaces.anchors.chains.cached.cached_pieces import Pieces, is_in_pieces
from search_spaces.anchors.chains.chain_mask import mask_of
from search_spaces.anchors.loops.loop_parts import Mask
from search_spaces.decisions.memory.packing import IN_PLACE, PANELS
from search_spaces.programs.lowering import Emitter, slices_at, start_of
from search_spaces.programs.statements import Dot, Fill, For, If, Let, Load, Map, Statement, Store, View
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Bound, Panels, Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.chains.chain import Chain, ChainedProduct
from search_spaces.structure.operand_maps import OperandMap
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Position, call
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis

# Rows are padded by a vector, so that they do not all begin in one cache set.
_PADDING = 16
# The variable of a program's first row, where it is no multiple of their number.
_FIRST_ROW = "m.first"


@dataclass(frozen=True)
class _Operand:
    """One side of a product: a tile in a buffer, and its packing, if any."""

    load: Load
    axis: str

    def panel(self, name: str, start: Affine, width: int) -> View:
        """A panel of this width along the operand's own axis, over all summed positions."""
        tile = self.load.dst
        slices = tuple(
            Slice(start, width, x) if x == self.axis else Slice(Affine(), tile.extent(x), x) for x in tile.axes
        )
        return View(Tile.along(slices, name, tile.dtype), tile.name, slices)


@dataclass(frozen=True)
class CachedPoints:
    """One program of a chain, with the rows and register tiles of these values."""

    chain: Chain
    values: Values

    @property
    def height(self) -> int:
        return self.values.tile("m")

    @property
    def inner(self) -> ChainedProduct:
        (product,) = self.chain.inner
        return product

    @property
    def carried(self) -> ChainedProduct:
        (product,) = self.chain.carried.values()
        return product

    @cached_property
    def names(self) -> Names:
        taken = {t.name for t in self.chain.workload.inputs} | {s.name for s in self.chain.workload.stages}
        return Names(taken)

    @cached_property
    def points(self) -> Buffer:
        return self._matrix("points", math.prod(x.extent for x in self.chain.walked))

    @cached_property
    def sums(self) -> Buffer:
        """The sums of the carried product, if the streamed axis comes in pieces."""
        return self._matrix("sums", self.carried.carried[0].extent)

    def _matrix(self, name: str, columns: int) -> Buffer:
        if columns % _PADDING == 0:
            return Buffer(self.names.fresh(name), (self.height, columns + _PADDING), "float32", "own")
        # Tiles beyond the last column are moved back.
        strides = (-(-columns // _PADDING) * _PADDING + _PADDING, 1)
        return Buffer(self.names.fresh(name), (self.height, columns), "float32", "own", strides)

    @cached_property
    def pieces(self) -> Pieces | None:
        """The pieces that all parts loop over; None if only the carried product does, or none."""
        if not is_in_pieces(self.chain, self.values):
            return None
        return Pieces(self.chain, self.values, self._place(), self.names)

    @property
    def cut(self) -> bool:
        """True if the carried product takes the streamed axis in several pieces."""
        return self.pieces is not None or self.values.tiling("c")[0] > 1

    @property
    def walked(self) -> dict[str, Slice]:
        """Slices of the streamed axes in an iteration."""
        return {self.chain.c.name: _whole(self.chain.c)} if self.pieces is None else self.pieces.place

    @property
    def cached(self) -> Slice:
        """Slice of an iteration's points in private memory."""
        return _whole(self.chain.c) if self.pieces is None else self.pieces.cached

    @cached_property
    def folds(self) -> CachedFolds:
        return CachedFolds(self.chain, self.names, self.points.name, self._place(), self.height, self.pieces)

    @property
    def folded(self) -> Mapping[str, Buffer]:
        """Buffers of the program for the folded values of every row that results need."""
        return self.folds.kept

    @property
    def own(self) -> tuple[Buffer, ...]:
        own = (self.points, *([self.sums] if self.cut else []), *self.folded.values())
        if self.pieces is None:
            return own
        first = [] if self.folds.first is None else [self.folds.first]
        return (*own, *first, *self.pieces.marks.values(), *self.pieces.ends.values())

    def body(self) -> tuple[Statement, ...]:
        """The three parts, one after the other."""
        marking = [] if self.pieces is None else self.pieces.marking()
        summed = self._summed_in_pieces if self.cut else self._summed
        return (*self._bound(), *marking, *self._multiplied(), *self.folds.statements(), *summed())

    @property
    def _is_even(self) -> bool:
        """True if programs have rows of their own; else the last one begins where its rows end with all."""
        return self.chain.m.extent % self.height == 0

    def _bound(self) -> list[Statement]:
        """Bind the first of the program's rows where the grid does not give it."""
        if self._is_even:
            return []
        m, last = self.chain.m, self.chain.m.extent - self.height
        rows = Emitter({m.name: Slice(start_of(("m.0", self.height)))}, {}, self.names)
        at = call("to_integer", Position(axis_index(m.name)))
        first = rows.tile(call("minimum", at, Integer(last)), "first")
        return [*rows.body, Let(_FIRST_ROW, last + 1, first.name)]

    @property
    def _first_row(self) -> Affine:
        return start_of(("m.0", self.height) if self._is_even else (_FIRST_ROW, 1))

    def _place(self, **tiles: Slice) -> dict[str, Slice]:
        """Slices of the program's rows, or others that are given, and of other axes."""
        outer = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in self.chain.outer}
        m = self.chain.m.name
        return {**outer, m: Slice(self._first_row, self.height, m), **tiles}

    def _own_rows(self, start: Affine, extent: int) -> Slice:
        """Rows of the program's private memory."""
        return Slice(start, extent, self.chain.m.name)

    def _multiplied(self) -> list[Statement]:
        """The points: column panels of the streamed operand, row panels of the rows, and the register tile of both."""
        rows, columns = self.values.tiling("inner_register")
        place = self._place(**self.walked, **{x.name: _whole(x) for x in self.inner.summed})
        a = self._operand(self.inner.a, place, self.chain.m, self._packing("pack_rows", self.chain.m, rows))
        count = -(-(self.cached.extent or 1) // columns)
        # Whole panels, the last of which ends with the columns.
        place[self.chain.c.name] = replace(place[self.chain.c.name], extent=count * columns)
        b = self._operand(self.inner.b, place, self.chain.c, self._packing("pack_walked", self.chain.c, columns))
        sums = Tile(self.names.fresh("c"), (self.chain.m.name, self.chain.c.name), (rows, columns))
        at = (start_of(("i", rows)), start_of(("j", columns)))
        tile = self._register_tile(sums, a, b, at, self.inner.summed[0])
        where = (self._own_rows(at[0], rows), Slice(self.cached.start + at[1], columns, self.chain.c.name))
        tile.append(Store(self.points.name, where, sums.name))
        inner = For("i", self.height // rows, tuple(tile))
        if self.pieces is not None:
            cut = self.chain.c.extent % (self.cached.extent or 1)
            end = Bound(self.cached.start + start_of(("j", columns)), self.chain.c.extent) if cut else None
            return [a.load, *self.pieces.each((b.load, For("j", count, (inner,), bound=end)))]
        loop = For("j", count, (inner,), bound=self._end("j", columns))
        return [a.load, b.load, loop]

    def _summed(self) -> list[Statement]:
        """The carried product, and the results computed from it."""
        a, b, sums, at = self._sides(self.walked, self.cached)
        rows, columns = sums.shape
        tile = self._register_tile(sums, a, b, at, self.chain.c)
        axis, m = self.carried.carried[0], self.chain.m.name
        begin = self._first_row + at[0]
        place = self._place(**{m: Slice(begin, rows, m), axis.name: Slice(at[1], columns, axis.name)})
        tile += self._finished(sums, place, self._own_rows(at[0], rows))
        return [a.load, b.load, self._each_tile(tile, sums)]

    def _summed_in_pieces(self) -> list[Statement]:
        """The same, piece by piece of the streamed axis, up to the end of a mask."""
        count, length = self.values.tiling("c")
        own = Slice(start_of(("c.0", length)), length, self.chain.c.name)
        walked, cached = ({own.axis: own}, own) if self.pieces is None else (self.walked, self.cached)
        a, b, sums, at = self._sides(walked, cached)
        where = (self._own_rows(at[0], sums.shape[0]), Slice(at[1], sums.shape[1], sums.axes[1]))
        before = Tile(self.names.fresh("before"), sums.axes, sums.shape)
        tile = self._register_tile(sums, a, b, at, self.chain.c)
        join = (Load(before, self.sums.name, where), Map(sums, "add", (sums.name, before.name)))
        store, axis = Store(self.sums.name, where, sums.name), self.carried.carried[0]
        if self.pieces is not None:
            loops = self.pieces.each((a.load, b.load, self._each_tile([*tile, *join, store], sums)))
            start = self.folds.start_sums(self.sums.name, axis)
            return [*start, *loops, *self._finished_rows()]
        tile += [If("c.0", 0, (), join), store]
        loop = For("c.0", count, (a.load, b.load, self._each_tile(tile, sums)), bound=self._end("c.0", length))
        return [loop, *self._finished_rows()]

    def _finished_rows(self) -> list[Statement]:
        axis, rows = self.carried.carried[0], self._own_rows(Affine(), self.height)
        whole = Tile(self.names.fresh("sum"), (self.chain.m.name, axis.name), (self.height, axis.extent))
        place = self._place(**{axis.name: _whole(axis)})
        load = Load(whole, self.sums.name, (rows, _whole(axis)))
        return [load, *self._finished(whole, place, rows)]

    def _sides(
        self, walked: Mapping[str, Slice], cached: Slice
    ) -> tuple[_Operand, _Operand, Tile, tuple[Affine, Affine]]:
        """Operands of the carried product at these positions, a register tile of its sums, and the start of that."""
        rows, columns = self.values.tiling("carried_register")
        (axis,), m, c = self.carried.carried, self.chain.m.name, self.chain.c.name
        place = self._place(**walked, **{axis.name: _whole(axis)})
        weights = Tile(self.names.fresh("weights"), (m, c), (self.height, cached.extent or 1))
        own = (self._own_rows(Affine(), self.height), cached)
        b = self._operand(self.carried.b, place, axis, self._packing("pack_carried", axis, columns))
        sums = Tile(self.names.fresh("c"), (m, axis.name), (rows, columns))
        at = (start_of(("i2", rows)), start_of(("j2", columns)))
        return _Operand(Load(weights, self.points.name, own), m), b, sums, at

    def _each_tile(self, body: Sequence[Statement], sums: Tile) -> For:
        inner = For("j2", self.carried.carried[0].extent // sums.shape[1], tuple(body))
        return For("i2", self.height // sums.shape[0], (inner,))

    def _finished(self, sums: Tile, place: Mapping[str, Slice], rows: Slice) -> list[Statement]:
        """The results of these sums; `rows` are the program's own rows of them."""
        dtypes = {t.name: t.dtype for t in self.chain.workload.inputs}
        emitter = Emitter(place, dtypes, self.names, {self.carried.stage: sums})
        for fold, buffer in self.folded.items():
            tile = Tile(self.names.fresh(fold), (self.chain.m.name,), (rows.extent or 1,))
            emitter.body.append(Load(tile, buffer.name, (rows,)))
            emitter.tiles[fold] = tile
        for name, result in self.chain.results:
            if self.folds.has_columns(name):
                emitter.store(name, self.folds.axes(name), emitter.tile(result, "result"))
        return emitter.body

    def _register_tile(
        self, sums: Tile, a: _Operand, b: _Operand, at: tuple[Affine, Affine], over: Axis
    ) -> list[Statement]:
        rows = a.panel(self.names.fresh("a_panel"), at[0], sums.shape[0])
        columns = b.panel(self.names.fresh("b_panel"), at[1], sums.shape[1])
        dot = Dot(sums, rows.dst.name, columns.dst.name, over.name)
        return [Fill(sums, 0.0), rows, columns, dot]

    def _operand(self, e: Expression, place: Mapping[str, Slice], own: Axis, panels: Panels | None) -> _Operand:
        assert isinstance(e, Access)
        element = next(t.dtype for t in self.chain.workload.inputs if t.name == e.tensor)
        slices = slices_at(e, place)
        return _Operand(
            Load(Tile.along(slices, self.names.fresh(e.tensor), element), e.tensor, slices, panels=panels), own.name
        )

    def _packing(self, knob: str, axis: Axis, width: int) -> Panels | None:
        word = self.values.word(knob)
        return None if word == IN_PLACE else Panels(axis.name, width, word == PANELS)

    def _end(self, variable: str, columns: int) -> Bound | None:
        """The end of the columns that a mask leaves to the program's rows, if all beyond it is unused."""
        if not self._is_even:
            return None
        mask = mask_of(self.chain)
        place = self._place(**{(c := self.chain.c.name): Slice(start_of((variable, columns)), columns, c)})
        grows = [b for b in mask.useful(place, variable) if dict(b.start.terms)[variable] > 0]
        found = [b for b in grows if _at_first(b, self.values.tiling("m")[0]) < b.size]
        bodies = [f.expression for f in self.chain.folds if f.name not in self.chain.carried] + [self.carried.a]
        hidden = all(_is_selected(e, self.inner.stage, mask) for e in bodies)
        return found[0] if found and hidden else None


def runs_along(chain: Chain, access: Access, axis: Axis) -> bool:
    """True if neighbours along the axis, the last one of the tensor, are neighbours in memory."""
    return OperandMap.of(chain.workload, access).runs_along(axis.name)


def _whole(axis: Axis) -> Slice:
    """The whole axis."""
    return Slice(Affine(), axis.extent, axis.name)


def _at_first(bound: Bound, tiles: int) -> int:
    """The largest start of a bound in the first iteration, of any tile of rows."""
    terms = dict(bound.start.terms)
    return bound.start.offset + max(0, terms.get("m.0", 0) * (tiles - 1))


def _is_selected(e: Expression, stage: str, mask: Mask) -> bool:
    """True if the expression uses the stage only where the mask leaves something."""
    match e:
        case Apply("where", (condition, _, second)) if mask.forms <= (mask.guards.holding(condition) or set()):
            return all(a.tensor != stage for a in (*accesses(condition), *accesses(second)))
        case Apply(_, arguments):
            return all(_is_selected(a, stage, mask) for a in arguments)
        case Access(tensor):
            return tensor != stage
        case _:
            return all(a.tensor != stage for a in accesses(e))
