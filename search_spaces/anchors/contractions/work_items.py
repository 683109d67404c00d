"""Work items of a contraction whose rows are cut by data: the rows and the segment of each tile, found in the program.

Before:  grid m.0 in 12, n.0 in 4:                              tiles of 64 rows, whatever segment these are of
           a = load a[m.0*64 : +64, k.0*32 : +32]
           b = load b[k.0*32 : +32, n.0*128 : +128]
           store out[m.0*64 : +64, n.0*128 : +128] = acc
After:   grid m.0 in 12, n.0 in 4:                              as many tiles as the segments may need
           tiles = (ends - begins + 63) / 64                    of every segment
           until = scan of tiles;  number = how many of until are at most m.0
           let m.segment = number;  let m.first = begin of the segment + (m.0 - tiles before it) * 64
           a = load a[m.first : +64, k.0*32 : +32]              rows behind the end are of other segments, and not used
           b = load b[m.segment, k.0*32 : +32, n.0*128 : +128]
           store out[m.first : +64, n.0*128 : +128] = acc where m.first + m < end

Tiles that no segment has come last in the grid, and do nothing else. Whatever the ends are, nothing outside of the
outputs is stored; rows of unsorted ones are those of several segments, or of none. A kernel may have the items of some
segments alone, by their number of rows: the others have no tiles in it (`long_segments`).

Also called a grouped GEMM's tile scheduler (CUTLASS, example 24), a problem visitor, or sorted expert blocks (vLLM).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from search_spaces.anchors.contractions.segment_places import SegmentPlaces
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, buffers, start_of, workspace_name
from search_spaces.programs.statements import (
    Combination,
    For,
    If,
    Let,
    Load,
    Map,
    Position,
    Reduce,
    Scan,
    Statement,
    Store,
    children,
    mapped,
    produced,
    statements,
)
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.structure.segmented import Segmented
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.names import Names

_SEGMENTS = "segment"


@dataclass(frozen=True)
class Lengths:
    """Numbers of rows of segments: more than `above`, and at most `most`."""

    above: int
    most: int

    def __contains__(self, rows: int) -> bool:
        return self.above < rows <= self.most


def with_work_items(
    program: TileProgram, of: Segmented, size: int, listed: bool, lengths: Lengths | None = None
) -> TileProgram:
    """The program of one segment, with tiles of `size` rows, a power of two, as that of all segments.

    `listed`: a kernel before it finds the items of all tiles; `lengths`: those of the segments that have items, or of
    all.
    """
    (plain,) = (k for k in program.kernels if not k.auxiliary)
    items = _Items(of, plain, size, listed, lengths)
    kernels = [k if k.auxiliary else items.kernel for k in program.kernels]
    before, made = ([items.listing], [items.items]) if listed else ([], [])
    own = [b for b in program.buffers if b.role not in ("input", "output")]
    return replace(program, buffers=buffers(of.workload, *own, *made), kernels=(*before, *kernels))


@dataclass(frozen=True)
class _Items:
    """The work items of one kernel."""

    of: Segmented
    plain: Kernel
    size: int
    listed: bool
    lengths: Lengths | None

    @property
    def kernel(self) -> Kernel:
        """The kernel with its tiles at the rows of items."""
        e = self._emitter(Names({t.name for s in statements(self.plain.body) for t in produced(s)}))
        number, row, end, *_ = self._read(e) if self.listed else self._found(e)
        self._bind(e, number, row, end)
        body = mapped(tuple(map(self._skipped, self.plain.body)), lambda s: self._placed(s, number))
        last = _last_assignment(body) + 1
        stored = tuple(made for s in body[last:] for made in self._within(s, end, e.names))
        # Roles have no branches.
        ended = stored if self.listed else (If(self._places.idle, 0, stored),)
        grid = replace(self.plain.grid, live=self._live)
        return replace(self.plain, grid=grid, body=(*e.body, *body[:last], *ended))

    @cached_property
    def items(self) -> Buffer:
        """The segment, the first row and the end of every item, and how many there are."""
        return Buffer(workspace_name(self.of.workload, "items"), (len(self._slots), self._most), "int32", "workspace")

    @property
    def listing(self) -> Kernel:
        """The kernel that makes the list, an item in each program."""
        e = self._emitter(Names())
        for at, tile in zip(self._slots, self._found(e), strict=True):
            e.body.append(Store(self.items.name, at, tile.name))
        grid = Grid((GridAxis(self._item, self.items.shape[1]),))
        return Kernel(f"{self.plain.name}_items", grid, tuple(e.body), auxiliary=True)

    def _emitter(self, names: Names) -> Emitter:
        return Emitter({_SEGMENTS: Slice(Affine(), self._padded, _SEGMENTS)}, {}, names)

    @property
    def _slots(self) -> list[tuple[Slice, Slice]]:
        """Places in the list: of the segment, the first row and the end of the item, and of the number of items."""
        return [(Slice(Affine(offset=n)), Slice(axis_index(self._item))) for n in range(4 if self._live else 3)]

    def _read(self, e: Emitter) -> tuple[Tile, ...]:
        """The number of items, which all entries of the list have, comes first: loops end behind them."""
        if self._live:
            count = self._loaded(e, "live", (self._slots[-1][0], Slice(Affine())))
            e.body.append(self._counted(count))
        return tuple(self._loaded(e, n, at) for n, at in zip(("number", "row", "end"), self._slots, strict=False))

    def _loaded(self, e: Emitter, name: str, at: tuple[Slice, Slice]) -> Tile:
        made = Tile(e.names.fresh(name), (), (), "int32")
        e.body.append(Load(made, self.items.name, at))
        return made

    # Names

    @property
    def _places(self) -> SegmentPlaces:
        return SegmentPlaces(self.of)

    @property
    def _item(self) -> str:
        return f"{self._places.axis}.0"

    @property
    def _live(self) -> str:
        """The variable that counts the items with rows, of persistent programs; or "" of others."""
        grid = self.plain.grid
        slowest = grid.axes[0].variable == self._item
        return f"{self._places.axis}.live" if grid.walked and slowest else ""

    # Sizes

    @property
    def _most(self) -> int:
        """The most items that there can be."""
        return next(a.extent for a in self.plain.grid.axes if a.variable == self._item)

    @property
    def _padded(self) -> int:
        """Positions of a tile of all segments."""
        return 1 << self._places.ends.bit_length()

    # The walk

    def _found(self, e: Emitter) -> tuple[Tile, ...]:
        """The segment of the item, its first row, the row behind the last one of the segment; and the live items."""
        segment = Slice(Affine(), self._padded, _SEGMENTS)
        begins, ends = self._places.bounds(e, Tile.along([segment], e.names.fresh("at"), "int64"), segment)
        tiles = self._tiles(e, e.map("sub", ends, begins, name="rows", dtype="int64"))
        until = replace(tiles, name=e.names.fresh("until"))
        e.body.append(Scan((until,), (tiles.name,), _SEGMENTS, _sum(e.names)))
        live = [self._folded(e, until, "live", "max")] if self._live else []
        # Ends that are not sorted may have more than the integers of a list hold.
        live = [e.map("minimum", n, self._most, dtype="int64") if self.listed else n for n in live]
        # A list has its own programs, one for each item.
        e.body += [self._counted(count) for count in live if not self.listed]
        item = self._single(e, axis_index(self._item), "item")
        done = e.map("le", until, item, name="done", compared="int64")
        number = self._folded(e, e.map("where", done, 1, 0, dtype="int64"), "number", "sum")
        before = self._folded(e, e.map("where", done, until, 0, dtype="int64"), "before", "max")
        e.body.append(Let(self._places.segment, self._places.ends + 1, number.name))
        own, end = self._places.bounds(
            e, Tile(e.names.fresh("at"), (), (), "int64"), Slice(axis_index(self._places.segment))
        )
        ahead = e.map("mul", e.map("sub", item, before, dtype="int64"), self.size, dtype="int64")
        is_item = e.map("le", number, self._places.ends, compared="int64")
        row = e.map(
            "where", is_item, e.map("add", own, ahead, dtype="int64"), self._places.rows, name="row", dtype="int64"
        )
        return number, row, end, *live

    def _counted(self, count: Tile) -> Let:
        return Let(self._live, self._most + 1, count.name, usual=self._usual)

    def _tiles(self, e: Emitter, rows: Tile) -> Tile:
        """Numbers of tiles of segments with these numbers of rows."""
        shift, counted = self.size.bit_length() - 1, e.map("add", rows, self.size - 1, dtype="int64")
        tiles = e.map("maximum", e.map("shift_right", counted, shift, dtype="int64"), 0, name="tiles", dtype="int64")
        if self.lengths is None:
            return tiles
        if self.lengths.most < self._places.rows:
            tiles = e.map("where", e.map("le", rows, self.lengths.most, compared="int64"), tiles, 0, dtype="int64")
        if self.lengths.above:
            tiles = e.map("where", e.map("lt", self.lengths.above, rows, compared="int64"), tiles, 0, dtype="int64")
        return tiles

    def _bind(self, e: Emitter, number: Tile, row: Tile, end: Tile) -> None:
        """Bind the variables of the item, as far as its statements have them."""
        e.body.append(Let(self._places.first, self._places.rows + 1, row.name))
        has_rows = e.map("lt", row, end, compared="int64")
        idle = e.map("where", has_rows, 0, 1, name="idle", dtype="int64")
        e.body.append(Let(self._places.idle, 2, idle.name, usual=self._usually_idle))
        self._places.bind_entries(e, number)

    @property
    def _usual(self) -> int:
        """The number of items with rows if segments have equal lengths."""
        rows = -(-self._places.rows // self._places.ends)
        if self.lengths is not None and rows not in self.lengths:
            return 0
        return -(-self._places.rows // rows) * -(-rows // self.size)

    @property
    def _usually_idle(self) -> float:
        """The part of the items that programs come to that have none."""
        return float(not self._usual) if self._live else 1 - self._usual / self._most

    def _single(self, e: Emitter, form: Affine, name: str) -> Tile:
        made = Tile(e.names.fresh(name), (), (), "int64")
        e.body.append(Position(made, Slice(form)))
        return made

    def _folded(self, e: Emitter, src: Tile, name: str, operator: Literal["sum", "max"]) -> Tile:
        made = Tile(e.names.fresh(name), (), (), "int64")
        e.body.append(Reduce(made, src.name, _SEGMENTS, operator))
        return made

    # The statements of one segment

    def _skipped(self, s: Statement) -> Statement:
        """A loop without iterations in items without rows.

        Groups that alternate make equal numbers of steps: their programs end before such items.
        """
        if not isinstance(s, For) or (self.plain.launch.alternating and self._live):
            return s
        return replace(s, bound=Bound(start_of((s.variable, 1), (self._places.idle, s.extent)), s.extent))

    def _placed(self, s: Statement, number: Tile) -> Statement:
        """A statement at the rows of the item, with entries of tables in the whole ones."""
        return self._places.placed(s, lambda dst: Map(dst, "add", (number.name, 0)), self._at)

    def _at(self, piece: Slice) -> Slice:
        """The slice from the first row of the item on."""
        step = piece.start.step(self._item)
        if not step:
            return piece
        moved = start_of((self._item, -step), (self._places.first, step // self.size))
        return replace(piece, start=piece.start + moved)

    def _within(self, s: Statement, end: Tile, names: Names) -> Sequence[Statement]:
        """A store of the segment's own rows alone."""
        if not isinstance(s, Store):
            return (s,)
        piece = next(p for p in s.slices if p.axis == self._places.axis)
        at = Tile.along([piece], names.fresh("at"), "int64")
        inside = replace(at, name=names.fresh("inside"), dtype="float32")
        tests = (Position(at, piece), Map(inside, "lt", (at.name, end.name), "int64"))
        return (*tests, replace(s, where=inside.name))


def _last_assignment(body: Sequence[Statement]) -> int:
    """The number of the last statement that has a body, or assigns to a tile that exists."""
    found, known = -1, set[str]()
    for n, s in enumerate(body):
        own = {t.name for t in produced(s)}
        found = n if any(children(s)) or own & known else found
        known |= own | {t.name for inner in statements((s,)) for t in produced(inner)}
    return found


def _sum(names: Names) -> Combination:
    left, right, total = (Tile(names.fresh(name), (), (), "int64") for name in ("left", "right", "total"))
    return Combination((left,), (right,), (Map(total, "add", (left.name, right.name)),), (total.name,))
