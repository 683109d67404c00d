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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Fill, Position, Reduce, Statement
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.sketches.rows.column_walk import ColumnWalk
from search_spaces.sketches.rows.row_parts import RowTiles, combine_operator, fold_along, folded_in, identity
from search_spaces.structure import dependent_folds
from search_spaces.structure.axes import Structure
from search_spaces.structure.dependent_folds import Fold, Group, before, was
from search_spaces.structure.moving_folds import reads
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Apply, Expression
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.names import Names


def groups(structure: Structure, online: bool) -> tuple[Group, ...]:
    """The structure's folds in order, grouped into walks."""
    bodies = {s.name: structure.body_of(s) for s in structure.folds}
    results = [Access(s.name, ()) if s.reduction else structure.body_of(s) for s in structure.outputs]
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
    statistics = folds.statistics()
    if walk.one_by_one or not by_point:
        # A turn of one column adds a point to every row.
        add = folds.add_points if walk.one_by_one else folds.add_rows
        main = walk.over(lambda columns: add(statistics, columns))
        body = [*folds.start(statistics), *main, *folds.settle(statistics)]
    else:
        points = folds.points(walk.columns)
        main = walk.whole(lambda columns: folds.add_points(points, columns))
        joined = [*folds.start(points), *main, *folds.join(points, statistics, rows.structure.column.name)]
        rest = walk.rest(lambda columns: folds.add_rows(statistics, columns))
        body = [*(joined if main else folds.start(statistics)), *rest, *(folds.settle(statistics) if rest else ())]
    return body, [statistics[s.name] for s in group.stages]


def join_parts(
    rows: RowTiles, group: Group, names: Names, known: dict[str, Tile], parts: Sequence[Tile], load: list[Statement]
) -> list[Statement]:
    """The statistics of the group from tiles of partial ones, with their parts along the first axis."""
    folds = _Folds.named(rows, group, names, known)
    partial = {s.name: tile for s, tile in zip(group.stages, parts, strict=True)}
    statistics = {s.name: rows.statistic(s) for s in group.stages}
    known.update(statistics)
    return [*load, *folds.join(partial, statistics, parts[0].axes[0]), *folds.complete()]


# The tiles in which folds, and what they are relative to where that is held, are kept; by name.
_Running = Mapping[str, Tile]


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
    def _held(self) -> list[str]:
        return [r.name for r in self.group.relatives if r.held]

    def statistics(self) -> _Running:
        """What is folded of every row; the points of all rows are counted together."""
        folds = {f.name: Tile(f.name, (), ()) if f.counts else self.rows.statistic(f.stage) for f in self.group.folds}
        sliced = self.rows.sliced
        return folds | {n: Tile(self.names.fresh(n), tuple(sliced), tuple(sliced.values())) for n in self._held}

    def points(self, columns: Slice) -> _Running:
        """What is folded at every point of a turn."""
        dtypes = {f.name: folded_in(f.stage) for f in self.group.folds} | dict.fromkeys(self._held, "float32")
        counts = {f.name for f in self.group.folds if f.counts}
        named = {n: self.names.fresh(f"{n}_points") for n in dtypes}
        return {
            n: Tile(named[n], (), ()) if n in counts else self.rows.points(named[n], columns, dtype)
            for n, dtype in dtypes.items()
        }

    def start(self, running: _Running) -> list[Statement]:
        """Set the running values to what leaves every other value as it is."""
        starts = {f.name: identity(f.stage) if f.start is None else f.start for f in self.group.folds}
        return [Fill(tile, starts.get(name, 0.0)) for name, tile in running.items()]

    def add_rows(self, running: _Running, columns: Slice) -> list[Statement]:
        """Fold the columns, and the results into the running values of the rows."""
        emitter = self.rows.emitter(columns, self.names, self.known)
        pieces = {self.rows.structure.column: columns}

        def value(fold: Fold) -> Tile | float:
            if fold.counts:
                return self._number(emitter, columns)
            return fold_along(self.rows, emitter, fold.stage, pieces, f"{fold.name}_part")

        return self._add(emitter, running, value)

    def add_points(self, running: _Running, columns: Slice) -> list[Statement]:
        """Fold every point of the columns into the running value at its place."""
        emitter = self.rows.emitter(columns, self.names, self.known)

        def value(fold: Fold) -> Tile | float:
            return 1.0 if fold.counts else emitter.tile(fold.stage.expression, f"{fold.name}_point")

        return self._add(emitter, running, value)

    def _add(self, emitter: Emitter, running: _Running, value: Callable[[Fold], Tile | float]) -> list[Statement]:
        """Add what `value` makes of every fold to its running value, which is moved to where that one is."""
        emitter.tiles.update({before(name): tile for name, tile in running.items()})
        last: list[tuple[Tile, str, Tile, Tile | float]] = []
        for fold in self.group.folds:
            tile, combine = running[fold.name], combine_operator(fold.stage)
            moves = fold.moved if not fold.held else None
            self._prepare(emitter, fold.name, moves)
            more = value(fold)
            moved = tile if moves is None else emitter.tile(moves, "t")
            if fold.name in self.group.leaders:
                then = emitter.map(combine, moved, more, name=f"{tile.name}_next", dtype=tile.dtype)
                emitter.tiles[fold.name] = then
                self._relate(emitter, adding=True)
                last.append((tile, combine, moved, more))
            else:
                emitter.assign(tile, combine, moved, more)
        self._hold(emitter, running)
        for tile, combine, moved, more in last:
            emitter.assign(tile, combine, moved, more)
        return emitter.body

    def join(self, partial: _Running, statistics: _Running, axis: str) -> list[Statement]:
        """Fold running values along an axis, to the statistics."""
        largest = max(partial.values(), key=lambda t: len(t.axes))
        emitter = Emitter({x: Slice(Affine(), largest.extent(x)) for x in largest.axes}, {}, self.names)
        emitter.tiles.update({before(name): tile for name, tile in partial.items()})
        for fold in self.group.folds:
            moved = partial[fold.name] if fold.moved is None else emitter.tile(fold.moved, "t")
            if axis in moved.axes:
                assert fold.stage.reduction is not None
                emitter.body.append(Reduce(statistics[fold.name], moved.name, axis, fold.stage.reduction.operator))
            else:
                # Every point has counted as many.
                emitter.assign(statistics[fold.name], "mul", moved, float(largest.extent(axis)))
            emitter.tiles[fold.name] = statistics[fold.name]
            self._relate(emitter)
        self._hold(emitter, statistics)
        return emitter.body

    def settle(self, statistics: _Running) -> list[Statement]:
        """Move what is relative to a value that was held to that of all points that are folded."""
        if not self._held:
            return []
        emitter = self.rows.emitter(None, self.names, {before(name): tile for name, tile in statistics.items()})
        emitter.tiles.update({f.name: statistics[f.name] for f in self.group.folds})
        self._relate(emitter)
        moved = {f.name: emitter.tile(f.moved, f"{f.name}_moved") for f in self.group.folds if f.held and f.moved}
        for name, tile in moved.items():
            emitter.assign(statistics[name], "cast", tile)
        return emitter.body

    def complete(self) -> list[Statement]:
        """What is left to do to the statistics when all points are in them."""
        emitter = self.rows.emitter(None, self.names, {s.name: self.rows.statistic(s) for s in self.group.stages})
        for name, factor in self.group.completed:
            emitter.assign(emitter.tiles[name], "mul", emitter.tiles[name], emitter.tile(factor, "completion"))
        return emitter.body

    def _prepare(self, emitter: Emitter, name: str, moved: Expression | None) -> None:
        """Compute by what a fold moves, before what is added to it."""
        if isinstance(moved, Apply):
            for part in moved.arguments:
                if not reads(part, {before(name)}):
                    emitter.emit(part, "rescale" if moved.operator == "mul" else "moved")

    def _relate(self, emitter: Emitter, adding: bool = False) -> None:
        """Compute what others are relative to, as it is and as it was, as soon as that is known."""
        for relative in self.group.relatives:
            name, value = relative.name, relative.held if adding and relative.held else relative.value
            if name in emitter.tiles or not all(a.tensor in emitter.tiles for a in accesses(value)):
                continue
            emitter.tiles[name] = emitter.tile(value, name)
            if before(name) not in emitter.tiles:
                emitter.tiles[before(name)] = emitter.tile(was(relative.value), f"{name}_before")

    def _hold(self, emitter: Emitter, statistics: _Running) -> None:
        """Keep what is held, for points that are added to the statistics."""
        for name in self._held:
            if name in statistics:
                emitter.assign(statistics[name], "cast", emitter.tiles[name])

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
