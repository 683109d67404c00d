"""Running folds: reductions of the columns of some rows, walked piece by piece.

    by row                                        by point
      total = 0                                     points = 0 for every row and column of a piece
      for c.0: total += sum of x_tile over c        for c.whole: points += x_tile
                                                    total = sum of points over c
                                                    total += sum of what is left of the columns
By row needs few registers, and folds across threads in every turn; by point does that once, and masks nothing within
the loop. Several folds share a walk where one is a maximum and the other a sum of exponentials that are shifted by it:
the sum is rescaled when the maximum grows (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018,
algorithm 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search_spaces.column_walk import ColumnWalk
from search_spaces.expression import Access, Apply
from search_spaces.lowering import Emitter, Names
from search_spaces.row_parts import RowTiles, combine_operator, fold, identity, reads
from search_spaces.tile_program import Fill, Reduce, Slice, Statement, Tile
from search_spaces.workload import Stage

# The start of a maximum that sums are shifted by: the lowest float32, not -inf, so that minus itself it is 0.
_LOWEST = -3.4028234663852886e38

# Reductions folded in one walk: one, or a maximum and the sum that is shifted by it.
Group = tuple[Stage, ...]


def groups(rows: RowTiles, online: bool) -> list[Group]:
    """The reductions in order, grouped into walks."""
    pair = online_pair(rows) if online else None
    reductions = rows.form.reductions
    if pair is None:
        return [(s,) for s in reductions]
    return [pair if s is pair[0] else (s,) for s in reductions if s is not pair[1]]


def online_pair(rows: RowTiles) -> tuple[Stage, Stage] | None:
    """A maximum over the columns, and the next reduction, if that sums exp(… - maximum) with nothing else of it."""
    for top, total in zip(rows.form.reductions, rows.form.reductions[1:], strict=False):
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
    statistics = [rows.statistic(s) for s in group]
    known.update({t.name: t for t in statistics})
    if walk.one_by_one:
        # A turn of one column adds a point to every row.
        return [*folds.start(statistics), *walk.over(lambda columns: folds.add_points(statistics, columns))]
    if not by_point:
        return [*folds.start(statistics), *walk.over(folds.add_rows)]
    points = [rows.points(names.fresh(f"{s.name}_points"), walk.columns) for s in group]
    main = walk.whole(lambda columns: folds.add_points(points, columns))
    body = [*folds.start(points), *main, *folds.join(points, rows.form.column.name)] if main else []
    return [*(body or folds.start(statistics)), *walk.rest(folds.add_rows)]


def join_parts(
    rows: RowTiles, group: Group, names: Names, known: dict[str, Tile], parts: Sequence[Tile], load: list[Statement]
) -> list[Statement]:
    """The statistics of the group from tiles of partial ones, with their parts along the first axis."""
    folds = _Folds(rows, group, names, dict(known))
    known.update({s.name: rows.statistic(s) for s in group})
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
        starts = [identity(s) for s in self.group]
        if len(self.group) == 2:
            starts[0] = _LOWEST
        return [Fill(tile, value) for tile, value in zip(running, starts, strict=True)]

    def add_rows(self, columns: Slice) -> list[Statement]:
        """Fold the columns, and the results into the statistics."""
        rows, emitter = self.rows, self.rows.emitter(columns, self.names, self.known)
        first = fold(rows, emitter, self.group[0], columns, f"{self.group[0].name}_part")
        running = [rows.statistic(s) for s in self.group]
        if len(running) == 1:
            emitter.assign(running[0], combine_operator(self.group[0]), running[0], first)
            return emitter.body
        rescale = self._raise(emitter, running[0], first)
        added = fold(rows, emitter, self.group[1], columns, f"{running[1].name}_part")
        return self._rescaled(emitter, running, rescale, added)

    def add_points(self, running: Sequence[Tile], columns: Slice) -> list[Statement]:
        """Fold every point of the columns into the running value at its place."""
        rows, emitter = self.rows, self.rows.emitter(columns, self.names, self.known)
        first = emitter.tile(rows.body_of(self.group[0]), f"{self.group[0].name}_point")
        if len(running) == 1:
            emitter.assign(running[0], combine_operator(self.group[0]), running[0], first)
            return emitter.body
        rescale = self._raise(emitter, running[0], first)
        added = emitter.tile(rows.body_of(self.group[1]), f"{self.group[1].name}_point")
        return self._rescaled(emitter, running, rescale, added)

    def join(self, partial: Sequence[Tile], axis: str) -> list[Statement]:
        """Fold running values along an axis, to the statistics."""
        statistics = [self.rows.statistic(s) for s in self.group]
        body: list[Statement] = []
        for stage, tile, statistic in zip(self.group, partial, statistics, strict=True):
            assert stage.reduction is not None
            folded = tile
            if stage is not self.group[0]:
                emitter = Emitter(
                    {x: Slice(self.rows.place[self.rows.row_axis].start) for x in tile.axes}, {}, self.names
                )
                shift = emitter.map("exp", emitter.map("sub", partial[0], statistics[0]))
                folded = emitter.map("mul", tile, shift)
                body += emitter.body
            body.append(Reduce(statistic, folded.name, axis, stage.reduction.operator))
        return body

    def _raise(self, emitter: Emitter, top: Tile, candidate: Tile) -> Tile:
        """Let the emitter know the higher maximum; the factor that brings sums shifted by the old one to it."""
        higher = emitter.map("maximum", top, candidate, name=f"{top.name}_next")
        emitter.tiles[self.group[0].name] = higher
        return emitter.map("exp", emitter.map("sub", top, higher), name="rescale")

    def _rescaled(self, emitter: Emitter, running: Sequence[Tile], rescale: Tile, added: Tile) -> list[Statement]:
        top, total = running
        emitter.assign(total, "add", emitter.map("mul", total, rescale), added)
        emitter.assign(top, "maximum", top, emitter.tiles[self.group[0].name])
        return emitter.body
