"""Shared segments: folds of segments that data cuts columns into, in programs of equal parts of all columns.

Before:  for g: for t: total += where(begin[g] <= t < end[g], x[t], 0);  out[g] = …
After:   kernel 1, grid item in S + G - 1:
           g = the last segment with part of begin[g] + g <= item;  s = item - g
           partial_total[item] = sum of x over the columns of segment g in the s-th of S parts
         kernel 2, grid g in G:
           total = sum of partial_total from item part of begin[g] + g to item part of (end[g] - 1) + g
           out[g] = …
         the same for folds that read these, as a sum of exp(x[t] - top[g]), with joined ones in a workspace

Parts and segments that share columns form a staircase: each step is to the next part, or to the next segment, so that
part + segment numbers them. No program has more columns than a part has, however long the longest segment is, and there
are S + G - 1 of them, where S * G would each have a part of a segment. Each segment ends where the next one begins, by
offsets that are sorted; of others, results are any, and nothing is stored outside of them.

Merge-based CSR products (Merrill and Garland, 2016), whose diagonals of a merge path these items are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.anchors.loops.leading import count_leading
from search_spaces.anchors.loops.range_ends import bound, read_ahead
from search_spaces.anchors.rows.column_loop import ColumnLoop
from search_spaces.anchors.rows.folds.running_folds import alike, reduce_part
from search_spaces.anchors.rows.reduced_rows import ReducedRows
from search_spaces.anchors.rows.row_parts import (
    RowTiles,
    combine_operator,
    folded_in,
    identity,
    split_outputs,
    spread,
)
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, buffers, workspace_name
from search_spaces.programs.statements import Fill, For, Gather, Let, Load, Position, Reduce, Statement, Store
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.folds.dependent import Group
from search_spaces.structure.reads.ranges import RangeEnd, is_ranged
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression
from search_spaces.workloads.expressions.walking import variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Stage

# Elements that a program of the second kernel joins at once: 16 a thread of 4 warps.
_JOINED = 2048
# The variables of an item, and of the items of a segment: the first one, and the one behind the last.
_ITEM, _FIRST, _BEHIND = "item", "item.first", "item.behind"


@dataclass(frozen=True)
class Segments:
    """The axis of segments, and the first column of each and the one after its last: integers of that axis alone."""

    axis: Axis
    begin: Expression
    end: Expression


def segments_of(reduced: ReducedRows) -> tuple[Segments, ...]:
    """The segments that the columns of each loop are cut into, if folds write rows alone; or none."""
    structure, loops = reduced.structure, reduced.loops.apart
    points, _ = split_outputs(structure)
    one_by_one = structure.scans or structure.kept or len(structure.reduced) > 1
    cut = frozenset[str]().union(*(s.cut for s in structure.folds))
    axis = next((x for x in structure.parallel if x.name in cut), None)
    if not reduced.on_gpu or one_by_one or points or reduced.aligned or axis is None or len(cut) != 1:
        return ()
    found = [_segments_of(reduced, group, axis) for group in loops]
    return tuple(s for s in found if s is not None) if None not in found else ()


def _segments_of(reduced: ReducedRows, group: Group, axis: Axis) -> Segments | None:
    """The segments, which this axis numbers, that the columns of one loop are cut into; or None."""
    forms = reduced.ranges[group.folds[0].name]
    ends = {_side(form, reduced.structure.column.name): form for form in forms}
    moved = group.relatives or group.completed or any(reduced.ranges[s.name] != forms for s in group.stages)
    if moved or len(forms) != 2 or ends.keys() != {1, -1}:
        return None
    begin, end = (_end_in(ends[side], reduced.guards.ends) for side in (1, -1))
    # A form of more than the column and an end has other columns.
    plain = [form for form in forms if len(form.terms) == 2 and form.offset == (0 if form is ends[1] else -1)]
    own = all(e is not None and variables(e.expression) == {axis.name} for e in (begin, end))
    if begin is None or end is None or not own or len(plain) < 2:
        return None
    return Segments(axis, begin.expression, end.expression) if _meet(begin.expression, end.expression, axis) else None


def _meet(begin: Expression, end: Expression, axis: Axis) -> bool:
    """True if each segment ends where the next begins: at offsets[g] and offsets[g + 1], or ends[g - 1] and ends[g]."""
    first, last = (e.arguments[0] if isinstance(e, Apply) and e.operator == "to_integer" else e for e in (begin, end))
    if not isinstance(first, Access) or not isinstance(last, Access):
        return False
    moved = tuple(i + Affine(offset=i.step(axis.name)) for i in first.index)
    # The first segment may begin at 0, before the first end.
    return first.fill in (None, 0) and last == replace(first, index=moved, fill=last.fill)


def _side(form: Affine, column: str) -> int:
    """1 for columns from an end on, -1 for those before one."""
    return dict(form.terms).get(column, 0)


def _end_in(form: Affine, ends: dict[str, RangeEnd]) -> RangeEnd | None:
    return next((ends[v] for v in form.axes if is_ranged(form) and v in ends), None)


def why_not_dealt(reduced: ReducedRows, axis: Axis, values: Values) -> str | None:
    """Reason that parts of this size cannot be dealt to items of segments, which the axis numbers, or None."""
    split, whole = values.integer("split"), reduced.structure.column.extent // values.tile("columns")
    if split >= 2 * whole:
        return f"split={split} of {whole} whole iterations leaves some programs none; choose fewer"
    if values.flag("online"):
        return "online=True of parts that are joined one by one; only False is allowed"
    if axis == reduced.structure.row and values.tile("rows") > 1:
        return f"rows={values.tile('rows')} of segments, of which an item has one; only 1 is allowed"
    return None


def shared_segments_program(reduced: ReducedRows, segments: Sequence[Segments], values: Values) -> TileProgram:
    """For each loop, whose `segments` these are, a kernel that folds the columns of items, and one that joins the items
    of each segment; the last one writes."""
    loops, launch = reduced.loops.apart, reduced.launch
    rows, loop = reduced.streams(values)
    whole = loop.extent // loop.width
    # The columns that are left are in the part behind the last whole iteration.
    loop = replace(loop, split=min(loop.split, whole // _share(whole, loop.split) + 1))

    def items(number: int) -> _Items:
        return _Items(
            reduced, segments[number], rows, loop, loops[:number], Names({s.name for s in reduced.workload.stages})
        )

    kernels, workspaces = list[Kernel](), list[Buffer]()
    waiting = replace(launch, dependent=values.get("join") == "ahead")
    for number, group in enumerate(loops):
        name = f"{reduced.workload.name}_{number}" if number else reduced.workload.name
        last = group == loops[-1]
        body = items(number).joined(group, writes=last)
        kernels += [
            Kernel(f"{name}_items", items(number).grid, tuple(items(number).folded(group, values)), launch),
            Kernel(f"{name}_finish" if last else f"{name}_join", Grid(rows.grid), tuple(body), waiting),
        ]
        workspaces += [buffer for s in group.stages for buffer in items(number).workspaces(s, kept=not last)]
    return TileProgram(reduced.workload.name, buffers(reduced.workload, *workspaces), tuple(kernels))


@dataclass(frozen=True)
class _Items:
    """The bodies of the kernels; `loop` is over the columns of a part, which is the variable s; the folds of the groups
    `before` are joined, and in memory."""

    reduced: ReducedRows
    segments: Segments
    rows: RowTiles
    loop: ColumnLoop
    before: Sequence[Group]
    names: Names

    @property
    def _segment(self) -> str:
        """The variable of the segment."""
        return f"{self.segments.axis.name}.0"

    @property
    def _count(self) -> int:
        """The number of items."""
        return self.loop.split + self.segments.axis.extent - 1

    @property
    def _columns(self) -> int:
        """The columns of a part; the last one has all that are left."""
        return _share(self.loop.extent // self.loop.width, self.loop.split) * self.loop.width

    @property
    def grid(self) -> Grid:
        others = (x for x in self.rows.grid if x.variable != self._segment)
        return Grid((GridAxis(_ITEM, self._count), *others))

    @cached_property
    def _beside(self) -> dict[str, Slice]:
        """Slices of the rows in a workspace, which has a value for each item; of the segment, the one position."""
        place = {x: piece for x, piece in self.rows.place.items() if x != self.segments.axis.name or piece.extent}
        return {x: Slice(Affine(), 1, x) if x == self.segments.axis.name else piece for x, piece in place.items()}

    def workspaces(self, stage: Stage, kept: bool) -> list[Buffer]:
        """Of the values of items; and of those of segments, if they are `kept` for later kernels."""
        extents = {x.name: x.extent for x in self.rows.structure.parallel}
        own = {**extents, self.segments.axis.name: 1}
        partial = (self._count, *(own[x] for x in self._beside))
        found = {self._partial(stage): partial} | ({self._whole(stage): tuple(extents.values())} if kept else {})
        return [Buffer(name, shape, folded_in(stage), "workspace") for name, shape in found.items()]

    def _partial(self, stage: Stage) -> str:
        return workspace_name(self.rows.workload, f"partial_{stage.name}")

    def _whole(self, stage: Stage) -> str:
        return workspace_name(self.rows.workload, f"whole_{stage.name}")

    def _known(self) -> tuple[dict[str, Tile], list[Statement]]:
        """The folds that are joined, of this program's rows, and their loads."""
        stages = [s for group in self.before for s in group.stages]
        known = {s.name: self.rows.statistic(s) for s in stages}
        return known, [Load(known[s.name], self._whole(s), tuple(self.rows.place.values())) for s in stages]

    # The kernel of items

    def folded(self, group: Group, values: Values) -> list[Statement]:
        """Find the segment and the part of the item, and fold the columns of both."""
        found = self._found()
        first = self.rows.emitter(None, self.names, {})
        forms = alike(self.reduced.ranges, group)
        ends = bound(forms, self.reduced.guards.ends, first)
        rows = replace(self.rows, ahead=read_ahead(forms, self.reduced.guards.ends, first))
        loop = replace(self.loop, unchanged=forms, rows={**rows.place, **ends})
        known, loads = self._known()
        body, statistics = reduce_part(rows, loop, group, self.names, known, self.reduced.accumulated(values))
        emitter = self.rows.emitter(None, self.names, {})
        where = (Slice(axis_index(_ITEM)), *self._beside.values())
        for stage, statistic in zip(group.stages, statistics, strict=True):
            stored = spread(emitter, statistic, self.rows.sliced)
            emitter.body.append(Store(self._partial(stage), where, stored.name))
        return [*found, *first.body, *loads, *body, *emitter.body]

    def _found(self) -> list[Statement]:
        """Bind the variables of the segment and of the part.

        A segment's first item, part of begin + g, is at most the item where begin < (item - g + 1) * columns, or
        item - g is at least the last part.
        """
        e, segments = Emitter({}, self._inputs, self.names), self.segments.axis
        item = self._number(e, _ITEM)

        def is_begun(inner: Emitter, at: Tile) -> Tile:
            begin = self._clamped(inner, inner.tile(self.segments.begin, "begin"))
            part = inner.map("sub", item, at, dtype="int64")
            limit = inner.map("mul", inner.map("add", part, 1, dtype="int64"), self._columns, dtype="int64")
            is_before = inner.map("lt", begin, limit, compared="int64")
            return inner.map("maximum", is_before, inner.map("le", self.loop.split - 1, part, compared="int64"))

        begun = count_leading(e, segments, is_begun)
        number = e.map("maximum", e.map("sub", begun, 1, dtype="int64"), 0, name="segment", dtype="int64")
        part = e.map("sub", item, number, name="part", dtype="int64")
        lets = (Let(self._segment, segments.extent, number.name), Let("s", self.loop.split, part.name))
        return [*e.body, *lets]

    # The kernel of segments

    def joined(self, group: Group, writes: bool) -> list[Statement]:
        """Join the items of this program's segment, and write its rows, or what later kernels read."""
        e = Emitter({self.segments.axis.name: Slice(axis_index(self._segment))}, self._inputs, self.names)
        begin, end = (self._clamped(e, e.tile(x, "end")) for x in (self.segments.begin, self.segments.end))
        number = self._number(e, self._segment)
        last = e.map("sub", end, 1, dtype="int64")
        first, last = (e.map("add", self._part(e, t), number, dtype="int64") for t in (begin, last))
        behind = e.map("add", last, 1, dtype="int64")
        has_items = e.map("lt", begin, end, compared="int64")
        behind = e.map("where", has_items, behind, first, name="behind", dtype="int64")
        lets = (Let(_FIRST, self._count, first.name), Let(_BEHIND, self._count + 1, behind.name))
        own = {s.name: self.rows.statistic(s) for s in group.stages}
        summed = self._summed(group, behind)
        if not writes:
            place = tuple(self.rows.place.values())
            return [*e.body, *lets, *summed, *(Store(self._whole(s), place, own[s.name].name) for s in group.stages)]
        known, loads = self._known()
        _, per_row = split_outputs(self.rows.structure)
        writing = self.rows.emitter(None, self.names, {**known, **own})
        self.rows.store(per_row, writing)
        return [*e.body, *lets, *loads, *summed, *writing.body]

    def _summed(self, group: Group, behind: Tile) -> list[Statement]:
        """Fold items into the statistics of the rows, some an iteration, each at its place until all are folded."""
        sliced = self.rows.sliced
        size = max(1, min(_JOINED // math.prod(sliced.values()), 1 << (self.loop.split - 1).bit_length()))
        start = Affine.of((_FIRST, 1), (f"{_ITEM}.0", size))
        piece = Slice(start, size, _ITEM)
        e = Emitter({_ITEM: piece, **self.rows.place}, {}, self.names)
        at = Tile.along([piece], self.names.fresh("at"), "int64")
        e.body.append(Position(at, piece))
        # Items of other segments are not read.
        is_own = e.map("lt", at, behind, compared="int64")
        place = e.map("where", is_own, at, self._count, name="place", dtype="int64")
        starts: list[Statement] = []
        ends: list[Statement] = []
        for stage in group.stages:
            assert stage.reduction is not None
            extents = {_ITEM: size, **sliced}
            dtype = folded_in(stage)
            running = Tile(self.names.fresh(f"{stage.name}_points"), tuple(extents), tuple(extents.values()), dtype)
            read = Tile.along((piece, *self._beside.values()), self.names.fresh(f"{stage.name}_items"), dtype)
            e.body.append(Gather(read, self._partial(stage), (place.name, *self._beside.values()), 0))
            own = e.map("where", is_own, read, identity(stage), dtype=dtype)
            e.assign(running, combine_operator(stage), running, own)
            starts.append(Fill(running, identity(stage)))
            ends.append(Reduce(self.rows.statistic(stage), running.name, _ITEM, stage.reduction.operator))
        of_use = Bound(start + Affine.of((_BEHIND, -1)), 0)
        loop = For(f"{_ITEM}.0", -(-self.loop.split // size), tuple(e.body), useful=(of_use,))
        return [*starts, loop, *ends]

    # Both

    def _part(self, e: Emitter, column: Tile) -> Tile:
        """The part that has a column."""
        part = e.map("quotient", column, self._columns, dtype="int64")
        return e.map("minimum", part, self.loop.split - 1, name="part", dtype="int64")

    def _clamped(self, e: Emitter, end: Tile) -> Tile:
        """An end of a segment as a number of columns."""
        return e.map("maximum", e.map("minimum", end, self.loop.extent, dtype="int64"), 0, dtype="int64")

    @property
    def _inputs(self) -> dict[str, str]:
        return {t.name: t.dtype for t in self.rows.workload.inputs}

    def _number(self, e: Emitter, variable: str) -> Tile:
        made = Tile(self.names.fresh("number"), (), (), "int64")
        e.body.append(Position(made, Slice(axis_index(variable))))
        return made


def _share(whole: int, split: int) -> int:
    """Whole iterations of a part."""
    return -(-whole // split)
