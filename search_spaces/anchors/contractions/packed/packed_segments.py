"""Segments of a packed contraction whose rows data cuts: an outer loop over them, with bounds that are read.

Before:  grid m.0 in 2, n.0:                                    blocks of 512 rows
           for i in 64: c = …; store out[m.0*512 + i*8 : +8, …] = c
After:   grid m.segment in 9, m.0 in 2, n.0:                    as many blocks as one segment may need
           let m.first = begin of the segment + m.0*512;  let m.end = its end;  let m.lacking = 1024 - (m.end - m.first)
           if there are rows:
             for i in 64, while i*8 + m.lacking < 1024:
               c = …; store out[m.first + i*8 : +8, …] = c where m.first + i*8 <= m < m.end

Rows of a register tile beyond the segment's end are read, and not stored. Programs without rows do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.anchors.contractions.segment_places import SegmentPlaces
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
from search_spaces.structure.segmented import Segmented
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.names import Names

_BLOCK = "m.0"


def with_segments(program: TileProgram, of: Segmented, block: int) -> TileProgram:
    """The program of one segment, with `block` rows in a program, as that of all segments."""
    made = [k if k.auxiliary else _OfAll(of, k, block).kernel for k in program.kernels]
    own = [b for b in program.buffers if b.role not in ("input", "output")]
    return replace(program, name=of.workload.name, buffers=buffers(of.workload, *own), kernels=tuple(made))


@dataclass(frozen=True)
class _OfAll:
    """One kernel."""

    of: Segmented
    plain: Kernel
    block: int

    @cached_property
    def places(self) -> SegmentPlaces:
        return SegmentPlaces(self.of)

    @cached_property
    def names(self) -> Names:
        return Names({t.name for s in statements(self.plain.body) for t in produced(s)})

    @property
    def kernel(self) -> Kernel:
        places, grid = self.places, self.plain.grid
        body = (*self._bound(), If(places.idle, 0, self._of_all(self.plain.body)))
        axes = (GridAxis(places.segment, places.ends + 1), *grid.axes)
        return replace(self.plain, grid=replace(grid, axes=axes), body=body)

    @property
    def _end(self) -> str:
        return f"{self.places.axis}.end"

    @property
    def _lacking(self) -> str:
        """The variable of the rows that the block has fewer than all."""
        return f"{self.places.axis}.lacking"

    def _bound(self) -> Sequence[Statement]:
        """The variables of the block's rows, bound to data."""
        places, e = self.places, Emitter({}, {}, self.names)
        rows, usual = places.rows, places.rows - -(-places.rows // places.ends)
        number = Slice(axis_index(places.segment))
        at = Tile(self.names.fresh("at"), (), (), "int64")
        begin, end = places.bounds(e, at, number)
        before = Tile(self.names.fresh("before"), (), (), "int64")
        e.body.append(Position(before, Slice(start_of((_BLOCK, self.block)))))
        first = e.map("add", begin, before, name="first", dtype="int64")
        left = e.map("sub", end, first, name="left", dtype="int64")
        lacking = e.map("sub", rows, left, name="lacking", dtype="int64")
        is_idle = e.map("le", end, first, compared="int64")
        idle = e.map("where", is_idle, 1, 0, name="idle", dtype="int64")
        e.body.append(Let(places.first, rows + 1, first.name))
        e.body.append(Let(self._end, rows + 1, end.name))
        e.body.append(Let(self._lacking, rows + 1, lacking.name, usual=usual))
        e.body.append(Let(places.idle, 2, idle.name))
        places.bind_entries(e, at)
        return e.body

    def _of_all(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(made for s in body for made in self._changed(s))

    def _changed(self, s: Statement) -> Iterator[Statement]:
        match s:
            case For():
                yield replace(s, bound=s.bound and self._within(s.bound), body=self._of_all(s.body))
            case If():
                yield replace(s, then=self._of_all(s.then), otherwise=self._of_all(s.otherwise))
            case Load(panels=panels) if panels and panels.axis == self.places.axis:
                (piece,) = (p for p in s.slices if p.axis == panels.axis)
                bound = self._within(Bound(piece.start, self.places.rows))
                yield self._placed(replace(s, panels=replace(panels, bound=bound)))
            case Prefetch():
                yield replace(s, slices=tuple(map(self._at, s.slices)))
            case Store() if s.buffer in self.of.workload.output_names:
                yield from self._own_rows(replace(s, slices=tuple(map(self._at, s.slices))))
            case _:
                yield self._placed(s)

    def _placed(self, s: Statement) -> Statement:
        number = Slice(axis_index(self.places.segment))
        return self.places.placed(s, lambda dst: Position(dst, number), self._at)

    def _at(self, piece: Slice) -> Slice:
        """The slice from the first row of the block on."""
        step = piece.start.step(_BLOCK)
        moved = start_of((_BLOCK, -step), (self.places.first, step // self.block)) if step else Affine()
        return replace(piece, start=piece.start + moved)

    def _within(self, bound: Bound) -> Bound:
        """The bound of all rows, as that of the block's."""
        step = bound.start.step(_BLOCK)
        return replace(bound, start=bound.start + start_of((_BLOCK, -step), (self._lacking, 1))) if step else bound

    def _own_rows(self, s: Store) -> Iterator[Statement]:
        """A store of the tile's own rows alone: one at the end of all rows begins before its own."""
        (piece,) = (p for p in s.slices if p.axis == self.places.axis)
        e = Emitter({piece.axis: piece}, {}, self.names)
        at = Tile.along([piece], self.names.fresh("at"), "int64")
        begin, end = (Tile(self.names.fresh(name), (), (), "int64") for name in ("begin", "end"))
        e.body += [
            Position(at, piece),
            Position(begin, Slice(piece.start)),
            Position(end, Slice(axis_index(self._end))),
        ]
        inside = (e.map("le", begin, at, compared="int64"), e.map("lt", at, end, compared="int64"))
        yield from e.body
        chosen = e.map("mul", *inside, name="inside")
        yield e.body[-1]
        yield replace(s, where=chosen.name)
