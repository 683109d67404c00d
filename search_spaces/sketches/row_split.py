"""Row reductions with each row shared by several programs: for few, long rows.

Before:  for r: for c: total += x[r, c];  for c: out[r, c] = …
After:   kernel 1, grid r.0, s in S:  partial_total[s, r] = sum of x over the s-th part of the columns
         kernel 2, grid r.0, s in S:  total = sum of partial_total over s;  store the s-th part of out[r]
One kernel per walk over the columns, each joining the partial results of those before it (rfactor in Halide and TVM).
Where the output has one value per row, the last kernel has programs of fewer rows, so that it has many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from search_spaces.decisions.decision import Anchor, Decision, derived, start
from search_spaces.decisions.pipelining import pipelining
from search_spaces.decisions.prefetching import prefetching
from search_spaces.decisions.splitting import splitting
from search_spaces.decisions.streaming import streaming
from search_spaces.decisions.vectors import vectorizing
from search_spaces.decisions.warps import num_warps
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import buffers, workspace_name
from search_spaces.programs.statements import If, Load, Statement, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Choice, Values, nearest
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.space import Sketch
from search_spaces.sketches.points.rounding_in_pairs import rounding_in_pairs
from search_spaces.sketches.row_looped import column_tiling
from search_spaces.sketches.rows.aligned_rows import ALIGNED, AlignedRows, aligned_rows, with_aligned
from search_spaces.sketches.rows.column_walk import ColumnWalk
from search_spaces.sketches.rows.row_parts import (
    ROWS_OUTER,
    RowTiles,
    folded_in,
    ready_early,
    row_tiling,
    rows_on,
    split_outputs,
    spread,
    storing,
)
from search_spaces.sketches.rows.running_folds import Walks, join_parts, reduce_part, walks_on
from search_spaces.sketches.rows.thread_parts import Accumulated, accumulated, accumulations
from search_spaces.structure.axes import Structure
from search_spaces.structure.folds.dependent import Group
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Stage, Workload

SPLITS = (2, 4, 8, 16, 32, 64, 128, 256, 512)
# A part of fewer elements is not worth a program: 16 bytes of bfloat16 for each of 128 threads.
MIN_PART = 1024
# Elements of partial results that a program of the last kernel joins at once, if it can choose: 32 a thread of 4 warps.
JOINED = 4096
# Parts of all rows that a thread of a CPU has at most: it has only to be busy.
_PARTS_PER_THREAD = 4
# (rows, columns, warps, stages), see `row_looped`; and programs per multiprocessor, enough to hide latency.
_SEEDS = ((1, 2048, 4, 1), (1, 4096, 8, 1), (1, 8192, 8, 1))
_SEEDS_OUTER = ((128, 32, 4, 1), (64, 64, 4, 1), (256, 32, 8, 1), (128, 32, 4, 3))
_PROGRAMS_PER_SM = (4, 8)


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for reductions of rows long enough to share; on a CPU, where there are fewer rows than threads."""
    structure = rows_on(workload, target)
    if target.kind != "gpu":
        _check_on_cpu(structure, target)
    if structure.scans:
        raise UnmatchedError(f"{structure.scans[0].name} is a scan")
    if structure.kept:
        raise UnmatchedError("folds of folds are not shared among programs")
    if not splits(structure, target):
        raise UnmatchedError(f"rows of {_points(structure)} elements are too short to share among programs")
    walks, on_cpu = walks_on(structure, target), target.kind != "gpu"
    aligned = aligned_rows(structure, target)
    decisions = _decisions(structure, target, walks, aligned)
    starts = () if on_cpu else _starts(structure, target, walks, decisions)
    rules = [Rule(("split", "columns"), lambda values: _why_idle(structure, values))] if on_cpu else []
    rules += [Rule(("online", ALIGNED.name), walks.why_not_aligned)] if aligned else []

    def lower(values: Values) -> TileProgram:
        program = _lower(structure, target, values, walks.when(values.flag("online")), aligned)
        return rounding_in_pairs(program, target)

    anchor = Anchor("row_split", lower, tuple(rules), with_aligned(starts) if aligned else starts)
    return (derived(anchor, decisions),)


def _check_on_cpu(structure: Structure, target: Target) -> None:
    """Refuse rows that keep all threads busy, and kernels that would join parts and walk columns, too."""
    count = math.prod(x.extent for x in structure.parallel)
    if count >= target.num_sms or structure.outer:
        raise UnmatchedError(f"{count} rows are as many as the {target.num_sms} threads, or lie across memory")
    points, _ = split_outputs(structure)
    if points and not ready_early(structure, points):
        raise UnmatchedError(f"{points[0].name} needs whole folds, and a CPU's kernel joins their parts only")


def _why_idle(structure: Structure, values: Values) -> str | None:
    """A loop of a CPU has a turn, so every program needs columns."""
    split = values.integer("split")
    shared = structure.reduced[0].extent if _shares_around(structure, split) else values.tiling("columns")[0]
    if (split - 1) * -(-shared // split) >= shared:
        return f"split={split} of {shared} iterations leaves some programs none; choose fewer"
    return None


def _points(structure: Structure) -> int:
    """The elements of a row."""
    return math.prod(x.extent for x in structure.reduced)


def splits(structure: Structure, target: Target) -> tuple[int, ...]:
    """Into how many parts a row can be cut that are worth it for as many rows as a program may have."""
    highest = min(structure.rows, ROWS_OUTER[-1]) if structure.outer else 1
    most = SPLITS[-1] if target.kind == "gpu" else _PARTS_PER_THREAD * target.num_sms
    worth = (s for s in SPLITS if _points(structure) * highest >= s * MIN_PART and s <= most)
    return tuple(s for s in worth if structure.column.extent >= 2 * s or _shares_around(structure, s))


def _shares_around(structure: Structure, split: int) -> bool:
    """Whether so many programs share the outermost reduced axis, and not the columns."""
    return len(structure.reduced) > 1 and structure.reduced[0].extent >= split


def _decisions(structure: Structure, target: Target, walks: Walks, aligned: AlignedRows | None) -> tuple[Decision, ...]:
    extent = structure.column.extent
    columns = column_tiling(structure, target)
    shared = tuple(value for value in columns.values if value[-1] <= max(1, extent // SPLITS[0]))
    if len(structure.reduced) > 1:
        shared = columns.values
    tiles = (
        splitting(splits(structure, target), SPLITS[-1]),
        Decision(row_tiling(structure, target)),
        Decision(replace(columns, values=shared or columns.values[:1])),
        Decision(Choice("online", walks.choices), bears_on="legality" if aligned else "nothing"),
    )
    streamed = streaming(structure.workload, target)
    if target.kind != "gpu":
        return (*tiles, vectorizing(), prefetching(), streamed)
    by_thread = "thread" in accumulations(structure)
    return (
        *tiles,
        *((Decision(Choice("accumulate", ("point", "thread")), bears_on="nothing"),) if by_thread else ()),
        num_warps(target),
        pipelining(target, (1, 2, 3, 4)),
        streamed,
        *((Decision(ALIGNED),) if aligned else ()),
    )


def _starts(structure: Structure, target: Target, walks: Walks, decisions: Sequence[Decision]) -> tuple[Values, ...]:
    """Tiles of a few vectors a thread, where rows alone make too few programs to keep memory busy."""
    knobs, found = {d.name: d.knob for d in decisions}, []
    outer = math.prod(x.extent for x in structure.parallel[:-1])
    for rows, columns, warps, stages in _SEEDS_OUTER if structure.outer else _SEEDS:
        height = nearest(knobs["rows"], rows)
        assert isinstance(height, tuple)
        for programs, online in product(_PROGRAMS_PER_SM, walks.starts):
            split = programs * target.num_sms / (outer * height[0])
            if split < SPLITS[0]:
                continue
            values = Values(
                split=nearest(knobs["split"], split),
                rows=height,
                columns=nearest(knobs["columns"], columns),
                online=online,
                accumulate="thread" if online else "point",
                warps=warps,
                stages=nearest(knobs["stages"], stages),
            )
            found.append(start(decisions, values))
    return tuple(found)


def _lower(
    structure: Structure, target: Target, values: Values, walks: Sequence[Group], aligned: AlignedRows | None
) -> TileProgram:
    workload = structure.workload
    _, width = values.tiling("columns")
    split, around = values.integer("split"), structure.reduced[:-1]
    shares_around = _shares_around(structure, split)
    walk = ColumnWalk(structure.column, width, split, around=around, shares_around=shares_around)
    rows = RowTiles(structure, values.tile("rows"), walk.walked)
    if aligned and values.flag(ALIGNED.name):
        walk = replace(walk, skew=aligned.skew(rows.place))
    by = accumulated(structure, target, values, aligned, "point" if target.kind == "gpu" else "row")
    parts = _Parts(rows, walk, by)
    launched = Launch(lanes=target.lanes)
    points, per_row = split_outputs(structure)
    early = ready_early(structure, points)
    kernels = []
    for i, group in enumerate(walks):
        body = tuple(parts.partial(group, walks[:i], early if i == 0 else []))
        kernels.append(Kernel(f"{workload.name}_{group.stages[-1].name}", parts.grid, body, launched))
    points = [] if early else points
    last = parts if points else parts.finishing()
    grid = parts.grid if points else Grid(last.rows.grid)
    body = tuple(last.finish(walks, points, per_row))
    kernels.append(Kernel(f"{workload.name}_finish", grid, body, launched))
    return TileProgram(
        workload.name, buffers(workload, *(parts.workspace(s) for g in walks for s in g.stages)), tuple(kernels)
    )


@dataclass(frozen=True)
class _Parts:
    """The bodies of the kernels."""

    rows: RowTiles
    walk: ColumnWalk
    by: Accumulated

    @property
    def grid(self) -> Grid:
        """Programs that follow each other read neighbouring memory."""
        part = GridAxis("s", self.walk.split)
        return Grid((part, *self.rows.grid) if self.rows.structure.outer else (*self.rows.grid, part))

    def finishing(self) -> _Parts:
        """The same parts, with as many rows a program as the last kernel joins at once."""
        height = max(1, min(self.rows.height, JOINED // self.walk.split))
        return replace(self, rows=replace(self.rows, height=height))

    def workspace(self, stage: Stage) -> Buffer:
        """One partial result per part and row."""
        shape = (self.walk.split, *(x.extent for x in self.rows.structure.parallel))
        return Buffer(self._workspace_name(stage), shape, folded_in(stage), "workspace")

    def partial(self, group: Group, before: Sequence[Group], early: list[Stage]) -> list[Statement]:
        """Kernel of one walk: fold this program's part of the rows, and write the outputs that are ready."""
        names = Names({s.name for s in self.rows.workload.stages})
        body, known = self._joined(before, names)
        walk = storing(self.walk, self.rows, early, names) if early else self.walk
        part, statistics = reduce_part(self.rows, walk, group, names, known, self.by)
        emitter = self.rows.emitter(None, names, known)
        where = (Slice(Affine.of(("s", 1))), *self.rows.place.values())
        for stage, statistic in zip(group.stages, statistics, strict=True):
            stored = spread(emitter, statistic, self.rows.sliced)
            emitter.body.append(Store(self._workspace_name(stage), where, stored.name))
        return [*body, *part, *emitter.body]

    def finish(self, walks: Sequence[Group], points: list[Stage], per_row: list[Stage]) -> list[Statement]:
        """The last kernel: join every reduction and write this program's part of the outputs; the first writes rows."""
        names = Names({s.name for s in self.rows.workload.stages})
        body, known = self._joined(walks, names)

        def write(columns: Slice | None) -> list[Statement]:
            emitter = self.rows.emitter(columns, names, known)
            self.rows.store(points if columns else per_row, emitter)
            return emitter.body

        if not points:
            return body + write(None)
        first = [If("s", 0, tuple(write(None)))] if per_row else []
        return [*body, *first, *self.walk.over(write)]

    def _joined(self, walks: Sequence[Group], names: Names) -> tuple[list[Statement], dict[str, Tile]]:
        """Join the partial results of finished walks, in a fixed order."""
        body: list[Statement] = []
        known: dict[str, Tile] = {}
        where = (Slice(Affine(), self.walk.split, "s"), *self.rows.place.values())
        shape = (self.walk.split, *self.rows.sliced.values())
        for group in walks:
            tiles = [
                Tile(names.fresh(f"{s.name}_parts"), ("s", *self.rows.sliced), shape, folded_in(s))
                for s in group.stages
            ]
            loads = [Load(t, self._workspace_name(s), where) for s, t in zip(group.stages, tiles, strict=True)]
            body += join_parts(self.rows, group, names, known, tiles, [*loads])
        return body, known

    def _workspace_name(self, stage: Stage) -> str:
        return workspace_name(self.rows.workload, f"partial_{stage.name}")
