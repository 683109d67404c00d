"""Row reductions that walk the columns in pieces: one loop per reduction, one to write; rows of any length.

Before:  for r: for c: top = max(top, x[r, c]);  for c: total += exp(x[r, c] - top);  for c: out[r, c] = …
After:   grid r.0 in R/H:
           for c.0: top = max(top, max of x_tile)
           for c.0: total += sum of exp(x_tile - top)
           for c.0: store out_tile
With `online`, folds join the loop of those that they depend on where they can, here the sum that of the maximum;
`accumulate` says whether an iteration folds its columns by row, by point or by thread (see `running_folds`). Rows that
lie across memory are always folded by point: a program then has neighbours in memory as its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from search_spaces.decisions.decision import Anchor, Decision, derived, start
from search_spaces.decisions.pipelining import pipelining
from search_spaces.decisions.prefetching import prefetching
from search_spaces.decisions.streaming import streaming
from search_spaces.decisions.vectors import vectorizing
from search_spaces.decisions.warps import num_warps
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.grid import Grid
from search_spaces.programs.lowering import buffers
from search_spaces.programs.statements import Statement
from search_spaces.programs.tile_program import Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Choice, Tiling, Values, cover, nearest, padded
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.space import Sketch
from search_spaces.sketches.points.rounding_in_pairs import rounding_in_pairs
from search_spaces.sketches.rows.aligned_rows import (
    ALIGNED,
    AlignedRows,
    aligned_rows,
    with_aligned,
)
from search_spaces.sketches.rows.column_walk import ColumnWalk
from search_spaces.sketches.rows.contributions import unchanged
from search_spaces.sketches.rows.kept_loops import KeptLoops, Walking
from search_spaces.sketches.rows.row_parts import (
    RowTiles,
    ready_early,
    row_grid,
    row_tiling,
    rows_on,
    split_outputs,
    storing,
)
from search_spaces.sketches.rows.running_folds import Walks, alike, reduce_columns, walks_on
from search_spaces.sketches.rows.scanning import scanning
from search_spaces.sketches.rows.thread_parts import accumulated, accumulations
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Stage, Workload

COLUMNS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
# Columns of an iteration where they lie across memory; a CPU takes them one by one, with running values in registers.
COLUMNS_ACROSS = (1, 2, 4, 8, 16, 32, 64, 128)
COLUMNS_ACROSS_CPU = (1, 2, 4, 8, 16)
# (rows, columns, warps, stages) of tiles to start from: 16 to 64 elements a thread, one iteration in flight or more.
_SEEDS = ((1, 2048, 4, 1), (1, 4096, 4, 1), (1, 4096, 8, 2), (4, 512, 4, 2), (1, 8192, 16, 1))
_SEEDS_OUTER = ((64, 32, 4, 1), (128, 32, 4, 2), (256, 16, 4, 1), (32, 64, 4, 1), (512, 16, 8, 2))
# Of scans, which fold across the threads of a tile in every iteration: few rows, and many columns.
_SEEDS_SCANNED = ((16, 128, 4, 3), (32, 128, 8, 3), (16, 128, 4, 2), (32, 64, 4, 3))
# Rows of a tile to start from on a CPU: of running values of float32, a quarter to half of a first-level cache.
_START_ROWS_CPU = 4096


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for reductions."""
    structure = rows_on(workload, target)
    if structure.folds_scans_of_folds:
        raise UnmatchedError("scans of folds are folded, which takes whole rows in a tile")
    if structure.scans and target.kind != "gpu" and not structure.outer:
        raise UnmatchedError("a CPU scans whole rows, of any length")
    walks, where = walks_on(structure, target), unchanged(structure)
    aligned = None if any(where.values()) else aligned_rows(structure, target)
    decisions = _decisions(structure, target, walks, aligned)
    of_rows = walks_on(replace(structure, folds=folds_of_rows(structure)), target) if structure.kept else walks
    starts = (_starts if target.kind == "gpu" else _cpu_starts)(structure, walks, target, decisions)
    anchor = Anchor(
        "row_looped",
        lambda values: rounding_in_pairs(_lower(structure, target, values, of_rows, where, aligned), target),
        rules=(Rule(("online", ALIGNED.name), walks.why_not_aligned),) if aligned else (),
        starts=with_aligned(starts) if aligned else starts,
    )
    return (derived(anchor, decisions),)


def column_tiling(structure: Structure, target: Target) -> Tiling:
    """How many columns an iteration takes."""
    extent = structure.column.extent
    if not structure.outer:
        fitting = tuple(c for c in COLUMNS if c < extent) or (COLUMNS[0] if target.kind == "gpu" else extent,)
        if len(structure.reduced) > 1 and fitting[-1] < extent <= COLUMNS[-1]:
            # Within another loop, whole columns are an iteration of it.
            fitting = (*fitting, padded(extent) if target.kind == "gpu" else extent)
    else:
        candidates = COLUMNS_ACROSS if target.kind == "gpu" else COLUMNS_ACROSS_CPU
        fitting = tuple(c for c in candidates if c <= extent)
    return Tiling("columns", extent, ("loop", "tile"), tuple(cover(extent, (c,)) for c in fitting))


def _decisions(structure: Structure, target: Target, walks: Walks, aligned: AlignedRows | None) -> tuple[Decision, ...]:
    shared = (
        Decision(row_tiling(structure, target)),
        Decision(column_tiling(structure, target)),
        Decision(Choice("online", walks.choices), bears_on="legality" if aligned else "nothing"),
    )
    streamed = streaming(structure.workload, target)
    if target.kind != "gpu":
        return (*shared, vectorizing(), prefetching(), streamed)
    return (
        *shared,
        Decision(Choice("accumulate", accumulations(structure)), bears_on="nothing"),
        num_warps(target, most=32),
        pipelining(target, (1, 2, 3, 4)),
        *row_grid(structure, target),
        streamed,
        *((Decision(ALIGNED),) if aligned else ()),
    )


def _starts(structure: Structure, walks: Walks, target: Target, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """Tiles of a few vectors a thread, each row read as seldom as can be."""
    own = {d.name: d.knob for d in decisions}
    own_thread = "thread" if "thread" in accumulations(structure) else "row"
    found = []
    across = _SEEDS_SCANNED if structure.scans else _SEEDS_OUTER
    for (rows, columns, warps, stages), online in product(across if structure.outer else _SEEDS, walks.starts):
        # By point an exponential more is computed for every element of what is rescaled.
        by_thread = online and len(walks.starts) == 1 and not structure.outer
        values = Values(
            rows=nearest(own["rows"], rows),
            columns=nearest(own["columns"], columns),
            online=online,
            accumulate=own_thread if by_thread else "point",
            warps=warps,
            stages=nearest(own["stages"], stages),
        )
        found.append(start(decisions, values))
    return tuple(found)


def _cpu_starts(
    structure: Structure, walks: Walks, target: Target, decisions: Sequence[Decision]
) -> tuple[Values, ...]:
    """Rows that lie across memory: long pieces of it, and running values of which a first-level cache holds all."""
    if not structure.outer:
        return ()
    own = {d.name: d.knob for d in decisions}
    rows = nearest(own["rows"], min(_START_ROWS_CPU, structure.rows / target.num_sms))
    tried = [(4, 4, 0, False), (8, 4, 1024, False), (1, 1, 4096, False)]
    if len(walks.starts) > 1:
        # Squares about a mean in one walk: one time through memory less, and nothing dear for it.
        tried.append((4, 4, 0, True))
    wanted = (
        Values(rows=rows, columns=nearest(own["columns"], columns), online=online, vectors=count, prefetch=prefetch)
        for columns, count, prefetch, online in tried
    )
    return tuple(start(decisions, values) for values in wanted)


def folds_of_rows(structure: Structure) -> tuple[Stage, ...]:
    """The folds over all reduced axes."""
    return tuple(s for s in structure.folds if s.reduction and set(s.reduction.axes) == set(structure.reduced))


def _lower(
    structure: Structure,
    target: Target,
    values: Values,
    walks: Walks,
    where: Mapping[str, frozenset[Affine]],
    aligned: AlignedRows | None,
) -> TileProgram:
    """`walks`: of folds over all reduced axes; `where`: where points leave folds unchanged."""
    workload = structure.workload
    _, width = values.tiling("columns")
    one_by_one, around = structure.outer and target.kind != "gpu", structure.reduced[:-1]
    walk = ColumnWalk(
        structure.column,
        width,
        one_by_one=one_by_one,
        around=around,
        backwards=structure.backwards,
    )
    rows = RowTiles(structure, values.tile("rows"), walk.walked)
    if aligned and values.flag(ALIGNED.name):
        walk = replace(walk, skew=aligned.skew(rows.place))
    names, known = Names({s.name for s in workload.stages}), dict[str, Tile]()
    how = Walking(accumulated(structure, target, values, aligned, "row"), values.flag("online"))
    body: list[Statement] = []
    whole = replace(rows, structure=replace(structure, folds=folds_of_rows(structure)))
    points, per_row = split_outputs(structure)
    early = ready_early(structure, points)
    for number, group in enumerate(walks.when(how.online)):
        scanned, start = scanning(whole, group.stages, names)
        some = replace(walk, unchanged=frozenset() if start else alike(where, group), rows=rows.place)
        body += start
        if early and number == 0:
            some = storing(some, rows, early, names)
        body += reduce_columns(scanned, some, group, names, known, how.by)
    points = [] if early else points
    if structure.kept:
        body += KeptLoops(rows, walk, how, names, where).statements(known, points)
        points = []

    scanned, start = scanning(rows, points, names)

    def write(columns: Slice | None) -> list[Statement]:
        emitter = scanned.emitter(columns, names, known)
        rows.store(points if columns else per_row, emitter)
        return emitter.body

    body += [*start, *(walk.over(write) if points else ()), *(write(None) if per_row else ())]
    kernel = Kernel(workload.name, Grid(rows.grid), tuple(body), Launch(lanes=target.lanes))
    return TileProgram(workload.name, buffers(workload), (kernel,))
