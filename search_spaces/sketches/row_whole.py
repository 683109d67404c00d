"""Row reductions with whole rows in one tile: read once, reduce and write without going back to memory.

Before:  for r: for c: top = max(top, x[r, c]) …  for c: out[r, c] = …
After:   grid r.0 in R/H (maybe persistent):
           x_tile = load x[r.0*H : +H, all columns]
           top = max of x_tile over c;  …;  store out[r.0*H : +H, all columns]
"""

from __future__ import annotations

from search_spaces.expression import Affine
from search_spaces.knobs import Choice, Knob, Tiling, Values, cover
from search_spaces.lowering import Names, buffers
from search_spaces.row_parts import RowTiles, fold
from search_spaces.sketches.pointwise import PERSISTENT_PROGRAMS_PER_UNIT, PREFETCH_BYTES, launch
from search_spaces.space import Sketch
from search_spaces.structure import RowForm, row_form
from search_spaces.target import Target
from search_spaces.tile_program import Grid, Kernel, Slice, Tile, TileProgram
from search_spaces.workload import Workload

ROWS = (1, 2, 4, 8, 16, 32)
# A row longer than this in one tile spills on every GPU (64k elements over 1024 threads are 64 registers each).
MAX_COLUMNS = 65536


def derive(workload: Workload, target: Target) -> tuple[Sketch, ...]:
    """One sketch for reductions over one axis whose rows fit a tile."""
    found = row_form(workload)
    if found is None or found[1].column.extent > MAX_COLUMNS:
        return ()
    workload, form = found
    knobs = _gpu_knobs(form) if target.kind == "gpu" else _cpu_knobs(form)
    return (Sketch("row_whole", knobs, lambda values: _lower(workload, form, target, values), ("rows", "warps")),)


def row_tiling(form: RowForm) -> Tiling:
    """How many rows a program takes at once."""
    extent = form.rows[-1].extent
    heights = [h for h in ROWS if h < 2 * extent]
    return Tiling("rows", extent, ("grid", "tile"), tuple(cover(extent, (h,)) for h in heights))


def _gpu_knobs(form: RowForm) -> tuple[Knob, ...]:
    return (
        row_tiling(form),
        Choice("warps", (1, 2, 4, 8, 16, 32)),
        Choice("persistent", (False, True)),
        Choice("streaming", (False, True)),
    )


def _cpu_knobs(form: RowForm) -> tuple[Knob, ...]:
    return (
        row_tiling(form),
        Choice("vectors", (1, 2, 4, 8)),
        Choice("prefetch", PREFETCH_BYTES),
        Choice("streaming", (False, True)),
    )


def padded_columns(form: RowForm, target: Target) -> int:
    """The columns of a tile: a GPU tile has a power of two, of at least 16."""
    extent = form.column.extent
    return max(16, 1 << (extent - 1).bit_length()) if target.kind == "gpu" else extent


def _lower(workload: Workload, form: RowForm, target: Target, values: Values) -> TileProgram:
    rows = RowTiles(workload, form, values.tile("rows"))
    columns = Slice(Affine(), padded_columns(form, target))
    emitter = rows.emitter(columns, Names(), {})
    known: dict[str, Tile] = emitter.tiles
    for stage in form.reductions:
        known[stage.name] = fold(rows, emitter, stage, columns, stage.name)
    last = workload.stages[-1]
    result = known[last.name] if last.reduction else emitter.tile(rows.body_of(last), last.name)
    emitter.store(last.name, rows.output_axes(), result, streaming=values.flag("streaming"))
    persistent = PERSISTENT_PROGRAMS_PER_UNIT * target.units if values.get("persistent") else None
    kernel = Kernel(workload.name, Grid(rows.grid, persistent=persistent), tuple(emitter.body), launch(target, values))
    return TileProgram(workload.name, buffers(workload), (kernel,))
