"""Tiles in one segment: what is looked up by the segment of each row is looked up once where all rows are in one.

Before:  segment = how many of the ends are at most the row, for each row of i.0*16 : +16;  out = f(x, table[segment])
After:   number = how many of the ends are at most i.0*16;  let segment.alone = i.0*16 + 15 < ends[number]
         if segment.alone: out = f(x, table[number]);  else: as before

Twelve reads that wait for each other find a row among 4096 segments, and most tiles lie in one. Rows of tiles are where
they should be if the ends are sorted; of others, tables are read at any of their entries.
"""

from __future__ import annotations

from search_spaces.anchors.loops.leading import count_leading
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import If, Let, Position
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Segment, call
from search_spaces.workloads.expressions.walking import accesses, segments
from search_spaces.workloads.workload import Axis

_AXIS = "segment"
_NUMBER, _ALONE = f"{_AXIS}.number", f"{_AXIS}.alone"


def write_outputs(structure: Structure, emitter: Emitter, apart: bool) -> None:
    """Write every output at the place; `apart`: if rows are looked up by their segment, tiles in one for themselves."""
    bodies = [structure.body_of(s) for s in structure.outputs]
    segment = _of_rows(bodies, emitter) if apart else None
    if segment is None:
        _write(structure, emitter)
        return
    # Meanwhile the segment is found. Reads that selections make one are not there yet.
    ahead = (a for body in bodies for a in accesses(body)) if emitter.selections is None else ()
    for access in dict.fromkeys(ahead):
        emitter.emit(access)
    number = _bound(segment, emitter)
    alone, across = emitter.within(), emitter.within()
    alone.know(segment, number)
    for each in (alone, across):
        _write(structure, each)
    emitter.body.append(If(_ALONE, 1, tuple(alone.body), tuple(across.body)))


def _write(structure: Structure, emitter: Emitter) -> None:
    for output in structure.outputs:
        result = emitter.tile(structure.body_of(output), output.name)
        emitter.store(output.name, tuple(a.name for a in output.axes), result)


def _of_rows(bodies: list[Expression], emitter: Emitter) -> Segment | None:
    """The one segment that is found for several rows of the tile."""
    found = {s for body in bodies for s in segments(body)}
    if len(found) != 1:
        return None
    (segment,) = found
    at = segment.position
    if not isinstance(at, Affine) or not at.is_axis:
        return None
    piece = emitter.place[at.axis]
    return segment if (piece.extent or 1) > 1 and piece == Slice(piece.start, piece.extent, piece.axis) else None


def _bound(segment: Segment, e: Emitter) -> Tile:
    """The number of the first row's segment, and the variable that is 1 where the last row is in it, too."""
    assert isinstance(segment.position, Affine)
    piece, size = e.place[segment.position.axis], segment.size
    row = Tile(e.names.fresh("row"), (), (), "int64")
    e.body.append(Position(row, Slice(piece.start)))
    end_of = call("to_integer", Access(segment.tensor, (axis_index(_AXIS),)))
    number = count_leading(
        e, Axis(_AXIS, size), lambda at_ends, at: at_ends.map("le", at_ends.tile(end_of, "end"), row, compared="int64")
    )
    e.body.append(Let(_NUMBER, size, number.name))
    own = Emitter({_AXIS: Slice(axis_index(_NUMBER))}, e.inputs, e.names)
    end = own.tile(end_of, "end")
    e.body += own.body
    last = e.map("add", row, (piece.extent or 1) - 1, name="last", dtype="int64")
    ends_behind = e.map("lt", last, end, compared="int64")
    # Rows behind all ends are in the last segment.
    within = e.map("maximum", ends_behind, e.map("le", size, number, compared="int64"))
    e.body.append(Let(_ALONE, 2, e.map("where", within, 1, 0, name="alone", dtype="int64").name, usual=1))
    return number
