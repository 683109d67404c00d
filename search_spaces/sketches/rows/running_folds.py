"""Running folds: reductions of the columns of some rows, walked piece by piece.

    by row                                        by point
      total = 0                                     points = 0 for every row and column of a piece
      for c.0: total += sum of x_tile over c        for c.whole: points += x_tile
                                                    total = sum of points over c
                                                    total += sum of what is left of the columns
By row needs few registers, and folds across threads in every iteration; by point does that once, and masks nothing
within the loop. What shares a walk, and how folds move that are relative to others, `structure.dependent_folds` says:

    top_next = max(top, max of x_tile)
    rescale = exp(top - top_next)
    total = total * rescale + sum of exp(x_tile - top_next);  top = top_next
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Position, Statement
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import Values
from search_spaces.sketches.rows.column_walk import ColumnWalk
from search_spaces.sketches.rows.moving import MovingFolds, Running
from search_spaces.sketches.rows.row_parts import RowTiles, fold_along, folded_in
from search_spaces.structure import dependent_folds
from search_spaces.structure.axes import Structure
from search_spaces.structure.dependent_folds import Fold, Group, before
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Apply
from search_spaces.workloads.names import Names


def groups(structure: Structure, online: bool) -> tuple[Group, ...]:
    """The structure's folds in order, grouped into walks."""
    bodies = {s.name: structure.body_of(s) for s in structure.folds}
    results = [structure.body_of(s) if s.is_pointwise else Access(s.name, ()) for s in structure.outputs]
    others = [structure.body_of(s) for s in structure.workload.stages if s.reduction and s.name not in bodies]
    return tuple(dependent_folds.groups(structure.folds, bodies, [*others, *results], online))


@dataclass(frozen=True)
class Walks:
    """The folds of a structure grouped into walks, where those that depend on each other share none, and where they do.

    A search prints thousands of programs of a structure, all of them with the one or the other.
    """

    apart: tuple[Group, ...]
    shared: tuple[Group, ...]

    @staticmethod
    def of(structure: Structure) -> Walks:
        return Walks(groups(structure, online=False), groups(structure, online=True))

    def when(self, online: bool) -> tuple[Group, ...]:
        return self.shared if online else self.apart

    @property
    def choices(self) -> tuple[bool, ...]:
        """Whether dependent folds share walks, as a search may choose."""
        return (False, True) if len(self.shared) < len(self.apart) else (False,)

    def why_not_aligned(self, values: Values) -> str | None:
        """Rows that are read by whole vectors have other numbers of points in an iteration each."""
        if values.flag("aligned") and any(f.counts for g in self.when(values.flag("online")) for f in g.folds):
            return "points are counted, which are as many of every row in an iteration only where aligned=False"
        return None

    @property
    def starts(self) -> tuple[bool, ...]:
        """The choices that a search starts from: what is only rescaled is best online, moving squares may not pay."""
        moved = [f.moved for g in self.shared for f in g.folds if f.moved is not None]
        rescaled = all(isinstance(m, Apply) and m.operator == "mul" for m in moved)
        return self.choices[-1:] if rescaled else self.choices


def alike(where: Mapping[str, frozenset[Affine]], group: Group) -> frozenset[Affine]:
    """Where points leave all folds of a group unchanged; `where` says it of each, and of none that is counted."""
    return frozenset.intersection(*(where.get(s.name, frozenset()) for s in group.stages))


def reduce_columns(
    rows: RowTiles, walk: ColumnWalk, group: Group, names: Names, known: dict[str, Tile], by_point: bool
) -> list[Statement]:
    """The statistics of the group, added to `known` when they are complete."""
    body, statistics = reduce_part(rows, walk, group, names, known, by_point)
    known.update({t.name: t for t in statistics})
    return [*body, *_Folds(rows, group, names, known).complete()]


def reduce_part(
    rows: RowTiles, walk: ColumnWalk, group: Group, names: Names, known: dict[str, Tile], by_point: bool
) -> tuple[list[Statement], list[Tile]]:
    """What the columns of the walk are of the group's statistics, to be joined with others; and the tiles of it."""
    folds = _Folds.named(rows, group, names, known)
    moving = folds.moving
    statistics = folds.statistics()
    if walk.one_by_one or not by_point:
        # A turn of one column adds a point to every row.
        add = folds.add_points if walk.one_by_one else folds.add_rows
        main = walk.over(lambda columns: add(statistics, columns))
        body = [*moving.start(statistics), *main, *folds.settle(statistics)]
    else:
        points = folds.points(walk.columns)
        main = walk.whole(lambda columns: folds.add_points(points, columns))
        joined = [
            *moving.start(points),
            *main,
            *moving.join(points, statistics, rows.structure.column.name),
        ]
        rest = walk.rest(lambda columns: folds.add_rows(statistics, columns))
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
        """What is folded of every row; the points of all rows are counted together."""
        folds = {f.name: Tile(f.name, (), ()) if f.counts else self.rows.statistic(f.stage) for f in self.group.folds}
        sliced = self.rows.sliced
        return folds | {n: Tile(self.names.fresh(n), tuple(sliced), tuple(sliced.values())) for n in self.moving.held}

    def points(self, columns: Slice) -> Running:
        """What is folded at every point of a turn."""
        dtypes = {f.name: folded_in(f.stage) for f in self.group.folds} | dict.fromkeys(self.moving.held, "float32")
        counts = {f.name for f in self.group.folds if f.counts}
        named = {n: self.names.fresh(f"{n}_points") for n in dtypes}
        return {
            n: Tile(named[n], (), ()) if n in counts else self.rows.points(named[n], columns, dtype)
            for n, dtype in dtypes.items()
        }

    def add_rows(self, running: Running, columns: Slice) -> list[Statement]:
        """Fold the columns, and the results into the running values of the rows."""
        emitter = self.rows.emitter(columns, self.names, self.known)
        pieces = {self.rows.structure.column: columns}

        def value(fold: Fold) -> Tile | float:
            if fold.counts:
                return self._number(emitter, columns)
            return fold_along(self.rows, emitter, fold.stage, pieces, f"{fold.name}_part")

        return self.moving.add(emitter, running, value)

    def add_points(self, running: Running, columns: Slice) -> list[Statement]:
        """Fold every point of the columns into the running value at its place."""
        emitter = self.rows.emitter(columns, self.names, self.known)

        def value(fold: Fold) -> Tile | float:
            return 1.0 if fold.counts else emitter.tile(fold.stage.expression, f"{fold.name}_point")

        return self.moving.add(emitter, running, value)

    def settle(self, statistics: Running) -> list[Statement]:
        """Move what is relative to a value that was held to that of all points that are folded."""
        known = {before(name): tile for name, tile in statistics.items()}
        return self.moving.settle(self.rows.emitter(None, self.names, known), statistics)

    def complete(self) -> list[Statement]:
        """What is left to do to the statistics when all points are in them."""
        known = {s.name: self.rows.statistic(s) for s in self.group.stages}
        return self.moving.complete(self.rows.emitter(None, self.names, known))

    def _number(self, emitter: Emitter, columns: Slice) -> Tile | float:
        """How many of the columns there are."""
        extent, width = self.rows.structure.column.extent, columns.extent
        assert width is not None
        if extent % width == 0:
            return float(width)
        if not columns.start.terms:
            return float(min(width, extent - columns.start.offset))
        first = Tile(self.names.fresh("first"), (), ())
        emitter.body.append(Position(first, Slice(columns.start)))
        return emitter.map("minimum", emitter.map("sub", float(extent), first), float(width), name="number")
