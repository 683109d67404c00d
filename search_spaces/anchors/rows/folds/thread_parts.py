"""Distribution of a tile's columns over the threads of a GPU's program, so that each thread folds its own.

    x: (r 1, c 4096), in 128 threads with vectors of 8    x: (r 1, `turn` 4, thread 128, neighbour 8)
    part: (r 1, thread 128) = fold of x over neighbours and `turn`

Threads have consecutive vectors, iteration by iteration, as in a coalesced load of a tile. If a compiler distributes
them differently, results are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from search_spaces.anchors.rows.aligned_rows import vector_of_rows
from search_spaces.anchors.rows.row_parts import RowTiles, folded_in, spread
from search_spaces.decisions.loops.folding import BY_THREAD, POINT, ROW
from search_spaces.devices.target import Target
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Reduce
from search_spaces.programs.tiles import Tile
from search_spaces.schedules.knobs import Values
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.walking import gathers
from search_spaces.workloads.workload import Stage

_TURN, THREAD, _NEIGHBOUR = "turn", "thread", "neighbour"


@dataclass(frozen=True)
class ThreadParts:
    """The threads of a program, each with `vector` neighbours at a time, of a tile with `columns` columns."""

    columns: int
    threads: int
    vector: int

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """Axes into which the columns of a tile are cut, and their extents."""
        vector = min(self.vector, self.columns)
        threads = min(self.threads, self.columns // vector)
        axes = ((_TURN, self.columns // (threads * vector)), (THREAD, threads), (_NEIGHBOUR, vector))
        return tuple((name, extent) for name, extent in axes if extent > 1 or name == THREAD)

    @property
    def extent(self) -> int:
        """Number of parts."""
        return dict(self.axes)[THREAD]

    @property
    def share(self) -> int:
        """Number of columns of each part."""
        return self.columns // self.extent

    def fold(self, rows: RowTiles, emitter: Emitter, stage: Stage, values: Tile, name: str) -> Tile:
        """Every thread's fold of a tile whose columns are cut into these axes."""
        assert stage.reduction is not None
        values = spread(emitter, values, {**rows.sliced, **dict(self.axes)})
        for axis in (_NEIGHBOUR, _TURN):
            if axis in values.axes:
                rest = {x: e for x, e in zip(values.axes, values.shape, strict=True) if x != axis}
                dst = Tile(emitter.names.fresh(name), tuple(rest), tuple(rest.values()), folded_in(stage))
                emitter.body.append(Reduce(dst, values.name, axis, stage.reduction.operator))
                values = dst
        return values


# Owners of running values: every row, every point of an iteration, or every thread.
Accumulated = Literal["row", "point"] | ThreadParts


def accumulations(structure: Structure) -> tuple[str, ...]:
    """Owners of running values on a GPU."""
    if structure.outer or not structure.folds:
        return (POINT,)
    in_order = structure.kept or structure.scans or any(gathers(structure.body_of(s)) for s in structure.folds)
    return (ROW, POINT) if in_order else (ROW, POINT, BY_THREAD)


def accumulated(structure: Structure, target: Target, values: Values, by_vectors: bool) -> Accumulated:
    """The owner of running values; on a CPU the row. `by_vectors`: rows are read by whole vectors."""
    chosen = values.get("accumulate", "row")
    if chosen != "thread":
        return "point" if chosen == "point" else "row"
    vector = vector_of_rows(structure, target) if by_vectors else 1
    return ThreadParts(values.tile("columns"), target.wave * values.integer("warps"), vector)
