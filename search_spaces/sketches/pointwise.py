"""Pointwise work: the outputs are cut into tiles, one program each, or a few persistent programs walk them.

Before:  for i in N: out[i] = f(x[i])
After:   grid i.0 in N/T: x_tile = load x[i.0*T : +T]; store out[i.0*T : +T] = f(x_tile)

Axes merge first where every tensor allows it, so that x, y and out of one shape are walked as vectors.
"""

from __future__ import annotations

from search_spaces.devices.target import Target
from search_spaces.devices.warps import WARP
from search_spaces.errors import UnmatchedError
from search_spaces.programs.lowering import Emitter, Names, buffers
from search_spaces.programs.tile_program import Grid, GridAxis, Kernel, Launch, Slice, TileProgram
from search_spaces.schedules.knobs import Choice, Knob, Tiling, Values, cover, nearest
from search_spaces.schedules.space import Sketch
from search_spaces.structure.axes import Structure, structure_of
from search_spaces.workloads.expression import Affine
from search_spaces.workloads.workload import Axis, Workload

# Persistent grids start this many programs per multiprocessor: enough to hide latency, few enough to stay resident.
PERSISTENT_PROGRAMS_PER_SM = 4

# (elements a thread, warps) of the tiles to start from: one to four vectors of 16 bytes of a narrow type a thread.
_SEEDS = ((8, 4), (16, 4), (16, 8), (32, 4))

# How far ahead a CPU prefetches: not at all, or far enough to cover the latency of memory at its bandwidth.
PREFETCH_BYTES = (0, 1024, 4096)


def derive(workload: Workload, target: Target) -> tuple[Sketch, ...]:
    """One sketch for a workload without reductions."""
    structure = structure_of(workload)
    if structure.folds:
        raise UnmatchedError(f"{structure.folds[0].name} folds")
    knobs = _gpu_knobs(structure) if target.kind == "gpu" else _cpu_knobs(structure)
    return (
        Sketch(
            "pointwise",
            knobs,
            lambda values: _lower(structure, target, values),
            legality_knobs=("rows", "columns", "warps"),
            seeds=_seeds({k.name: k for k in knobs}) if target.kind == "gpu" else (),
        ),
    )


def _split_axes(structure: Structure) -> tuple[tuple[Axis, ...], Axis, Axis]:
    """Outer axes (one position a program), the row axis and the column axis (tiled)."""
    axes = structure.parallel
    if len(axes) == 1:
        return (), Axis("", 1), axes[0]
    return axes[:-2], axes[-2], axes[-1]


def _gpu_knobs(structure: Structure) -> tuple[Knob, ...]:
    _, row, column = _split_axes(structure)
    rows = [r for r in (1, 2, 4, 8, 16, 32, 64) if r < 2 * row.extent]
    columns = [c for c in (64, 128, 256, 512, 1024, 2048, 4096, 8192) if c < 2 * max(64, column.extent)]
    return (
        Tiling("rows", row.extent, ("grid", "tile"), tuple(cover(row.extent, (r,)) for r in rows)),
        Tiling("columns", column.extent, ("grid", "tile"), tuple(cover(column.extent, (c,)) for c in columns)),
        Choice("warps", (1, 2, 4, 8, 16)),
        Choice("persistent", (False, True)),
        Choice("streaming", (False, True)),
    )


def _seeds(knobs: dict[str, Knob]) -> tuple[Values, ...]:
    """Whole rows or long pieces of them, as many as give every thread some vectors."""
    seeds = []
    for elements, warps in _SEEDS:
        size = elements * WARP * warps
        columns = nearest(knobs["columns"], size)
        assert isinstance(columns, tuple)
        values = {"rows": nearest(knobs["rows"], max(1, size / columns[-1])), "columns": columns, "warps": warps}
        seeds.append(Values({**values, "persistent": False, "streaming": False}))
    return tuple(seeds)


def _cpu_knobs(structure: Structure) -> tuple[Knob, ...]:
    _, row, column = _split_axes(structure)
    rows = [r for r in (1, 2, 4, 8, 16) if r < 2 * row.extent]
    columns = sorted({min(c, column.extent) for c in (256, 1024, 4096, 16384, 65536, 262144)})
    return (
        Tiling("rows", row.extent, ("grid", "tile"), tuple(cover(row.extent, (r,)) for r in rows)),
        Tiling("columns", column.extent, ("grid", "tile"), tuple(cover(column.extent, (c,)) for c in columns)),
        Choice("vectors", (1, 2, 4, 8)),
        Choice("prefetch", PREFETCH_BYTES),
        Choice("streaming", (False, True)),
    )


def _lower(structure: Structure, target: Target, values: Values) -> TileProgram:
    outer, row, column = _split_axes(structure)
    workload = structure.workload
    height, width = values.tiling("rows"), values.tiling("columns")
    place = {a.name: Slice(Affine.of((f"{a.name}.0", 1))) for a in outer}
    grid = [GridAxis(f"{a.name}.0", a.extent) for a in outer]
    if row.name:
        grid.append(GridAxis(f"{row.name}.0", height[0]))
        place[row.name] = Slice(Affine.of((f"{row.name}.0", height[1])), height[1])
    grid.append(GridAxis(f"{column.name}.0", width[0]))
    place[column.name] = Slice(Affine.of((f"{column.name}.0", width[1])), width[1])
    emitter = Emitter(place, {t.name: t.dtype for t in workload.inputs}, Names())
    for output in structure.outputs:
        result = emitter.tile(structure.body_of(output), output.name)
        emitter.store(output.name, tuple(a.name for a in output.axes), result, streaming=values.flag("streaming"))
    persistent = PERSISTENT_PROGRAMS_PER_SM * target.num_sms if values.get("persistent") else None
    kernel = Kernel(
        workload.name, Grid(tuple(grid), persistent=persistent), tuple(emitter.body), launch(target, values)
    )
    return TileProgram(workload.name, buffers(workload), (kernel,))


def launch(target: Target, values: Values) -> Launch:
    """How an element-wise kernel is launched, from the knobs `warps` (GPU) or `vectors` (CPU)."""
    if target.kind == "gpu":
        return Launch(num_warps=values.integer("warps"))
    return Launch(lanes=target.lanes, vectors=values.integer("vectors"), prefetch_bytes=values.integer("prefetch"))
