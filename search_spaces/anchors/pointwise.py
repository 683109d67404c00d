"""Pointwise work: the outputs are cut into tiles, one per program, or several for each of a few persistent programs.

Before:  for i in N: out[i] = f(x[i])
After:   grid i.0 in N/T: x_tile = load x[i.0*T : +T]; store out[i.0*T : +T] = f(x_tile)

Axes are merged first if every tensor allows it, so that x, y and out of one shape are read and written as vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from search_spaces.anchors.points.flat_points import FlatPoints, flat_axes
from search_spaces.anchors.points.one_segment import write_outputs
from search_spaces.anchors.points.rounding_in_pairs import rounding_in_pairs
from search_spaces.anchors.points.tiled_axes import LEAST_COLUMNS, NO_AXIS, TiledAxes, tiled_axes
from search_spaces.anchors.points.unrolling import Unrolling
from search_spaces.anchors.thread_tiles import thread_tiles
from search_spaces.decisions.decision import Anchor, Decision, derived, start
from search_spaces.decisions.loops.unrolling import COLUMNS as COLUMNS_WRITTEN_OUT
from search_spaces.decisions.loops.unrolling import PLANES, unrolled_columns, unrolled_planes, unrolled_rows
from search_spaces.decisions.loops.unrolling import ROWS as ROWS_WRITTEN_OUT
from search_spaces.decisions.loops.vectors import across, vectorizing
from search_spaces.decisions.memory.addressing import selected
from search_spaces.decisions.memory.prefetching import prefetching
from search_spaces.decisions.memory.streaming import streaming
from search_spaces.decisions.programs.persistence import Units, persistence
from search_spaces.decisions.programs.warps import num_warps
from search_spaces.decisions.tiles.class_axes import flat_points
from search_spaces.decisions.tiles.tiling import tiling
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, Place, buffers
from search_spaces.programs.selecting import Selections
from search_spaces.programs.statements import Statement
from search_spaces.programs.tile_program import Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Slice
from search_spaces.schedules.knobs import Knob, Values, nearest, padded
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule, only
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.axes import Structure, structure_of, windowed
from search_spaces.structure.reads.windows import MAX_WINDOW
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Apply
from search_spaces.workloads.expressions.walking import distinct_accesses, walk
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Workload

# Of the tiles of some vectors per thread, those to start from: one to four vectors.
_STARTS = slice(4)
# Unrolled rows and columns, if points share what they read; tiles are then half as large.
_UNROLLED_STARTS = ((1, 1), (1, 4), (2, 2), (2, 4))
# Unrolled planes and rows where these and vectors of columns are one axis: the more, the fewer reads of a point, and
# the more registers of a thread.
_WINDOW_STARTS = ((1, 4), (2, 4), (4, 4), (2, 2), (4, 2), (1, 8), (8, 1), (1, 1))
# The same of a CPU, whose sums of eight points and what these read are in registers.
_REGISTER_STARTS = ((2, 4), (4, 2), (1, 8), (1, 4), (2, 2), (7, 2), (8, 1))
# Vectors if rows and columns are one axis, and the most columns of a vector of each.
_FLAT_STARTS, _FLAT_WIDTHS = slice(1, 5), (4, 4, 4, 8)

# Reads of all unrolled points: printing and compiling more of them takes seconds.
_MOST_READS = 1024

# Reads of all points of a thread of a GPU, where points are windows. Of 750 kernels of depthwise convolutions for an
# H100, those of more took 4 to 60 s to compile in the mean, others up to 2.6 s, and none of more was the fastest.
_MOST_READS_OF_A_THREAD = 2048

# Positions of the axes of a tile; short rows have more per tile.
ROWS = (1, 2, 4, 8, 16, 32, 64)
MORE_ROWS = (128, 256, 512, 1024)
COLUMNS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
ROWS_CPU = (1, 2, 4, 8, 16)
COLUMNS_CPU = (256, 1024, 4096, 16384, 65536, 262144)
# Columns of a tile that is read along another axis: some vectors of both.
_TURNED_COLUMNS = 64

_TILED = ("volumes", "planes", "rows", "columns")
# Knobs of unrolling, by the axes that they unroll, the outermost first.
UNROLLED = {"unrolled_planes": "planes", "unrolled_rows": "rows", "unrolled_columns": "columns"}


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for a workload without reductions, but of windows."""
    structure = _points(workload, target)
    axes = tiled_axes(structure)
    if target.kind == "gpu":
        axes = replace(axes, flat=flat_axes(structure, axes, _has_selections(structure)))
    decisions = _on_gpu(structure, axes, target) if target.kind == "gpu" else _on_cpu(structure, axes, target)
    named = {d.name: d.knob for d in decisions}
    anchor = Anchor(
        "pointwise",
        lambda values: rounding_in_pairs(_lower(structure, axes, target, values), target),
        rules=_rules(structure, axes, named, target.wave),
        decided_first=tuple(x for x in ("flat",) if x in named),
        starts=_starts(axes, target, decisions) if target.kind == "gpu" else _starts_on_cpu(axes, decisions),
    )
    return (derived(anchor, decisions),)


def _points(workload: Workload, target: Target) -> Structure:
    """The structure of points, whose windows are unrolled, or loops over rows where compilers would take seconds.

    On a CPU, whose compiler takes less, the running values of a loop are in memory.
    """
    structure = structure_of(workload)
    if structure.reduced:
        return windowed(workload)
    if target.kind == "cpu" or _reads(structure) <= MAX_WINDOW:
        return structure
    try:
        return windowed(workload)
    except UnmatchedError:
        return structure


def _reads(structure: Structure) -> int:
    """Reads of the output that has most, at one point."""
    return max(len(distinct_accesses(structure.body_of(s))) for s in (*structure.outputs, *structure.folds))


def _why_too_long(reads: int, values: Values) -> str | None:
    """A body is written out for a few hundred reads."""
    points = math.prod(values.integer(name, 1) for name in UNROLLED)
    if points == 1 or points * reads <= _MOST_READS:
        return None
    return f"{points} unrolled points of {reads} reads each; at most {_MOST_READS} reads are written out"


def _why_too_long_for_a_thread(reads: int, threads: int, values: Values) -> str | None:
    """A thread's points are written out, too."""
    unrolled = math.prod(values.integer(name, 1) for name in UNROLLED)
    tile = math.prod(values.tile(name) for name in _TILED if name in values)
    points = values.integer("flat") * unrolled if _is_flat(values) else tile
    of_a_thread = points * reads // (threads * values.integer("warps"))
    if of_a_thread <= _MOST_READS_OF_A_THREAD:
        return None
    return f"{of_a_thread} reads of a thread; at most {_MOST_READS_OF_A_THREAD} are written out"


def _rules(structure: Structure, axes: TiledAxes, knobs: Mapping[str, Knob], wave: int) -> tuple[Rule, ...]:
    found = [Rule(("across", "planes"), _why_not_across)] if "across" in knobs else []
    if "across" in knobs:
        own = [name for name in UNROLLED if name in knobs]
        found += [only(name, 1, ("across",), _is_across, "rows are vectors") for name in own]
    for name, tiled in UNROLLED.items():
        if name in knobs:
            axis = {"columns": axes.column, **axes.shared}[tiled]
            concerned = tuple(x for x in ("flat", axes.tilings.get(axis, ""), name) if x in knobs)
            found.append(Rule(concerned, partial(_why_not_unrolled, axes, name, axis)))
    counts = tuple(name for name in UNROLLED if name in knobs)
    if counts:
        found.append(Rule(counts, partial(_why_too_long, _reads(structure))))
    if counts and "warps" in knobs:
        concerned = tuple(x for x in ("flat", *_TILED, *counts, "warps") if x in knobs)
        found.append(Rule(concerned, partial(_why_too_long_for_a_thread, _reads(structure), wave)))
    if "flat" in knobs:
        # A vector of columns in rows that are one with them.
        merged = ("unrolled_rows",) if "unrolled_columns" in knobs else ()
        own = [name for name in (*_TILED, *merged) if name in knobs]
        found += [only(name, knobs[name].values[0], ("flat",), _is_flat, "its axis is one with others") for name in own]
    if {"flat", "unrolled_columns"} <= knobs.keys():
        found.append(Rule(("flat", "unrolled_columns"), partial(_why_not_divided, axes.column.extent)))
    return tuple(found)


def _is_across(values: Values) -> bool:
    return values.flag("across")


def _is_flat(values: Values) -> bool:
    return values.integer("flat", 0) > 0


def _why_not_divided(extent: int, values: Values) -> str | None:
    """Vectors end where rows do."""
    width = values.integer("unrolled_columns")
    if not _is_flat(values) or extent % width == 0:
        return None
    return f"unrolled_columns={width} does not divide {extent} columns, which are one axis with the rows"


def _on_gpu(structure: Structure, axes: TiledAxes, target: Target) -> tuple[Decision, ...]:
    heights = (*ROWS, *MORE_ROWS) if axes.short else ROWS
    widths = [c for c in COLUMNS if c < 2 * max(LEAST_COLUMNS, axes.column.extent)]
    if axes.column.extent < LEAST_COLUMNS:
        widths.insert(0, padded(axes.column.extent))
    selects = _has_selections(structure)
    vectors = bool(axes.flat) and axes.flat != structure.parallel
    tiles = (
        *_outer_tiling("volumes", axes.volume),
        *_outer_tiling("planes", axes.plane),
        tiling("rows", axes.row.extent, "grid", [r for r in heights if r < 2 * axes.row.extent]),
        tiling("columns", axes.column.extent, "grid", widths),
        *([unrolled_planes()] if "planes" in axes.shared else []),
        *([unrolled_rows()] if "rows" in axes.shared else []),
        *([unrolled_columns()] if vectors or "columns" in axes.shared else []),
        *([flat_points()] if axes.flat else []),
    )
    deciding = [k.name for k in tiles]
    return (
        *tiles,
        *([selected()] if selects else []),
        num_warps(target),
        *persistence(Units(lambda values: target.num_sms), deciding, lambda values: _tiles(structure, axes, values)),
        streaming(structure.workload, target),
    )


def _tiles(structure: Structure, axes: TiledAxes, values: Values) -> int:
    """Number of tiles of the outputs."""
    return math.prod(axis.extent for axis in _grid(structure, axes, values)[0])


def _outer_tiling(name: str, axis: Axis) -> tuple[Decision, ...]:
    return () if axis == NO_AXIS else (tiling(name, axis.extent, "grid", [r for r in ROWS if r < 2 * axis.extent]),)


def _starts(axes: TiledAxes, target: Target, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """Whole rows or long pieces of them, as many as give every thread some vectors; squares for transposed reads."""
    knobs = {d.name: d.knob for d in decisions}
    unrolled = not knobs.keys().isdisjoint(UNROLLED)
    tiles = thread_tiles(target)[_STARTS]
    if unrolled:
        tiles = (*((size // 2, warps) for size, warps in tiles), (tiles[0][0] // 2, 1))
    sizes = [(size, warps, size) for size, warps in tiles]
    if axes.turned:
        sizes = [(size, warps, _TURNED_COLUMNS) for size, warps, _ in sizes[:2]] + sizes
    found = []
    for size, warps, width in sizes:
        columns = nearest(knobs["columns"], min(width, axes.column.extent) if axes.short else width)
        assert isinstance(columns, tuple)
        rows = nearest(knobs["rows"], max(1, size / columns[-1]))
        assert isinstance(rows, tuple)
        values = Values(rows=rows, columns=columns, warps=warps, selected=True)
        rest = size / columns[-1] / rows[-1]
        for name in ("planes", "volumes"):
            if name in knobs:
                values[name] = chosen = nearest(knobs[name], max(1, rest))
                assert isinstance(chosen, tuple)
                rest /= chosen[-1]
        for counts in _UNROLLED_STARTS if unrolled else _UNROLLED_STARTS[:1]:
            given = dict(zip(("unrolled_rows", "unrolled_columns"), counts, strict=True))
            found.append(start(decisions, Values({**values, **given})))
    if "flat" in knobs and "unrolled_columns" not in knobs:
        return _window_starts(target, decisions) + tuple(found)
    return tuple(found) + _flat_starts(axes, target, decisions)


def _window_starts(target: Target, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """All axes as one, in a vector of the columns or half of one for every thread."""
    tiles = [(size // part, warps) for size, warps in thread_tiles(target)[:1] for part in (1, 2)]
    flat = next(d.knob for d in decisions if d.name == "flat")
    return tuple(
        start(decisions, Values(flat=nearest(flat, size), warps=warps, unrolled_planes=planes, unrolled_rows=rows))
        for planes, rows in _WINDOW_STARTS
        for size, warps in tiles
    )


def _starts_on_cpu(axes: TiledAxes, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """Points that share reads: as many sums as leave registers for what is read, one vector of each."""
    knobs = {d.name: d.knob for d in decisions}
    found = []
    for counts in _REGISTER_STARTS if axes.shared.keys() & {"planes", "rows"} else ():
        given = dict(zip(("unrolled_planes", "unrolled_rows"), counts, strict=True))
        chosen = {name: nearest(knobs[name], count) for name, count in given.items() if name in knobs}
        rows = nearest(knobs["rows"], max(counts))
        found.append(start(decisions, Values(rows=rows, columns=knobs["columns"].values[-1], **chosen)))
    return tuple(found)


def _flat_starts(axes: TiledAxes, target: Target, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """Rows and columns as one axis, in vectors as wide as divide the rows."""
    knobs = {d.name: d.knob for d in decisions}
    if "flat" not in knobs:
        return ()
    width = max(w for w in COLUMNS_WRITTEN_OUT if axes.column.extent % w == 0)
    tiles = zip(thread_tiles(target)[_FLAT_STARTS], _FLAT_WIDTHS, strict=False)
    given = (
        Values(flat=nearest(knobs["flat"], size / most), warps=warps, unrolled_columns=min(width, most), selected=True)
        for (size, warps), most in tiles
    )
    return tuple(start(decisions, values) for values in given)


def _on_cpu(structure: Structure, axes: TiledAxes, target: Target) -> tuple[Decision, ...]:
    # Vectors along a few positions are mostly empty; across them, elements are stored one by one.
    short = axes.column.extent < 2 * target.lanes < axes.row.extent
    heights = [r for r in ROWS_CPU if r < 2 * axes.row.extent]
    if short:
        heights += sorted({min(c, axes.row.extent) for c in COLUMNS_CPU} - {*heights})
    tiles = (
        *((across(), *_outer_tiling("planes", axes.plane)) if short else ()),
        tiling("rows", axes.row.extent, "grid", heights),
        tiling("columns", axes.column.extent, "grid", sorted({min(c, axes.column.extent) for c in COLUMNS_CPU})),
    )
    return (*tiles, *_unrolled_on_cpu(axes), vectorizing(), prefetching(), streaming(structure.workload, target))


def _unrolled_on_cpu(axes: TiledAxes) -> tuple[Decision, ...]:
    """Unrolling of rows, of which the last are moved back to be as many, and of other axes without a rest."""
    found = []
    for name, decision in (("planes", unrolled_planes), ("rows", unrolled_rows)):
        axis = axes.shared.get(name, NO_AXIS)
        whole = tuple(n for n in PLANES if axis.extent % n == 0)
        counts = tuple(n for n in ROWS_WRITTEN_OUT if n <= axis.extent) if axis == axes.row else whole
        found += [decision(counts)] if len(counts) > 1 else []
    return tuple(found)


def _why_not_across(values: Values) -> str | None:
    """A CPU's tile is vectorised along the last of its two axes, or across it."""
    if not values.flag("across") and "planes" in values and values.tile("planes") > 1:
        return f"planes={values.tile('planes')} along the last axis; only 1 is allowed"
    return None


def _selections(structure: Structure) -> Selections:
    ranges = {x.name: (0, x.extent - 1) for x in structure.parallel}
    return Selections({t.name: t.shape for t in structure.workload.inputs}, ranges)


def _has_selections(structure: Structure) -> bool:
    """True if an expression selects among reads of one tensor."""
    known = _selections(structure)
    bodies = (structure.body_of(output) for output in structure.outputs)
    return any(known.read(e) is not None for body in bodies for e in walk(body) if isinstance(e, Apply))


def _why_not_unrolled(axes: TiledAxes, name: str, axis: Axis, values: Values) -> str | None:
    """Unrolled points divide a tile; where an axis has none, they are groups, of which the last may be cut."""
    count, tiled = values.integer(name), axes.tilings.get(axis, "")
    apart = axis != axes.column and _is_flat(values) and axis in axes.flat
    tile = values.tile(tiled) if tiled in values and not apart else 1
    if tile == 1 and (apart or axis not in (axes.row, axes.column)):
        return f"{name}={count} of {axis.extent} positions" if count >= 2 * axis.extent else None
    return f"{name}={count} does not divide a tile of {tile}" if tile % count else None


def _grid(structure: Structure, axes: TiledAxes, values: Values) -> tuple[list[GridAxis], dict[str, Slice]]:
    """The tiles, and the slices of a program's tile."""
    tilings = {axes.row: "rows", axes.column: "columns"}
    for knob, axis in (("planes", axes.plane), ("volumes", axes.volume)):
        if knob in values and values.tile(knob) > 1:
            tilings[axis] = knob
    if values.get("across"):
        del tilings[axes.column]
    unrolled = _unrolled(axes, values)
    place: dict[str, Slice] = {}
    grid: list[GridAxis] = []
    for axis in structure.parallel:
        variable, name = f"{axis.name}.0", tilings.get(axis)
        if name is None:
            together = unrolled.get(axis.name, 1)
            grid.append(GridAxis(variable, -(-axis.extent // together)))
            place[axis.name] = Slice(Affine.of((variable, together)))
        else:
            count, size = values.tiling(name)
            grid.append(GridAxis(variable, count))
            place[axis.name] = Slice(Affine.of((variable, size)), size, axis.name)
    if flat := _flat(axes, values):
        merged = {f"{x.name}.0" for x in flat.axes}
        grid = [*(g for g in grid if g.variable not in merged), flat.grid]
        place |= flat.place
    return grid, place


def _unrolled(axes: TiledAxes, values: Values) -> dict[str, int]:
    """Unrolled positions of the axes that have some, by their names, the outermost first."""
    # Columns may be unrolled as the vectors of what is stored, without a read that they share.
    own = {"columns": axes.column, **axes.shared}
    counts = {own[tiled].name: values.integer(name) for name, tiled in UNROLLED.items() if name in values}
    return {x: count for x, count in counts.items() if count > 1}


def _flat(axes: TiledAxes, values: Values) -> FlatPoints | None:
    """Several axes as one, if the schedule has them so."""
    count = values.integer("flat", 0)
    return FlatPoints(axes.flat, count, _unrolled(axes, values), "unrolled_columns" in values) if count else None


def _lower(structure: Structure, axes: TiledAxes, target: Target, values: Values) -> TileProgram:
    workload, flat = structure.workload, _flat(axes, values)
    grid, place = _grid(structure, axes, values)
    body = _body(structure, axes, place, flat, values, target)
    kernel = Kernel(workload.name, Grid(tuple(grid)), tuple(body), Launch(lanes=target.lanes))
    known = buffers(workload)
    return TileProgram(workload.name, tuple(map(flat.buffer, known)) if flat else known, (kernel,))


def _body(
    structure: Structure, axes: TiledAxes, place: Place, flat: FlatPoints | None, values: Values, target: Target
) -> list[Statement]:
    """Every output at the place."""
    emitter = Emitter(place, {t.name: t.dtype for t in structure.workload.inputs}, Names())
    if values.get("selected"):
        emitter.selections = _selections(structure)
    unrolled = _unrolled(axes, values)
    if flat is not None or unrolled or structure.folds:
        merged, stored = (flat.merged, flat.stored) if flat else ("", None)
        index = [x.name for x in structure.parallel if x.name != merged]
        vectors = target.kind == "gpu"
        return Unrolling(unrolled, axes.column.name, vectors).emit(structure, emitter, stored, index)
    write_outputs(structure, emitter, apart=target.kind == "gpu")
    return emitter.body
