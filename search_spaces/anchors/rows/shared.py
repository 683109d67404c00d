"""Shared rows: several programs for each row, and a second kernel that joins their partial results (rfactor).

Before:  for r: for c: total += x[r, c];  for c: out[r, c] = …
After:   kernel 1, grid r.0, s in S:  partial_total[s, r] = sum of x over the s-th part of the columns
         kernel 2, grid r.0, s in S:  total = sum of partial_total over s;  store the s-th part of out[r]
One kernel per loop over the columns, each joining the partial results of those before it (Halide, TVM).
If the output has one value per row, the last kernel has programs of fewer rows, so that it has many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from search_spaces.anchors.loops.range_ends import bound, read_ahead
from search_spaces.anchors.rows.column_loop import ColumnLoop
from search_spaces.anchors.rows.folds.running_folds import alike, join_parts, reduce_part
from search_spaces.anchors.rows.folds.thread_parts import Accumulated
from search_spaces.anchors.rows.reduced_rows import ReducedRows, is_split, shares_around
from search_spaces.anchors.rows.row_parts import (
    ROWS_OUTER,
    RowTiles,
    folded_in,
    ready_early,
    split_outputs,
    spread,
    storing,
)
from search_spaces.anchors.rows.segment_items import segments_of
from search_spaces.anchors.rows.streamed import column_tilings
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import buffers, workspace_name
from search_spaces.programs.statements import If, Load, Statement, Store
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.folds.dependent import Group
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Stage

SPLITS = (2, 4, 8, 16, 32, 64, 128, 256, 512)
# Parts of the columns of all segments, of which each has programs for a few of these.
_OF_SEGMENTS = (1024, 2048, 4096)
# A smaller part is not worth a program: 16 bytes of bfloat16 for each of 128 threads.
MIN_PART = 1024
# Elements of partial results that a program of the last kernel joins at once, if it can choose: 32 a thread of 4 warps.
JOINED = 4096
# Parts of all rows for each thread of a CPU, at most: it has only to be busy.
_PARTS_PER_THREAD = 4
# Prefixes of workspaces of partial results.
PARTIAL = "partial"


def why_not_shared(reduced: ReducedRows) -> str | None:
    """Reason that programs cannot share rows, or None: a CPU's threads are busy with rows, or a kernel would both join
    parts and loop over columns."""
    structure = reduced.structure
    if structure.scans and (structure.folds or not reduced.on_gpu):
        return f"{structure.scans[0].name} is a scan, which a GPU shares, and with no folds"
    if structure.kept:
        return "folds of folds are not shared among programs"
    count = math.prod(x.extent for x in structure.parallel)
    if not reduced.on_gpu and (count >= reduced.target.num_sms or structure.outer):
        return f"{count} rows are as many as the {reduced.target.num_sms} threads, or lie across memory"
    points, _ = split_outputs(structure)
    if not reduced.on_gpu and points and not ready_early(structure, points):
        return f"{points[0].name} needs whole folds, and a CPU's kernel joins their parts only"
    return None


def splits(reduced: ReducedRows) -> tuple[int, ...]:
    """Numbers of parts of a row that pay, for as many rows as a program may have."""
    if why_not_shared(reduced):
        return ()
    structure = reduced.structure
    elements = math.prod(x.extent for x in structure.reduced)
    highest = min(structure.rows, ROWS_OUTER[-1]) if structure.outer else 1
    counts = (*SPLITS, *_OF_SEGMENTS) if segments_of(reduced) else SPLITS
    most = counts[-1] if reduced.on_gpu else _PARTS_PER_THREAD * reduced.target.num_sms
    worth = (s for s in counts if elements * highest >= s * MIN_PART and s <= most)
    return tuple(s for s in worth if structure.column.extent >= 2 * s or shares_around(structure, s))


def why_not_split(reduced: ReducedRows, values: Values) -> str | None:
    """Reason that programs cannot share the columns in pieces of that size, or None."""
    split, structure = values.integer("split"), reduced.structure
    if not is_split(values):
        return None
    count, *width = values.tiling("columns")
    if not width:
        return f"split={split} of whole rows; only 1 is allowed"
    most = max(column_tilings(reduced)[0][-1], structure.column.extent // SPLITS[0])
    if len(structure.reduced) == 1 and not structure.scans and width[0] > most:
        return f"split={split} of {width[0]} columns an iteration leaves some programs none; choose fewer"
    shared = structure.reduced[0].extent if shares_around(structure, split) else count
    if not reduced.on_gpu and (split - 1) * -(-shared // split) >= shared:
        return f"split={split} of {shared} iterations leaves some programs none; choose fewer"
    return None


def shared_program(reduced: ReducedRows, values: Values) -> TileProgram:
    """A kernel for each group of folds that share a loop, and one that joins their parts and writes."""
    workload, structure = reduced.workload, reduced.structure
    loops = reduced.loops.when(values.flag("online"))
    parts = Parts(*reduced.streams(values))
    folded = _FoldedParts(reduced, parts, reduced.accumulated(values))
    points, per_row = split_outputs(structure)
    early = ready_early(structure, points)
    kernels = []
    for i, group in enumerate(loops):
        body = tuple(folded.partial(group, loops[:i], early if i == 0 else []))
        kernels.append(Kernel(f"{workload.name}_{group.stages[-1].name}", parts.grid, body, reduced.launch))
    points = [] if early else points
    last = folded if points else replace(folded, parts=parts.joining)
    grid = parts.grid if points else Grid(last.rows.grid)
    body = tuple(last.finish(loops, points, per_row))
    kernels.append(Kernel(f"{workload.name}_finish", grid, body, reduced.launch))
    workspaces = (parts.workspace(PARTIAL, s) for g in loops for s in g.stages)
    return TileProgram(workload.name, buffers(workload, *workspaces), tuple(kernels))


@dataclass(frozen=True)
class Parts:
    """Rows whose columns are divided among several programs, numbered s, and the partial results of these."""

    rows: RowTiles
    loop: ColumnLoop

    @property
    def grid(self) -> Grid:
        """Consecutive programs read neighbouring memory."""
        part = GridAxis("s", self.loop.split)
        return Grid((part, *self.rows.grid) if self.rows.structure.outer else (*self.rows.grid, part))

    @property
    def joining(self) -> Parts:
        """The same parts, with as many rows per program as one joins at once."""
        height = max(1, min(self.rows.height, JOINED // self.loop.split))
        return replace(self, rows=replace(self.rows, height=height))

    @property
    def names(self) -> Names:
        return Names({s.name for s in self.rows.workload.stages})

    def workspace(self, kind: str, stage: Stage) -> Buffer:
        """A value per part and row."""
        shape = (self.loop.split, *(x.extent for x in self.rows.structure.parallel))
        return Buffer(self.name(kind, stage), shape, folded_in(stage), "workspace")

    def name(self, kind: str, stage: Stage) -> str:
        return workspace_name(self.rows.workload, f"{kind}_{stage.name}")

    def place(self, part: Slice) -> tuple[Slice, ...]:
        """Slices of the values of parts in a workspace."""
        return (part, *self.rows.place.values())

    def tiles(self, kind: str, stages: Sequence[Stage], names: Names) -> tuple[list[Tile], list[Statement]]:
        """The values of all parts, and their loads."""
        called = "parts" if kind == PARTIAL else f"{kind}s"
        axes, shape = ("s", *self.rows.sliced), (self.loop.split, *self.rows.sliced.values())
        tiles = [Tile(names.fresh(f"{s.name}_{called}"), axes, shape, folded_in(s)) for s in stages]
        place = self.place(Slice(Affine(), self.loop.split, "s"))
        return tiles, [Load(t, self.name(kind, s), place) for s, t in zip(stages, tiles, strict=True)]


@dataclass(frozen=True)
class _FoldedParts:
    """The bodies of the kernels."""

    reduced: ReducedRows
    parts: Parts
    by: Accumulated

    @property
    def rows(self) -> RowTiles:
        return self.parts.rows

    def partial(self, group: Group, before: Sequence[Group], early: list[Stage]) -> list[Statement]:
        """Kernel of one loop: fold this program's part of the rows, and write the outputs that are ready."""
        names, forms = self.parts.names, alike(self.reduced.ranges, group)
        first = self.rows.emitter(None, names, {})
        ends = bound(forms, self.reduced.guards.ends, first, tiled=self.reduced.on_gpu)
        ahead = read_ahead(forms, self.reduced.guards.ends, first) if self.reduced.on_gpu else {}
        rows = replace(self.rows, ahead=ahead)
        loop = replace(self.parts.loop, unchanged=forms, rows={**rows.place, **ends})
        body, known = self._joined(before, names)
        loop = storing(loop, rows, early, names) if early else loop
        part, statistics = reduce_part(rows, loop, group, names, known, self.by)
        emitter = self.rows.emitter(None, names, known)
        where = self.parts.place(Slice(Affine.of(("s", 1))))
        for stage, statistic in zip(group.stages, statistics, strict=True):
            stored = spread(emitter, statistic, self.rows.sliced)
            emitter.body.append(Store(self.parts.name(PARTIAL, stage), where, stored.name))
        return [*first.body, *body, *part, *emitter.body]

    def finish(self, loops: Sequence[Group], points: list[Stage], per_row: list[Stage]) -> list[Statement]:
        """The last kernel: join every reduction and write this program's part of the outputs; part 0 writes rows."""
        names = self.parts.names
        body, known = self._joined(loops, names)

        def write(columns: Slice | None) -> list[Statement]:
            emitter = self.rows.emitter(columns, names, known)
            self.rows.store(points if columns else per_row, emitter)
            return emitter.body

        if not points:
            return body + write(None)
        first = [If("s", 0, tuple(write(None)))] if per_row else []
        return [*body, *first, *self.parts.loop.over(write)]

    def _joined(self, loops: Sequence[Group], names: Names) -> tuple[list[Statement], dict[str, Tile]]:
        """Join the partial results of finished loops, in a fixed order."""
        body: list[Statement] = []
        known: dict[str, Tile] = {}
        for group in loops:
            tiles, loads = self.parts.tiles(PARTIAL, group.stages, names)
            body += join_parts(self.rows, group, names, known, tiles, loads)
        return body, known
