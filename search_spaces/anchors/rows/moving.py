"""Rescaled folds: running values, and their correction when the values that they are relative to change.

    top_next = max(top, max of a piece)
    rescale = exp(top - top_next)
    total = total * rescale + sum of exp(piece - top_next)
    acc = acc * rescale;  acc += dot(exp(piece - top_next), v)
    top = top_next

The folds of one loop and their relations are found by `structure.folds.dependent`; the caller chooses the pieces and
folds each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from search_spaces.anchors.rows.row_parts import combine_operator, identity
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Dot, Fill, Reduce, Statement
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.folds.dependent import Fold, Group, before, was
from search_spaces.structure.folds.moving import reads
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Apply, Expression
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.names import Names

# The tiles of running folds, and of the references that are kept while points are added; by name.
Running = Mapping[str, Tile]
# The contribution of a piece to a fold: a tile, a number, or the dot whose product it is.
Added = Tile | float | Dot


@dataclass(frozen=True)
class MovingFolds:
    """The statements of one group of folds."""

    group: Group
    names: Names

    @property
    def held(self) -> list[str]:
        return [r.name for r in self.group.relatives if r.held]

    def start(self, running: Running) -> list[Statement]:
        """Set the running values to their neutral elements."""
        starts = {f.name: identity(f.stage) if f.start is None else f.start for f in self.group.folds}
        return [Fill(tile, starts.get(name, 0.0)) for name, tile in running.items()]

    def add(self, emitter: Emitter, running: Running, value: Callable[[Fold], Added]) -> list[Statement]:
        """Add `value` of every fold to its running value, rescaled to the current references."""
        emitter.tiles.update({before(name): tile for name, tile in running.items()})
        last: list[tuple[Tile, str, Tile, Tile | float]] = []
        for fold in self.group.folds:
            tile, combine = running[fold.name], combine_operator(fold.stage)
            moves = fold.moved if not fold.held else None
            self._prepare(emitter, fold.name, moves)
            more = value(fold)
            if isinstance(more, Dot):
                _move(emitter, tile, moves)
                emitter.body.append(more)
                continue
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

    def join(self, partial: Running, statistics: Running, axis: str) -> list[Statement]:
        """Fold running values along an axis into the statistics."""
        largest = max(partial.values(), key=lambda t: len(t.axes))
        emitter = Emitter({x: Slice(Affine(), largest.extent(x), x) for x in largest.axes}, {}, self.names)
        emitter.tiles.update({before(name): tile for name, tile in partial.items()})
        for fold in self.group.folds:
            moved = partial[fold.name] if fold.moved is None else emitter.tile(fold.moved, "t")
            if axis in moved.axes:
                assert fold.stage.reduction is not None
                emitter.body.append(Reduce(statistics[fold.name], moved.name, axis, fold.stage.reduction.operator))
            else:
                # The count of all points is that of each part.
                emitter.assign(statistics[fold.name], "mul", moved, float(largest.extent(axis)))
            emitter.tiles[fold.name] = statistics[fold.name]
            self._relate(emitter)
        self._hold(emitter, statistics)
        return emitter.body

    def settle(self, emitter: Emitter, statistics: Running) -> list[Statement]:
        """Rescale folds from a kept reference to the reference of all folded points.

        `emitter` knows the statistics by their former names.
        """
        if not self.held:
            return []
        emitter.tiles.update({f.name: statistics[f.name] for f in self.group.folds})
        self._relate(emitter)
        moved = {f.name: emitter.tile(f.moved, f"{f.name}_moved") for f in self.group.folds if f.held and f.moved}
        for name, tile in moved.items():
            emitter.assign(statistics[name], "cast", tile)
        return emitter.body

    def complete(self, emitter: Emitter) -> list[Statement]:
        """Finish the statistics, which `emitter` knows, once all points are folded."""
        for name, factor in self.group.completed:
            emitter.assign(emitter.tiles[name], "mul", emitter.tiles[name], emitter.tile(factor, "completion"))
        return emitter.body

    def _prepare(self, emitter: Emitter, name: str, moved: Expression | None) -> None:
        """Compute the correction of a fold before its contribution."""
        if isinstance(moved, Apply):
            for part in moved.arguments:
                if not reads(part, {before(name)}):
                    emitter.emit(part, "rescale" if moved.operator == "mul" else "moved")

    def _relate(self, emitter: Emitter, adding: bool = False) -> None:
        """Compute references of other folds, current and former, as soon as they are known."""
        for relative in self.group.relatives:
            name, value = relative.name, relative.held if adding and relative.held else relative.value
            if name in emitter.tiles or not all(a.tensor in emitter.tiles for a in accesses(value)):
                continue
            emitter.tiles[name] = emitter.tile(value, name)
            if before(name) not in emitter.tiles:
                emitter.tiles[before(name)] = emitter.tile(was(relative.value), f"{name}_before")

    def _hold(self, emitter: Emitter, statistics: Running) -> None:
        """Store the kept references, for points that are added to the statistics."""
        for name in self.held:
            if name in statistics:
                emitter.assign(statistics[name], "cast", emitter.tiles[name])


def _move(emitter: Emitter, tile: Tile, moved: Expression | None) -> None:
    """Rescale a running value in place."""
    if isinstance(moved, Apply):
        values = [emitter.emit(a) for a in moved.arguments]
        emitter.assign(tile, moved.operator, *values)
