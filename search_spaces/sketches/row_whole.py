"""Row reductions with whole rows in one tile: read once, reduce and write without going back to memory.

Before:  for r: for c: top = max(top, x[r, c]) …  for c: out[r, c] = …
After:   grid r.0 in R/H (maybe persistent):
           x_tile = load x[r.0*H : +H, all columns]
           top = max of x_tile over c;  …;  store out[r.0*H : +H, all columns]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from search_spaces.decisions.decision import Anchor, Decision, derived, start
from search_spaces.decisions.prefetching import prefetching
from search_spaces.decisions.streaming import streaming
from search_spaces.decisions.vectors import vectorizing
from search_spaces.decisions.warps import num_warps
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.grid import Grid
from search_spaces.programs.lowering import buffers
from search_spaces.programs.tile_program import Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values, nearest, padded
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.space import Sketch
from search_spaces.sketches.points.rounding_in_pairs import rounding_in_pairs
from search_spaces.sketches.rows.aligned_rows import ALIGNED, AlignedRows, aligned_rows, with_aligned
from search_spaces.sketches.rows.row_parts import ROWS_OUTER, RowTiles, fold_along, row_grid, row_tiling, rows_on
from search_spaces.sketches.rows.scanning import Scanning, in_order
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Workload

# A tile of more elements than half the registers of a multiprocessor leaves too few for anything else.
MAX_ELEMENTS = 32768
# A longer row does not stay in the second-level cache of a CPU between its passes.
MAX_COLUMNS_CPU = 65536
# (elements a thread, warps) of the tiles to start from, some vectors of 16 bytes a thread; the first few of them that
# hold a row, or nearly.
_SEEDS = ((8, 4), (16, 4), (32, 4), (16, 8), (32, 8), (64, 8), (32, 16), (64, 16), (32, 32))
_MOST_STARTS = 6
_NEARLY = 0.7


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for reductions of rows that fit a tile; on a CPU, of rows that lie along memory."""
    structure = rows_on(workload, target)
    _check_size(structure, target)
    aligned = aligned_rows(structure, target)

    def too_long(values: Values) -> str | None:
        return _why_too_long(structure, target, values, aligned)

    decisions = (_on_gpu if target.kind == "gpu" else _on_cpu)(structure, target, aligned)
    anchor = Anchor(
        "row_whole",
        lambda values: rounding_in_pairs(_lower(structure, target, values, aligned), target),
        rules=(Rule(("rows", ALIGNED.name), too_long),) if aligned else (),
        starts=_starts(structure, target, decisions) if target.kind == "gpu" else (),
    )
    return (derived(anchor, decisions),)


def _why_too_long(structure: Structure, target: Target, values: Values, aligned: AlignedRows | None) -> str | None:
    """With what lies before it in its first vector a row may take twice the tile."""
    elements = values.tile("rows") * padded_elements(structure, target, _used(values, aligned))
    if elements > MAX_ELEMENTS:
        return f"a tile of whole vectors has {elements} elements; at most {MAX_ELEMENTS} are allowed"
    return None


def _used(values: Values, aligned: AlignedRows | None) -> AlignedRows | None:
    return aligned if values.get(ALIGNED.name) else None


def _check_size(structure: Structure, target: Target) -> None:
    """Refuse rows that no tile holds."""
    if target.kind == "gpu":
        elements = padded_elements(structure, target) * (ROWS_OUTER[0] if structure.outer else 1)
        if elements > MAX_ELEMENTS:
            raise UnmatchedError(f"a tile of whole rows has {elements} elements; at most {MAX_ELEMENTS} are allowed")
        return
    if structure.outer or len(structure.reduced) > 1:
        raise UnmatchedError("whole rows do not lie along memory")
    if structure.column.extent > MAX_COLUMNS_CPU and not structure.scans:
        extent = structure.column.extent
        raise UnmatchedError(f"a row has {extent} columns; at most {MAX_COLUMNS_CPU} stay in a cache")


def _starts(structure: Structure, target: Target, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """As many rows as give every thread some vectors, and one walk over the grid."""
    columns = padded_elements(structure, target)
    least = _NEARLY * (ROWS_OUTER[0] if structure.outer else 1)
    sizes = [(elements * target.wave * warps / columns, warps) for elements, warps in _SEEDS]
    fitting = [(rows, warps) for rows, warps in sizes if rows >= least][:_MOST_STARTS]
    height = decisions[0].knob
    plain = [start(decisions, Values(rows=nearest(height, rows), warps=warps)) for rows, warps in fitting]
    return with_aligned(plain) if ALIGNED.name in plain[0] else tuple(plain)


def _on_gpu(structure: Structure, target: Target, aligned: AlignedRows | None) -> tuple[Decision, ...]:
    rows = row_tiling(structure, target)
    fitting = tuple(v for v in rows.values if v[-1] * padded_elements(structure, target) <= MAX_ELEMENTS)
    return (
        Decision(replace(rows, values=fitting)),
        num_warps(target, most=32),
        *row_grid(structure, target),
        streaming(structure.workload, target),
        *((Decision(ALIGNED),) if aligned else ()),
    )


def _on_cpu(structure: Structure, target: Target, aligned: AlignedRows | None) -> tuple[Decision, ...]:
    rows = Decision(row_tiling(structure, target))
    return (rows, vectorizing(), prefetching(), streaming(structure.workload, target))


def padded_elements(structure: Structure, target: Target, aligned: AlignedRows | None = None) -> int:
    """The elements of a whole row in a tile."""
    return math.prod(piece.extent or 1 for piece in _pieces(structure, target, aligned).values())


def _pieces(structure: Structure, target: Target, aligned: AlignedRows | None) -> dict[Axis, Slice]:
    """All of every reduced axis: a GPU tile has a power of two, of at least 16 along memory."""
    before = aligned.most if aligned else 0
    extents = {x: padded(x.extent + before) if target.kind == "gpu" else x.extent for x in structure.reduced}
    if target.kind == "gpu" and not structure.outer:
        extents[structure.column] = max(16, extents[structure.column])
    # Scans meet what is beyond the rows last.
    return {
        x: Slice(Affine(offset=x.extent - extent if structure.backwards else 0), extent, x.name)
        for x, extent in extents.items()
    }


def _lower(structure: Structure, target: Target, values: Values, aligned: AlignedRows | None) -> TileProgram:
    aligned = _used(values, aligned)
    workload, pieces = structure.workload, _pieces(structure, target, aligned)
    around = {x.name: piece for x, piece in pieces.items() if x != structure.column}
    rows = RowTiles(structure, values.tile("rows"), around)
    if aligned:
        pieces[structure.column] = replace(pieces[structure.column], skew=aligned.skew(rows.place))
    emitter = rows.emitter(pieces[structure.column], Names(), {})
    known: dict[str, Tile] = emitter.tiles
    scanning = Scanning(rows, structure.scans, emitter.names)
    for stage, *others in in_order(structure):
        if stage.reduction is None:
            scanning.scan(emitter, (stage, *others), pieces[structure.column])
            continue
        along = {x: piece for x, piece in pieces.items() if x in stage.reduction.axes}
        known[stage.name] = fold_along(rows, emitter, stage, along, stage.name)
    rows.store(structure.outputs, emitter)
    kernel = Kernel(workload.name, Grid(rows.grid), tuple(emitter.body), Launch(lanes=target.lanes))
    return TileProgram(workload.name, buffers(workload), (kernel,))
