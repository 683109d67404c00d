"""Running folds: reductions of the columns of some rows, walked piece by piece.

    by row                                        by point
      total = 0                                     points = 0 for every row and column of a piece
      for c.0: total += sum of x_tile over c        for c.whole: points += x_tile
                                                    total = sum of points over c
                                                    total += sum of what is left of the columns
By row needs few registers, and folds across threads in every iteration; by point does that once, and masks nothing
within the loop. Folds share a walk where none needs the result of another. A maximum shares it with the sum of
exponentials that are shifted by it, which is rescaled when the maximum grows (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018, algorithm 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from search_spaces.programs.lowering import Emitter, Names
from search_spaces.programs.tile_program import Fill, Reduce, Slice, Statement, Tile
from search_spaces.sketches.rows.column_walk import ColumnWalk
from search_spaces.sketches.rows.row_parts import RowTiles, combine_operator, fold, folded_in, identity, reads
from search_spaces.workloads.expression import Access, Affine, Apply
from search_spaces.workloads.workload import Stage

# The start of a maximum that sums are shifted by: the lowest float32, not -inf, so that minus itself it is 0.
_LOWEST = -3.4028234663852886e38


@dataclass(frozen=True)
class Group:
    """Reductions folded in one walk; `shifted`: a maximum and the sum that is shifted by it."""

    stages: tuple[Stage, ...]
    shifted: bool = False


def groups(rows: RowTiles, online: bool) -> list[Group]:
    """The reductions in order, grouped into walks."""
    pair = online_pair(rows) if online else None
    found: list[Group] = []
    for stage in rows.structure.folds:
        if pair and stage is pair[1]:
            continue
        if pair and stage is pair[0]:
            found.append(Group(pair, shifted=True))
            continue
        before = found[-1] if found else Group((), shifted=True)
        if before.shifted or any(reads(rows.body_of(stage), s.name) for s in before.stages):
            found.append(Group((stage,)))
        else:
            found[-1] = Group((*before.stages, stage))
    return found


def alike(where: Mapping[str, frozenset[Affine]], group: Group) -> frozenset[Affine]:
    """Where points leave all folds of a group unchanged; `where` says it of each."""
    return frozenset.intersection(*(where[s.name] for s in group.stages))


def online_pair(rows: RowTiles) -> tuple[Stage, Stage] | None:
    """A maximum over the columns, and the next reduction, if that sums exp(… - maximum) with nothing else of it."""
    for top, total in zip(rows.structure.folds, rows.structure.folds[1:], strict=False):
        if top.reduction is None or total.reduction is None:
            continue
        body = rows.body_of(total)
        if top.reduction.operator != "max" or total.reduction.operator != "sum":
            continue
        if not (isinstance(body, Apply) and body.operator == "exp" and isinstance(body.arguments[0], Apply)):
            continue
        shifted = body.arguments[0]
        if shifted.operator != "sub" or reads(shifted.arguments[0], top.name):
            continue
        if isinstance(shifted.arguments[1], Access) and shifted.arguments[1].tensor == top.name:
            return top, total
    return None


def reduce_columns(
    rows: RowTiles, walk: ColumnWalk, group: Group, names: Names, known: dict[str, Tile], by_point: bool
) -> list[Statement]:
    """The statistics of the group, added to `known` when they are complete."""
    folds = _Folds(rows, group, names, dict(known))
    statistics = [rows.statistic(s) for s in group.stages]
    known.update({t.name: t for t in statistics})
    if walk.one_by_one:
        # A turn of one column adds a point to every row.
        return [*folds.start(statistics), *walk.over(lambda columns: folds.add_points(statistics, columns))]
    if not by_point:
        return [*folds.start(statistics), *walk.over(folds.add_rows)]
    points = [rows.points(names.fresh(f"{s.name}_points"), walk.columns, folded_in(s)) for s in group.stages]
    main = walk.whole(lambda columns: folds.add_points(points, columns))
    body = [*folds.start(points), *main, *folds.join(points, rows.structure.column.name)] if main else []
    return [*(body or folds.start(statistics)), *walk.rest(folds.add_rows)]


def join_parts(
    rows: RowTiles, group: Group, names: Names, known: dict[str, Tile], parts: Sequence[Tile], load: list[Statement]
) -> list[Statement]:
    """The statistics of the group from tiles of partial ones, with their parts along the first axis."""
    folds = _Folds(rows, group, names, dict(known))
    known.update({s.name: rows.statistic(s) for s in group.stages})
    return [*load, *folds.join(parts, parts[0].axes[0])]


@dataclass(frozen=True)
class _Folds:
    """The statements of one group; `known` are the statistics of earlier ones."""

    rows: RowTiles
    group: Group
    names: Names
    known: dict[str, Tile]

    def start(self, running: Sequence[Tile]) -> list[Statement]:
        """Set the running values to what leaves every other value as it is."""
        starts = [identity(s) for s in self.group.stages]
        if self.group.shifted:
            starts[0] = _LOWEST
        return [Fill(tile, value) for tile, value in zip(running, starts, strict=True)]

    def add_rows(self, columns: Slice) -> list[Statement]:
        """Fold the columns, and the results into the statistics."""
        emitter = self.rows.emitter(columns, self.names, self.known)
        running = [self.rows.statistic(s) for s in self.group.stages]
        return self._add(emitter, running, lambda s: fold(self.rows, emitter, s, columns, f"{s.name}_part"))

    def add_points(self, running: Sequence[Tile], columns: Slice) -> list[Statement]:
        """Fold every point of the columns into the running value at its place."""
        emitter = self.rows.emitter(columns, self.names, self.known)
        return self._add(emitter, running, lambda s: emitter.tile(self.rows.body_of(s), f"{s.name}_point"))

    def join(self, partial: Sequence[Tile], axis: str) -> list[Statement]:
        """Fold running values along an axis, to the statistics."""
        body: list[Statement] = []
        statistics = [self.rows.statistic(s) for s in self.group.stages]
        for stage, tile, statistic in zip(self.group.stages, partial, statistics, strict=True):
            assert stage.reduction is not None
            folded = tile
            if self.group.shifted and stage is not self.group.stages[0]:
                emitter = Emitter({x: Slice(Affine(), tile.extent(x)) for x in tile.axes}, {}, self.names)
                shift = emitter.map("exp", emitter.map("sub", partial[0], statistics[0]))
                folded = emitter.map("mul", tile, shift)
                body += emitter.body
            body.append(Reduce(statistic, folded.name, axis, stage.reduction.operator))
        return body

    def _add(self, emitter: Emitter, running: Sequence[Tile], value: Callable[[Stage], Tile]) -> list[Statement]:
        """Add what `value` makes of every stage to its running value."""
        if not self.group.shifted:
            for stage, tile in zip(self.group.stages, running, strict=True):
                emitter.assign(tile, combine_operator(stage), tile, value(stage))
            return emitter.body
        (top_stage, total_stage), (top, total) = self.group.stages, running
        candidate = value(top_stage)
        higher = emitter.map("maximum", top, candidate, name=f"{top.name}_next")
        rescale = emitter.map("exp", emitter.map("sub", top, higher), name="rescale")
        emitter.tiles[top_stage.name] = higher
        added = value(total_stage)
        emitter.assign(total, "add", emitter.map("mul", total, rescale), added)
        emitter.assign(top, "maximum", top, candidate)
        return emitter.body
