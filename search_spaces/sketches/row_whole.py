"""Row reductions with whole rows in one tile: read once, reduce and write without going back to memory.

Before:  for r: for c: top = max(top, x[r, c]) …  for c: out[r, c] = …
After:   grid r.0 in R/H (maybe persistent):
           x_tile = load x[r.0*H : +H, all columns]
           top = max of x_tile over c;  …;  store out[r.0*H : +H, all columns]
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.devices.target import Target
from search_spaces.devices.warps import WARP
from search_spaces.programs.lowering import Names, buffers
from search_spaces.programs.tile_program import Grid, Kernel, Slice, Tile, TileProgram
from search_spaces.schedules.knobs import Choice, Knob, Values, nearest
from search_spaces.schedules.space import Sketch
from search_spaces.sketches.pointwise import PERSISTENT_PROGRAMS_PER_SM, PREFETCH_BYTES, launch
from search_spaces.sketches.rows.row_parts import ROWS_OUTER, RowTiles, fold, row_form_on, row_tiling
from search_spaces.structure.forms import RowForm
from search_spaces.workloads.expression import Affine
from search_spaces.workloads.workload import Workload

# A tile of more elements than half the registers of a multiprocessor leaves too few for anything else.
MAX_ELEMENTS = 32768
# A longer row does not stay in the second-level cache of a CPU between its passes.
MAX_COLUMNS_CPU = 65536
# (elements a thread, warps) of the tiles to start from, some vectors of 16 bytes a thread; the first few of them that
# hold a row, or nearly.
_SEEDS = ((8, 4), (16, 4), (32, 4), (16, 8), (32, 8), (64, 8), (32, 16), (64, 16), (32, 32))
_MOST_STARTS = 6
_NEARLY = 0.7


def derive(workload: Workload, target: Target) -> tuple[Sketch, ...]:
    """One sketch for reductions over one axis whose rows fit a tile; on a CPU, of rows that lie along memory."""
    found = row_form_on(workload, target)
    if found is None:
        return ()
    workload, form = found
    least = ROWS_OUTER[0] if form.outer else 1
    if target.kind == "gpu" and padded_columns(form, target) * least > MAX_ELEMENTS:
        return ()
    if target.kind != "gpu" and (form.outer or form.column.extent > MAX_COLUMNS_CPU):
        return ()
    knobs = _gpu_knobs(form, target) if target.kind == "gpu" else _cpu_knobs(form, target)
    seeds = _seeds(form, target, {k.name: k for k in knobs}) if target.kind == "gpu" else ()
    return (
        Sketch(
            "row_whole", knobs, lambda values: _lower(workload, form, target, values), ("rows", "warps"), seeds=seeds
        ),
    )


def _seeds(form: RowForm, target: Target, knobs: dict[str, Knob]) -> tuple[Values, ...]:
    """As many rows as give every thread some vectors, and one walk over the grid."""
    columns = padded_columns(form, target)
    least = _NEARLY * (ROWS_OUTER[0] if form.outer else 1)
    sizes = [(elements * WARP * warps / columns, warps) for elements, warps in _SEEDS]
    fitting = [(rows, warps) for rows, warps in sizes if rows >= least][:_MOST_STARTS]
    return tuple(
        Values({"rows": nearest(knobs["rows"], rows), "warps": warps, "persistent": False, "streaming": False})
        for rows, warps in fitting
    )


def _gpu_knobs(form: RowForm, target: Target) -> tuple[Knob, ...]:
    rows = row_tiling(form, target)
    fitting = tuple(v for v in rows.values if v[-1] * padded_columns(form, target) <= MAX_ELEMENTS)
    return (
        replace(rows, values=fitting),
        Choice("warps", (1, 2, 4, 8, 16, 32)),
        Choice("persistent", (False, True)),
        Choice("streaming", (False, True)),
    )


def _cpu_knobs(form: RowForm, target: Target) -> tuple[Knob, ...]:
    return (
        row_tiling(form, target),
        Choice("vectors", (1, 2, 4, 8)),
        Choice("prefetch", PREFETCH_BYTES),
        Choice("streaming", (False, True)),
    )


def padded_columns(form: RowForm, target: Target) -> int:
    """The columns of a tile: a GPU tile has a power of two, of at least 16."""
    extent = form.column.extent
    least = 1 if form.outer else 16
    return max(least, 1 << (extent - 1).bit_length()) if target.kind == "gpu" else extent


def _lower(workload: Workload, form: RowForm, target: Target, values: Values) -> TileProgram:
    rows = RowTiles(workload, form, values.tile("rows"))
    columns = Slice(Affine(), padded_columns(form, target))
    emitter = rows.emitter(columns, Names(), {})
    known: dict[str, Tile] = emitter.tiles
    for stage in form.reductions:
        known[stage.name] = fold(rows, emitter, stage, columns, stage.name)
    rows.store_output(emitter, values.flag("streaming"))
    persistent = PERSISTENT_PROGRAMS_PER_SM * target.num_sms if values.get("persistent") else None
    kernel = Kernel(workload.name, Grid(rows.grid, persistent=persistent), tuple(emitter.body), launch(target, values))
    return TileProgram(workload.name, buffers(workload), (kernel,))
