"""What the row sketches share: rows on the grid, and the statements of reductions over a part of the columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

from search_spaces.expression import Access, Affine, Expression, walk
from search_spaces.lowering import Emitter, Names
from search_spaces.structure import RowForm, inline
from search_spaces.tile_program import Bound, Fill, GridAxis, Reduce, Slice, Tile
from search_spaces.workload import Stage, Workload

_IDENTITY = {"sum": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}


@dataclass(frozen=True)
class RowTiles:
    """The rows of one program: `height` of the last row axis, one position of every outer one."""

    workload: Workload
    form: RowForm
    height: int

    @property
    def grid(self) -> tuple[GridAxis, ...]:
        *outer, last = self.form.rows
        rows = GridAxis(f"{last.name}.0", -(-last.extent // self.height))
        return (*(GridAxis(f"{x.name}.0", x.extent) for x in outer), rows)

    @property
    def place(self) -> dict[str, Slice]:
        """Where the rows of a program lie."""
        *outer, last = self.form.rows
        place = {x.name: Slice(Affine.of((f"{x.name}.0", 1))) for x in outer}
        place[last.name] = Slice(Affine.of((f"{last.name}.0", self.height)), self.height)
        return place

    @property
    def row_axis(self) -> str:
        return self.form.rows[-1].name

    def statistic(self, stage: Stage) -> Tile:
        """The tile of a reduction's result: one value per row."""
        return Tile(stage.name, (self.row_axis,), (self.height,))

    def emitter(self, columns: Slice | None, names: Names, known: dict[str, Tile], fill: float = 0.0) -> Emitter:
        """An emitter for these rows and the given columns (None: no column)."""
        place = dict(self.place)
        if columns is not None:
            place[self.form.column.name] = columns
        dtypes = {t.name: t.dtype for t in self.workload.inputs}
        return Emitter(place, dtypes, names, tiles=dict(known), fill=fill)

    def body_of(self, stage: Stage) -> Expression:
        """What the stage computes at one point, with pointwise stages inlined and reductions left by name."""
        return inline(stage.expression, {s.name: s for s in self.workload.stages if not s.reduction})

    def output_axes(self) -> tuple[str, ...]:
        return tuple(x.name for x in self.workload.stages[-1].axes)

    @property
    def writes_columns(self) -> bool:
        """Whether the output has the column axis, or one value per row."""
        return self.form.column.name in self.output_axes()


def fold(rows: RowTiles, emitter: Emitter, stage: Stage, columns: Slice, name: str) -> Tile:
    """Reduce the stage's body over the columns of the emitter's place; padding columns are left out."""
    assert stage.reduction is not None
    assert columns.extent is not None
    values = emitter.tile(rows.body_of(stage), f"{stage.name}_body")
    column = rows.form.column
    if column.name not in values.axes:
        # A body without the column axis still counts once per column.
        ones = Tile(emitter.names.fresh("ones"), (column.name,), (columns.extent,))
        values = _broadcast(emitter, values, ones)
    dst = Tile(emitter.names.fresh(name), (rows.row_axis,), (rows.height,))
    padded = column.extent % columns.extent != 0
    bound = Bound(columns.start, column.extent) if padded else None
    emitter.body.append(Reduce(dst, values.name, column.name, stage.reduction.operator, bound))
    return dst


def _broadcast(emitter: Emitter, values: Tile, ones: Tile) -> Tile:
    emitter.body.append(Fill(ones, 1.0))
    return emitter.map("mul", values, ones)


def identity(stage: Stage) -> float:
    """What a running reduction starts from."""
    assert stage.reduction is not None
    return _IDENTITY[stage.reduction.operator]


def combine_operator(stage: Stage) -> str:
    """The pointwise operator that joins two partial results of the stage."""
    assert stage.reduction is not None
    return {"sum": "add", "max": "maximum", "min": "minimum", "prod": "mul"}[stage.reduction.operator]


def reads(expression: Expression, tensor: str) -> bool:
    return any(isinstance(e, Access) and e.tensor == tensor for e in walk(expression))
