"""Packed contractions of axes that data cuts into segments: bounds of loops are read.

Rows, an outer loop over all segments:

Before:  grid m.0 in 2, n.0:                                     blocks of 512 of 1024 rows
           for i in 64: c = …; store out[m.0*512 + i*8 : +8, …] = c
After:   grid m.segment in 9, m.0 in 2, n.0:                     as many blocks as one segment may need
           let m.first = begin of the segment;  let m.behind = 1024 - its end;  let m.idle = 1 if the block has no rows
           if m.idle == 0:
             for i in 64, while m.first + m.0*512 + i*8 + m.behind < 1024:
               c = …; store out[m.first + m.0*512 + i*8 : +8, …] = c where it begins there, and ends before the end

Rows of a register tile beyond the segment's end are read, and not stored.

The reduced axis, of an output for each segment g:

Before:  for k.0 in 4: a = load x[…, k.0*256 : +256]; …;  if k.0 == 3: store out
After:   let k.first = begin of g;  let k.behind = 1024 - its end
         for k.0 in 4, while k.0*256 + k.least < 1024:           once at least
           a = load x[…, k.first + k.0*256 : +256, while below the end]; …
           let k.last = 1 if this is the last one;  if k.last == 1: store out
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from search_spaces.anchors.contractions.packed.packed_program import IS_LAST, ROW_BLOCKS, STEPS
from search_spaces.anchors.contractions.segment_places import SegmentPlaces
from search_spaces.decisions.decision import each_kernel
from search_spaces.programs.grid import GridAxis
from search_spaces.programs.lowering import Emitter, buffers, start_of
from search_spaces.programs.statements import (
    For,
    If,
    Let,
    Load,
    Position,
    Prefetch,
    Statement,
    Store,
    produced,
    statements,
)
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.structure.contraction import Contraction
from search_spaces.structure.segmented import Segmented
from search_spaces.structure.segmented_sums import SegmentedSum
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Expression
from search_spaces.workloads.names import Names


def with_segments(program: TileProgram, of: Segmented, block: int) -> TileProgram:
    """The program of one segment, with `block` rows in a program, as that of all segments."""

    def changed(kernel: Kernel) -> Kernel:
        return _Rows(of, _Range(of.form, ROW_BLOCKS, block, _names(kernel))).kernel(kernel)

    own = [b for b in program.buffers if b.role not in ("input", "output")]
    made = each_kernel(program, changed)
    return replace(made, name=of.workload.name, buffers=buffers(of.workload, *own))


def with_segments_of_sums(program: TileProgram, of: SegmentedSum, tile: int) -> TileProgram:
    """The program of sums over all of k, with `tile` steps of it in an iteration, as that of sums over segments."""

    def changed(kernel: Kernel) -> Kernel:
        return _Sums(of, _Range(of.form, STEPS, tile, _names(kernel))).kernel(kernel)

    return each_kernel(program, changed)


def _names(kernel: Kernel) -> Names:
    return Names({t.name for s in statements(kernel.body) for t in produced(s)})


@dataclass(frozen=True)
class _Range:
    """The positions of one segment along the axis that is cut, in parts of `size`, counted by a variable."""

    form: Contraction
    part: str
    size: int
    names: Names

    @property
    def axis(self) -> str:
        return self.form.cuts[0]

    @property
    def extent(self) -> int:
        return self.form.extents[self.axis]

    @property
    def first(self) -> str:
        return f"{self.axis}.first"

    @property
    def behind(self) -> str:
        """The variable that counts the positions behind the segment."""
        return f"{self.axis}.behind"

    def bind(self, e: Emitter, begin: Tile, end: Tile) -> None:
        """Bind the variables, of bounds that are positions."""
        usual = self.extent - -(-self.extent // self.form.cuts[1])
        behind = e.map("sub", self.extent, end, name="behind", dtype="int64")
        e.body.append(Let(self.first, self.extent + 1, begin.name))
        e.body.append(Let(self.behind, self.extent + 1, behind.name, usual=usual))

    def at(self, piece: Slice) -> Slice:
        """The slice in this segment."""
        step = piece.start.step(self.part)
        return replace(piece, start=piece.start + start_of((self.first, step // self.size))) if step else piece

    def within(self, bound: Bound) -> Bound:
        """The bound of all positions, as that of the segment's."""
        if not bound.start.step(self.part):
            return bound
        return replace(bound, start=bound.start + start_of((self.first, 1), (self.behind, 1)))

    def loaded(self, s: Load) -> Load:
        """A load in this segment: what is multiplied ends with it."""
        moved = tuple(map(self.at, s.slices))
        if self.form.k.name in s.dst.axes:
            moved = tuple(
                replace(p, bound=Bound(p.start + axis_index(self.behind), self.extent)) if p.axis == self.axis else p
                for p in moved
            )
        return replace(s, slices=moved)


@dataclass(frozen=True)
class _Rows:
    """One kernel of rows in segments."""

    of: Segmented
    range: _Range

    @property
    def places(self) -> SegmentPlaces:
        return SegmentPlaces(self.of)

    def kernel(self, plain: Kernel) -> Kernel:
        places, grid = self.places, plain.grid
        body = (*self._bound(), If(places.idle, 0, self._of_all(plain.body)))
        axes = (GridAxis(places.segment, places.ends + 1), *grid.axes)
        return replace(plain, grid=replace(grid, axes=axes), body=body)

    def _bound(self) -> Sequence[Statement]:
        places, names = self.places, self.range.names
        e = Emitter({}, {}, names)
        number, before = (Tile(names.fresh(name), (), (), "int64") for name in ("number", "before"))
        begin, end = places.bounds(e, number, Slice(axis_index(places.segment)))
        self.range.bind(e, begin, end)
        e.body.append(Position(before, Slice(start_of((self.range.part, self.range.size)))))
        first = e.map("add", begin, before, name="first", dtype="int64")
        is_idle = e.map("le", end, first, compared="int64")
        idle = e.map("where", is_idle, 1, 0, name="idle", dtype="int64")
        e.body.append(Let(places.idle, 2, idle.name))
        places.bind_entries(e, number)
        return e.body

    def _of_all(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(made for s in body for made in self._changed(s))

    def _changed(self, s: Statement) -> Iterator[Statement]:
        match s:
            case For():
                yield replace(s, bound=s.bound and self.range.within(s.bound), body=self._of_all(s.body))
            case If():
                yield replace(s, then=self._of_all(s.then), otherwise=self._of_all(s.otherwise))
            case Load() if s.buffer != self.of.number:
                yield self._placed(self.range.loaded(s))
            case Prefetch():
                yield replace(s, slices=tuple(map(self.range.at, s.slices)))
            case Store() if s.buffer in self.of.workload.output_names:
                yield from self._own_rows(replace(s, slices=tuple(map(self.range.at, s.slices))))
            case _:
                yield self._placed(s)

    def _placed(self, s: Statement) -> Statement:
        number = Slice(axis_index(self.places.segment))
        at = (lambda piece: piece) if isinstance(s, Load) else self.range.at
        return self.places.placed(s, lambda dst: Position(dst, number), at)

    def _own_rows(self, s: Store) -> Iterator[Statement]:
        """A store of the tile's own rows alone: one at the end of all rows begins before its own."""
        (piece,) = (p for p in s.slices if p.axis == self.range.axis)
        e = Emitter({piece.axis: piece}, {}, self.range.names)
        at, behind = (Tile.along([piece], self.range.names.fresh("at"), "int64") for _ in range(2))
        begin = Tile(self.range.names.fresh("begin"), (), (), "int64")
        e.body += [
            Position(at, piece),
            Position(begin, Slice(piece.start)),
            Position(behind, replace(piece, start=piece.start + axis_index(self.range.behind))),
        ]
        begun = e.map("le", begin, at, compared="int64")
        chosen = e.map("mul", begun, e.map("lt", behind, self.range.extent, compared="int64"), name="inside")
        yield from e.body
        yield replace(s, where=chosen.name)


@dataclass(frozen=True)
class _Sums:
    """One kernel of sums over segments."""

    of: SegmentedSum
    range: _Range

    @property
    def _least(self) -> str:
        """The variable of positions outside of the segment, one fewer of an empty one, which has an iteration."""
        return f"{self.range.axis}.least"

    def kernel(self, plain: Kernel) -> Kernel:
        return replace(plain, body=(*self._bound(), *map(self._changed, plain.body)))

    def _bound(self) -> Sequence[Statement]:
        form, extent = self.of.form, self.range.extent
        place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in form.outer}
        e = Emitter(place, {t.name: t.dtype for t in form.workload.inputs}, self.range.names)
        begin, end = (self._position(e, x, name) for x, name in ((self.of.begin, "begin"), (self.of.end, "end")))
        self.range.bind(e, begin, end)
        outside = e.map("sub", begin, e.map("sub", end, extent, dtype="int64"), name="outside", dtype="int64")
        e.body.append(Let(self._least, extent, outside.name, usual=extent - -(-extent // form.cuts[1])))
        return e.body

    def _position(self, e: Emitter, of: Expression, name: str) -> Tile:
        known = e.map("minimum", e.tile(of, "bound"), self.range.extent, dtype="int64")
        return e.map("maximum", known, 0, name=name, dtype="int64")

    def _changed(self, s: Statement) -> Statement:
        match s:
            case For(variable=variable) if variable == self.range.part and s.extent > 1:
                bound = Bound(start_of((variable, self.range.size), (self._least, 1)), self.range.extent)
                return replace(s, bound=bound, body=(*self._ended(), *map(self._changed, s.body)))
            case For():
                return replace(s, body=tuple(map(self._changed, s.body)))
            case If():
                return replace(
                    s, then=tuple(map(self._changed, s.then)), otherwise=tuple(map(self._changed, s.otherwise))
                )
            case Load():
                return self.range.loaded(s)
            case _:
                return s

    def _ended(self) -> Iterator[Statement]:
        """Bind the variable that is 1 in the last iteration."""
        e, size = Emitter({}, {}, self.range.names), self.range.size
        following = Tile(self.range.names.fresh("following"), (), (), "int64")
        e.body.append(
            Position(following, Slice(start_of((self.range.part, size), (self._least, 1)) + Affine(offset=size)))
        )
        ended = e.map("le", self.range.extent, following, compared="int64")
        last = e.map("where", ended, 1, 0, name="last", dtype="int64")
        yield from (*e.body, Let(IS_LAST, 2, last.name))
