"""Resident rows: each whole in one tile, read once, reduced and written without another pass through memory.

Before:  for r: for c: top = max(top, x[r, c]) …  for c: out[r, c] = …
After:   grid r.0 in R/H:
           x_tile = load x[r.0*H : +H, all columns]
           top = max of x_tile over c;  …;  store out[r.0*H : +H, all columns]
"""

from __future__ import annotations

import math
from dataclasses import replace

from search_spaces.anchors.rows.aligned_rows import AlignedRows
from search_spaces.anchors.rows.reduced_rows import ReducedRows
from search_spaces.anchors.rows.row_parts import ROWS_OUTER, RowTiles, fold_along
from search_spaces.anchors.rows.scanning import Scanning, in_order
from search_spaces.anchors.thread_tiles import most_elements
from search_spaces.programs.grid import Grid
from search_spaces.programs.lowering import buffers
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Slice
from search_spaces.schedules.knobs import Values, padded
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis

# A longer row does not stay in the second-level cache of a CPU between its passes.
MAX_COLUMNS_CPU = 65536


def why_not_resident(reduced: ReducedRows) -> str | None:
    """Reason that no tile has whole rows, or None; on a CPU they must be contiguous."""
    structure = reduced.structure
    if reduced.on_gpu:
        elements = padded_elements(reduced) * (ROWS_OUTER[0] if structure.outer else 1)
        return _why_too_many(reduced, elements, "rows")
    if structure.outer or len(structure.reduced) > 1:
        return "whole rows do not lie along memory"
    if structure.column.extent > MAX_COLUMNS_CPU and not structure.scans:
        return f"a row has {structure.column.extent} columns; at most {MAX_COLUMNS_CPU} stay in a cache"
    return None


def why_too_long(reduced: ReducedRows, values: Values) -> str | None:
    """Reason that a tile cannot have this many rows: an unaligned row may take twice its length."""
    elements = values.tile("rows") * padded_elements(reduced, reduced.aligned_as(values))
    return _why_too_many(reduced, elements, "vectors" if reduced.aligned_as(values) else "rows")


def _why_too_many(reduced: ReducedRows, elements: int, what: str) -> str | None:
    most = most_elements(reduced.target)
    return f"a tile of whole {what} has {elements} elements; at most {most} are allowed" if elements > most else None


def padded_elements(reduced: ReducedRows, aligned: AlignedRows | None = None) -> int:
    """Elements of a whole row in a tile."""
    return math.prod(piece.extent or 1 for piece in _pieces(reduced, aligned).values())


def _pieces(reduced: ReducedRows, aligned: AlignedRows | None) -> dict[Axis, Slice]:
    """Slices of every whole reduced axis: a GPU tile has a power of two, of at least 16 along memory."""
    structure, before = reduced.structure, aligned.most if aligned else 0
    extents = {x: padded(x.extent + before) if reduced.on_gpu else x.extent for x in structure.reduced}
    if reduced.on_gpu and not structure.outer:
        extents[structure.column] = max(16, extents[structure.column])
    # Scans meet positions beyond the rows last.
    return {
        x: Slice(Affine(offset=x.extent - extent if structure.backwards else 0), extent, x.name)
        for x, extent in extents.items()
    }


def resident_program(reduced: ReducedRows, values: Values) -> TileProgram:
    """A kernel whose programs have tiles of whole rows."""
    structure, aligned = reduced.structure, reduced.aligned_as(values)
    pieces = _pieces(reduced, aligned)
    around = {x.name: piece for x, piece in pieces.items() if x != structure.column}
    rows = RowTiles(structure, values.tile("rows"), around)
    if aligned:
        pieces[structure.column] = replace(pieces[structure.column], skew=aligned.skew(rows.place))
    emitter = rows.emitter(pieces[structure.column], Names(), {})
    scanning = Scanning(rows, structure.scans, emitter.names)
    for stage, *others in in_order(structure):
        if stage.reduction is None:
            scanning.scan(emitter, (stage, *others), pieces[structure.column])
            continue
        along = {x: piece for x, piece in pieces.items() if x in stage.reduction.axes}
        emitter.tiles[stage.name] = fold_along(rows, emitter, stage, along, stage.name)
    rows.store(structure.outputs, emitter)
    kernel = Kernel(structure.workload.name, Grid(rows.grid), tuple(emitter.body), reduced.launch)
    return TileProgram(structure.workload.name, buffers(structure.workload), (kernel,))
