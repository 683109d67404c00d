"""Streamed rows: one loop over the columns per reduction, one to write; for rows of any length.

Before:  for r: for c: top = max(top, x[r, c]);  for c: total += exp(x[r, c] - top);  for c: out[r, c] = …
After:   grid r.0 in R/H:
           for c.0: top = max(top, max of x_tile)
           for c.0: total += sum of exp(x_tile - top)
           for c.0: store out_tile
With `online`, folds join the loop of those that they depend on if possible, here the sum that of the maximum;
`accumulate` chooses the owner of running values: row, point or thread (`running_folds`). Rows that lie across memory
are always folded by point: a program then has neighbours in memory as its rows.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.anchors.loops.range_ends import bound, read_ahead
from search_spaces.anchors.rows.folds.kept_loops import KeptLoops
from search_spaces.anchors.rows.folds.running_folds import alike, reduce_columns
from search_spaces.anchors.rows.reduced_rows import ReducedRows, folds_of_rows
from search_spaces.anchors.rows.row_parts import ready_early, split_outputs, storing
from search_spaces.anchors.rows.scanning import scanning
from search_spaces.programs.grid import Grid
from search_spaces.programs.lowering import buffers
from search_spaces.programs.statements import Statement
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values, cover, padded
from search_spaces.workloads.names import Names

COLUMNS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
# Columns of an iteration if they lie across memory; a CPU takes them one by one, with running values in registers.
COLUMNS_ACROSS = (1, 2, 4, 8, 16, 32, 64, 128)
COLUMNS_ACROSS_CPU = (1, 2, 4, 8, 16)


def why_not_streamed(reduced: ReducedRows) -> str | None:
    """Reason that no loop over the columns computes it, or None."""
    if reduced.structure.folds_scans_of_folds:
        return "scans of folds are folded, which takes whole rows in a tile"
    if reduced.structure.scans and not reduced.on_gpu and not reduced.structure.outer:
        return "a CPU scans whole rows, of any length"
    return None


def column_tilings(reduced: ReducedRows) -> tuple[tuple[int, ...], ...]:
    """Numbers of columns of an iteration."""
    structure, extent = reduced.structure, reduced.structure.column.extent
    if not structure.outer:
        fitting = tuple(c for c in COLUMNS if c < extent) or (COLUMNS[0] if reduced.on_gpu else extent,)
        if len(structure.reduced) > 1 and fitting[-1] < extent <= COLUMNS[-1]:
            # Within another loop, whole columns are an iteration of it.
            fitting = (*fitting, padded(extent) if reduced.on_gpu else extent)
    else:
        fitting = tuple(c for c in (COLUMNS_ACROSS if reduced.on_gpu else COLUMNS_ACROSS_CPU) if c <= extent)
    return tuple(cover(extent, (c,)) for c in fitting)


def streamed_program(reduced: ReducedRows, values: Values) -> TileProgram:
    """A kernel with a loop for each group of folds that share one, and one for the other outputs."""
    workload, structure = reduced.workload, reduced.structure
    rows, loop = reduced.streams(values)
    names, known = Names({s.name for s in workload.stages}), dict[str, Tile]()
    by, online = reduced.accumulated(values), values.flag("online")
    body: list[Statement] = []
    points, per_row = split_outputs(structure)
    early = ready_early(structure, points)
    before, forms = rows.emitter(None, names, known), frozenset().union(*reduced.ranges.values())
    place = {**rows.place, **bound(forms, reduced.guards.ends, before, tiled=reduced.on_gpu)}
    if reduced.on_gpu:
        rows = replace(rows, ahead=read_ahead(forms, reduced.guards.ends, before))
    body += before.body
    whole = replace(rows, structure=replace(structure, folds=folds_of_rows(structure)))
    for number, group in enumerate(reduced.of_whole_rows.when(online)):
        scanned, start = scanning(whole, group.stages, names)
        guards = alike(reduced.unchanged, group) | alike(reduced.ranges, group)
        some = replace(loop, unchanged=frozenset() if start else guards, rows=place)
        body += start
        if early and number == 0:
            some = storing(some, rows, early, names)
        body += reduce_columns(scanned, some, group, names, known, by)
    points = [] if early else points
    if structure.kept:
        body += KeptLoops(rows, loop, by, online, names, reduced.unchanged).statements(known, points)
        points = []

    scanned, start = scanning(rows, points, names)

    def write(columns: Slice | None) -> list[Statement]:
        emitter = scanned.emitter(columns, names, known)
        rows.store(points if columns else per_row, emitter)
        return emitter.body

    body += [*start, *(loop.over(write) if points else ()), *(write(None) if per_row else ())]
    kernel = Kernel(workload.name, Grid(rows.grid), tuple(body), reduced.launch)
    return TileProgram(workload.name, buffers(workload), (kernel,))
