"""Places of the tiles of one segment in the tensors of all: where the segment begins and ends, its entries of tables.

Before:  load a[m.0*64 : +64, k.0*32 : +32];  load b[k.0*32 : +32, n.0*128 : +128]
After:   load a[m.first : +64, k.0*32 : +32];  load b[m.segment, k.0*32 : +32, n.0*128 : +128]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Gather, Let, Load, Position, Statement, Store
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.segmented import Segmented, Table
from search_spaces.workloads.expressions.affine import Affine, axis_index

_Place = TypeVar("_Place")


@dataclass(frozen=True)
class SegmentPlaces:
    """Names of the variables of a segment, and its places."""

    of: Segmented

    @property
    def axis(self) -> str:
        """The axis that is cut."""
        return self.of.form.cuts[0]

    @property
    def first(self) -> str:
        """The variable of the first row."""
        return f"{self.axis}.first"

    @property
    def segment(self) -> str:
        """The variable of the segment's number."""
        return f"{self.axis}.segment"

    @property
    def idle(self) -> str:
        """The variable that is 1 where there are no rows."""
        return f"{self.axis}.idle"

    @property
    def rows(self) -> int:
        return self.of.form.extents[self.axis]

    @property
    def ends(self) -> int:
        return self.of.segment.size

    def bounds(self, e: Emitter, at: Tile, segment: Slice) -> tuple[Tile, Tile]:
        """The first row of segments, and the row behind the last one; of all that are none, behind the last row."""
        e.body.append(Position(at, segment))
        bounds = []
        for back, most in ((1, self.ends), (0, self.ends - 1)):
            piece = replace(segment, start=segment.start + Affine(offset=-back))
            tensor = next(t for t in self.of.workload.inputs if t.name == self.of.segment.tensor)
            read = Tile.along([piece], e.names.fresh(tensor.name), tensor.dtype)
            e.body.append(Load(read, tensor.name, (piece,), 0, guarded=True))
            known = e.map("maximum", e.map("minimum", read, self.rows, dtype="int64"), 0, dtype="int64")
            is_known = e.map("le", at, most, compared="int64")
            bounds.append(e.map("where", is_known, known, self.rows, name=("end", "begin")[back], dtype="int64"))
        begin, end = bounds
        return begin, end

    def bind_entries(self, e: Emitter, number: Tile) -> None:
        """Bind the variables of the segment's entries of tables."""
        for variable, table in {self._entry(t): t for t in self.of.tables.values()}.items():
            entry = e.map("add", number, table.offset, name="entry", dtype="int64")
            e.body.append(Let(variable, table.entries, entry.name))

    def placed(self, s: Statement, number: Callable[[Tile], Statement], at: Callable[[Slice], Slice]) -> Statement:
        """A statement on one segment's rows and entries, on those of all: `at` moves slices to its rows.

        `number`: what has the segment's number in a tile.
        """
        match s:
            case Load(buffer=buffer) if buffer == self.of.number:
                return number(s.dst)
            case Load():
                return replace(s, slices=tuple(at(p) for p in self._of_table(s.buffer, s.slices)))
            case Gather():
                index = tuple(i if isinstance(i, str) else at(i) for i in s.index)
                return replace(s, index=self._of_table(s.buffer, index))
            case Position():
                return replace(s, piece=at(s.piece))
            case Store():
                return replace(s, slices=tuple(map(at, s.slices)))
            case _:
                return s

    def _entry(self, table: Table) -> str:
        return f"{self.axis}.entry{table.offset}_{table.entries}"

    def _of_table(self, buffer: str, index: Sequence[_Place]) -> tuple[_Place | Slice, ...]:
        """The index of a buffer, with the entry of the segment if that is a table."""
        table = self.of.tables.get(buffer)
        if table is None:
            return tuple(index)
        return (*index[: table.dimension], Slice(axis_index(self._entry(table))), *index[table.dimension :])
