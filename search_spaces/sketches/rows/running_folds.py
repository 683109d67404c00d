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

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from search_spaces.programs.lowering import Emitter, Names
from search_spaces.programs.tile_program import Fill, Position, Reduce, Slice, Statement, Tile
from search_spaces.sketches.rows.column_walk import ColumnWalk
from search_spaces.sketches.rows.row_parts import RowTiles, combine_operator, fold_along, folded_in, identity
from search_spaces.structure import dependent_folds
from search_spaces.structure.dependent_folds import Fold, Group, before, was
from search_spaces.structure.moving_folds import reads
from search_spaces.workloads.expression import Access, Affine, Apply, accesses


def groups(rows: RowTiles, online: bool) -> list[Group]:
    """The reductions in order, grouped into walks."""
    structure = rows.structure
    bodies = {s.name: rows.body_of(s) for s in structure.folds}
    results = [Access(s.name, ()) if s.reduction else rows.body_of(s) for s in structure.outputs]
    return dependent_folds.groups(structure.folds, bodies, results, online)


def can_be_online(rows: RowTiles) -> bool:
    """Whether reductions can share a walk although one depends on another."""
    return len(groups(rows, online=True)) < len(groups(rows, online=False))


def reduce_columns(
    rows: RowTiles, walk: ColumnWalk, group: Group, names: Names, known: dict[str, Tile], by_point: bool
) -> list[Statement]:
    """The statistics of the group, added to `known` when they are complete."""
    body, _ = reduce_part(rows, walk, group, names, known, by_point)
    folds = _Folds(rows, group, names, known)
    known.update({t.name: t for t in folds.statistics})
    return [*body, *folds.complete()]


def reduce_part(
    rows: RowTiles, walk: ColumnWalk, group: Group, names: Names, known: dict[str, Tile], by_point: bool
) -> tuple[list[Statement], list[Tile]]:
    """What the columns of the walk are of the group's statistics, to be joined with others; and the tiles of it."""
    folds = _Folds.named(rows, group, names, known)
    statistics = folds.statistics
    if walk.one_by_one:
        # A turn of one column adds a point to every row.
        body = [*folds.start(statistics), *walk.over(lambda columns: folds.add_points(statistics, columns))]
    elif not by_point:
        body = [*folds.start(statistics), *walk.over(folds.add_rows)]
    else:
        points = [folds.points(f, walk.columns) for f in group.folds]
        main = walk.whole(lambda columns: folds.add_points(points, columns))
        joined = [*folds.start(points), *main, *folds.join(points, rows.structure.column.name)] if main else []
        body = [*(joined or folds.start(statistics)), *walk.rest(folds.add_rows)]
    return body, statistics


def join_parts(
    rows: RowTiles, group: Group, names: Names, known: dict[str, Tile], parts: Sequence[Tile], load: list[Statement]
) -> list[Statement]:
    """The statistics of the group from tiles of partial ones, with their parts along the first axis."""
    folds = _Folds.named(rows, group, names, known)
    known.update({s.name: rows.statistic(s) for s in group.stages})
    return [*load, *folds.join(parts, parts[0].axes[0]), *folds.complete()]


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
    def statistics(self) -> list[Tile]:
        """What is folded of every row; the points of all rows are counted together."""
        return [Tile(f.name, (), ()) if f.counts else self.rows.statistic(f.stage) for f in self.group.folds]

    def points(self, fold: Fold, columns: Slice) -> Tile:
        name = self.names.fresh(f"{fold.name}_points")
        return Tile(name, (), ()) if fold.counts else self.rows.points(name, columns, folded_in(fold.stage))

    def start(self, running: Sequence[Tile]) -> list[Statement]:
        """Set the running values to what leaves every other value as it is."""
        starts = [identity(f.stage) if f.start is None else f.start for f in self.group.folds]
        return [Fill(tile, value) for tile, value in zip(running, starts, strict=True)]

    def add_rows(self, columns: Slice) -> list[Statement]:
        """Fold the columns, and the results into the statistics."""
        emitter = self.rows.emitter(columns, self.names, self.known)

        def value(fold: Fold) -> Tile | float:
            if fold.counts:
                return self._number(emitter, columns)
            return fold_along(
                self.rows, emitter, fold.stage, {self.rows.structure.column: columns}, f"{fold.name}_part"
            )

        return self._add(emitter, self.statistics, value)

    def add_points(self, running: Sequence[Tile], columns: Slice) -> list[Statement]:
        """Fold every point of the columns into the running value at its place."""
        emitter = self.rows.emitter(columns, self.names, self.known)

        def value(fold: Fold) -> Tile | float:
            return 1.0 if fold.counts else emitter.tile(fold.stage.expression, f"{fold.name}_point")

        return self._add(emitter, running, value)

    def join(self, partial: Sequence[Tile], axis: str) -> list[Statement]:
        """Fold running values along an axis, to the statistics."""
        largest = max(partial, key=lambda t: len(t.axes))
        emitter = Emitter({x: Slice(Affine(), largest.extent(x)) for x in largest.axes}, {}, self.names)
        for fold, tile in zip(self.group.folds, partial, strict=True):
            left = [x for x in tile.axes if x != axis]
            statistic = Tile(fold.name, tuple(left), tuple(map(tile.extent, left)), tile.dtype)
            emitter.tiles[before(fold.name)] = tile
            moved = tile if fold.moved is None else emitter.tile(fold.moved, "t")
            if axis in moved.axes:
                assert fold.stage.reduction is not None
                emitter.body.append(Reduce(statistic, moved.name, axis, fold.stage.reduction.operator))
            else:
                # Every point has counted as many.
                emitter.assign(statistic, "mul", moved, float(largest.extent(axis)))
            emitter.tiles[fold.name] = statistic
            self._relate(emitter)
        return emitter.body

    def complete(self) -> list[Statement]:
        """What is left to do to the statistics when all points are in them."""
        emitter = self.rows.emitter(None, self.names, {t.name: t for t in self.statistics})
        for name, factor in self.group.completed:
            emitter.assign(emitter.tiles[name], "mul", emitter.tiles[name], emitter.tile(factor, "completion"))
        return emitter.body

    def _add(self, emitter: Emitter, running: Sequence[Tile], value: Callable[[Fold], Tile | float]) -> list[Statement]:
        """Add what `value` makes of every fold to its running value, which is moved to where that one is."""
        last: list[tuple[Tile, str, Tile, Tile | float]] = []
        for fold, tile in zip(self.group.folds, running, strict=True):
            emitter.tiles[before(fold.name)] = tile
            self._prepare(emitter, fold)
            more = value(fold)
            moved = tile if fold.moved is None else emitter.tile(fold.moved, "t")
            combine = combine_operator(fold.stage)
            if fold.name in self.group.leaders:
                then = emitter.map(combine, moved, more, name=f"{tile.name}_next", dtype=tile.dtype)
                emitter.tiles[fold.name] = then
                self._relate(emitter)
                last.append((tile, combine, moved, more))
            else:
                emitter.assign(tile, combine, moved, more)
        for tile, combine, moved, more in last:
            emitter.assign(tile, combine, moved, more)
        return emitter.body

    def _prepare(self, emitter: Emitter, fold: Fold) -> None:
        """Compute by what the fold moves, before what is added to it."""
        own = before(fold.name)
        for part in fold.moved.arguments if isinstance(fold.moved, Apply) else ():
            if not reads(part, {own}):
                emitter.emit(part, "rescale" if fold.moved.operator == "mul" else "moved")

    def _relate(self, emitter: Emitter) -> None:
        """Compute what others are relative to, as it is and as it was, as soon as that is known."""
        for name, relative in self.group.relatives:
            if name not in emitter.tiles and all(a.tensor in emitter.tiles for a in accesses(relative)):
                emitter.tiles[name] = emitter.tile(relative, name)
                emitter.tiles[before(name)] = emitter.tile(was(relative), f"{name}_before")

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
