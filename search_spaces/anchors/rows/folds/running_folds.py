"""Running folds: reductions of the columns of some rows, streamed piece by piece.

    by row                                        by point (or by thread, of each iteration's columns its own)
      total = 0                                     points = 0 for every row and column of a piece
      for c.0: total += sum of x_tile over c        for c.whole: points += x_tile
                                                    total = sum of points over c
                                                    total += sum of the other columns
By row needs few registers, and folds across threads in every iteration; by point does that once, and has no mask in
the loop. Shared loops and the rescaling of folds are found by `structure.folds.dependent`:

    top_next = max(top, max of x_tile)
    rescale = exp(top - top_next)
    total = total * rescale + sum of exp(x_tile - top_next);  top = top_next
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.anchors.rows.column_loop import ColumnLoop
from search_spaces.anchors.rows.folds.thread_parts import THREAD, Accumulated, ThreadParts
from search_spaces.anchors.rows.moving import MovingFolds, Running
from search_spaces.anchors.rows.row_parts import RowTiles, fold_along, folded_in
from search_spaces.devices.target import Target
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Position, Statement
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.axes import Structure
from search_spaces.structure.folds import dependent
from search_spaces.structure.folds.dependent import Fold, Group, before
from search_spaces.structure.folds.powers import LOG2_E
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Apply, Literal, call, mul
from search_spaces.workloads.expressions.walking import walk as expressions
from search_spaces.workloads.names import Names


def groups(structure: Structure, online: bool) -> tuple[Group, ...]:
    """The structure's folds in order, grouped into loops."""
    bodies = {s.name: structure.body_of(s) for s in structure.folds}
    results = [structure.body_of(s) if s.is_pointwise else Access(s.name, ()) for s in structure.outputs]
    others = [structure.body_of(s) for s in structure.workload.stages if s.reduction and s.name not in bodies]
    return tuple(dependent.groups(structure.folds, bodies, [*others, *results], online))


@dataclass(frozen=True)
class Loops:
    """Folds of a structure grouped into loops: dependent folds in separate loops, and online in shared ones.

    A search prints thousands of programs of a structure, each with one of these.
    """

    apart: tuple[Group, ...]
    shared: tuple[Group, ...]

    @staticmethod
    def of(structure: Structure) -> Loops:
        return Loops(groups(structure, online=False), groups(structure, online=True))

    @property
    def in_hardware_powers(self) -> Loops:
        """Sums of exp(x - max) as sums of powers of two that may flush denormals to 0: one summand is 1 at least."""
        return replace(self, shared=tuple(map(_in_hardware_powers, self.shared)))

    def when(self, online: bool) -> tuple[Group, ...]:
        return self.shared if online else self.apart

    @property
    def choices(self) -> tuple[bool, ...]:
        """Choices of a search: dependent folds may share loops, or not."""
        return (False, True) if len(self.shared) < len(self.apart) else (False,)

    def why_not_aligned(self, values: Values) -> str | None:
        """Reason against aligned rows online: their iterations differ in the number of points."""
        if values.flag("aligned") and any(f.counts for g in self.when(values.flag("online")) for f in g.folds):
            return "points are counted, which are as many of every row in an iteration only where aligned=False"
        return None

    @property
    def starts(self) -> tuple[bool, ...]:
        """Choices to start from: online pays if folds are only rescaled; for moved squares it may not."""
        moved = [f.moved for g in self.shared for f in g.folds if f.moved is not None]
        rescaled = all(isinstance(m, Apply) and m.operator == "mul" for m in moved)
        return self.choices[-1:] if rescaled else self.choices


def _in_hardware_powers(group: Group) -> Group:
    def changed(fold: Fold) -> Fold:
        body, is_scaled = fold.stage.expression, isinstance(fold.moved, Apply) and fold.moved.operator == "mul"
        if not is_scaled or not isinstance(body, Apply) or body.operator != "exp":
            return fold
        if any(body in expressions(f.stage.expression) for f in group.folds if f is not fold):
            return fold
        power = call("exp2_normal", mul(body.arguments[0], Literal(LOG2_E)))
        return replace(fold, stage=replace(fold.stage, expression=power))

    return replace(group, folds=tuple(map(changed, group.folds)))


def loops_on(structure: Structure, target: Target) -> Loops:
    """Loops of a structure for kernels of the target."""
    loops = Loops.of(structure)
    return loops.in_hardware_powers if target.kind == "gpu" else loops


def alike(where: Mapping[str, frozenset[Affine]], group: Group) -> frozenset[Affine]:
    """Points that leave all folds of a group unchanged; `where` has those of each fold, none for counts."""
    return frozenset.intersection(*(where.get(s.name, frozenset()) for s in group.stages))


def reduce_columns(
    rows: RowTiles, loop: ColumnLoop, group: Group, names: Names, known: dict[str, Tile], by: Accumulated
) -> list[Statement]:
    """The statistics of the group, added to `known` when they are complete."""
    body, statistics = reduce_part(rows, loop, group, names, known, by)
    known.update({t.name: t for t in statistics})
    return [*body, *_Folds(rows, group, names, known).complete()]


def reduce_part(
    rows: RowTiles, loop: ColumnLoop, group: Group, names: Names, known: dict[str, Tile], by: Accumulated
) -> tuple[list[Statement], list[Tile]]:
    """The contribution of the loop's columns to the group's statistics, to be joined with others; and its tiles."""
    folds = _Folds.named(rows, group, names, known)
    moving = folds.moving
    statistics = folds.statistics()
    if loop.one_by_one or by == "row":
        # An iteration of one column adds a point to every row.
        add = folds.add_points if loop.one_by_one else folds.add_rows
        main = loop.over(lambda columns: add(statistics, columns))
        body = [*moving.start(statistics), *main, *folds.settle(statistics)]
    else:
        parts = by if isinstance(by, ThreadParts) else None
        points = folds.points(loop.columns, parts)
        main = loop.whole(lambda columns: folds.add_points(points, columns, parts))
        joined = [
            *moving.start(points),
            *main,
            *moving.join(points, statistics, THREAD if parts else rows.structure.column.name),
        ]
        rest = loop.rest(lambda columns: folds.add_rows(statistics, columns))
        body = [
            *(joined if main else moving.start(statistics)),
            *rest,
            *(folds.settle(statistics) if rest else ()),
        ]
    return body, [statistics[s.name] for s in group.stages]


def join_parts(
    rows: RowTiles, group: Group, names: Names, known: dict[str, Tile], parts: Sequence[Tile], load: list[Statement]
) -> list[Statement]:
    """The statistics of the group from tiles of partial ones, with their parts along the first axis."""
    folds = _Folds.named(rows, group, names, known)
    partial = {s.name: tile for s, tile in zip(group.stages, parts, strict=True)}
    statistics = {s.name: rows.statistic(s) for s in group.stages}
    known.update(statistics)
    return [*load, *folds.moving.join(partial, statistics, parts[0].axes[0]), *folds.complete()]


@dataclass(frozen=True)
class _Folds:
    """The statements of one group; `known` are the statistics of earlier ones."""

    rows: RowTiles
    group: Group
    names: Names
    known: dict[str, Tile]

    @staticmethod
    def named(rows: RowTiles, group: Group, names: Names, known: dict[str, Tile]) -> _Folds:
        """With the names of statistics given to them alone."""
        names.taken.update(f.name for f in group.folds)
        return _Folds(rows, group, names, dict(known))

    @property
    def moving(self) -> MovingFolds:
        return MovingFolds(self.group, self.names)

    def statistics(self) -> Running:
        """Running values of every row; the points of all rows are counted together."""
        folds = {f.name: Tile(f.name, (), ()) if f.counts else self.rows.statistic(f.stage) for f in self.group.folds}
        sliced = self.rows.sliced
        return folds | {n: Tile(self.names.fresh(n), tuple(sliced), tuple(sliced.values())) for n in self.moving.held}

    def points(self, columns: Slice, parts: ThreadParts | None) -> Running:
        """Running values of every point of an iteration, or of every thread."""
        dtypes = {f.name: folded_in(f.stage) for f in self.group.folds} | dict.fromkeys(self.moving.held, "float32")
        counts = {f.name for f in self.group.folds if f.counts}
        named = {n: self.names.fresh(f"{n}_points") for n in dtypes}
        return {
            n: Tile(named[n], (), ()) if n in counts else self._held_by(named[n], columns, dtype, parts)
            for n, dtype in dtypes.items()
        }

    def _held_by(self, name: str, columns: Slice, dtype: str, parts: ThreadParts | None) -> Tile:
        """A tile with a value per row and column, or per row and thread."""
        if parts is None:
            return self.rows.points(name, columns, dtype)
        extents = {**self.rows.sliced, THREAD: parts.extent}
        return Tile(name, tuple(extents), tuple(extents.values()), dtype)

    def add_rows(self, running: Running, columns: Slice) -> list[Statement]:
        """Fold the columns, and the results into the running values of the rows."""
        emitter = self.rows.emitter(columns, self.names, self.known)
        pieces = {self.rows.structure.column: columns}

        def value(fold: Fold) -> Tile | float:
            if fold.counts:
                return self._number(emitter, columns)
            return fold_along(self.rows, emitter, fold.stage, pieces, f"{fold.name}_part")

        return self.moving.add(emitter, running, value)

    def add_points(self, running: Running, columns: Slice, parts: ThreadParts | None = None) -> list[Statement]:
        """Fold every point of the columns into the running value at its place, or of its thread."""
        emitter = self.rows.emitter(columns, self.names, self.known)
        if parts:
            emitter.cut = {self.rows.structure.column.name: parts.axes}

        def value(fold: Fold) -> Tile | float:
            if fold.counts:
                return float(parts.share) if parts else 1.0
            values = emitter.tile(fold.stage.expression, f"{fold.name}_point")
            return parts.fold(self.rows, emitter, fold.stage, values, f"{fold.name}_part") if parts else values

        return self.moving.add(emitter, running, value)

    def settle(self, statistics: Running) -> list[Statement]:
        """Rescale folds from a kept reference to the reference of all folded points."""
        known = {before(name): tile for name, tile in statistics.items()}
        return self.moving.settle(self.rows.emitter(None, self.names, known), statistics)

    def complete(self) -> list[Statement]:
        """Finish the statistics once all points are folded."""
        known = {s.name: self.rows.statistic(s) for s in self.group.stages}
        return self.moving.complete(self.rows.emitter(None, self.names, known))

    def _number(self, emitter: Emitter, columns: Slice) -> Tile | float:
        """Number of the columns."""
        extent, width = self.rows.structure.column.extent, columns.extent
        assert width is not None
        if extent % width == 0:
            return float(width)
        if not columns.start.terms:
            return float(min(width, extent - columns.start.offset))
        first = Tile(self.names.fresh("first"), (), ())
        emitter.body.append(Position(first, Slice(columns.start)))
        return emitter.map("minimum", emitter.map("sub", float(extent), first), float(width), name="number")
