"""What the row sketches share: rows on the grid, and the statements of reductions over a part of the columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from search_spaces.devices.target import Target
from search_spaces.programs import tile_program
from search_spaces.programs.lowering import Emitter, Names
from search_spaces.programs.tile_program import Bound, Fill, GridAxis, Reduce, Slice, Tile
from search_spaces.schedules.knobs import Tiling, cover
from search_spaces.sketches.dots.dot_knobs import SHORT_AXIS
from search_spaces.structure.contraction import contraction
from search_spaces.structure.forms import RowForm, row_form
from search_spaces.structure.stages import inline
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expression import Access, Affine, Expression, is_integral, walk
from search_spaces.workloads.workload import Stage, Workload

# Rows of a program, each of which is long.
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
# Rows that are neighbours in memory, so that a program reads pieces of memory that are so long: from a sector of a
# GPU's cache up to several cache lines per warp; on a CPU, what a first-level cache holds one running value each of.
ROWS_OUTER = (8, 16, 32, 64, 128, 256, 512, 1024)
ROWS_OUTER_CPU = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def row_form_on(workload: Workload, target: Target) -> tuple[Workload, RowForm] | None:
    """The row form of a workload as kernels for the target see it.

    A CPU walks neighbours of all tensors alike, or else vectors of columns, which some tensors hold apart. What a GPU
    has dots for is no reduction of rows there, unless one side is thin.
    """
    found = row_form(workload)
    if target.kind == "gpu":
        fused = contraction(workload) if found else None
        return None if fused and min(fused.m.extent, fused.n.extent) > SHORT_AXIS else found
    if found is None or not found[1].outer or found[1].even:
        return found
    return found[0], replace(found[1], outer=False)


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

    def place_with(self, columns: Slice) -> dict[str, Slice]:
        """Where the rows and these columns of them lie; tiles have their axes in this order, as memory does."""
        column = {self.form.column.name: columns}
        return column | self.place if self.form.outer else self.place | column

    @property
    def row_axis(self) -> str:
        return self.form.tiled_row.name

    def statistic(self, stage: Stage) -> Tile:
        """The tile of a reduction's result: one value per row."""
        return Tile(stage.name, (self.row_axis,), (self.height,), folded_in(stage))

    def points(self, name: str, columns: Slice, dtype: str) -> Tile:
        """A tile with one value per row and column."""
        extents = {axis: piece.extent for axis, piece in self.place_with(columns).items() if piece.extent is not None}
        return Tile(name, tuple(extents), tuple(extents.values()), dtype)

    def emitter(self, columns: Slice | None, names: Names, known: dict[str, Tile], fill: float = 0.0) -> Emitter:
        """An emitter for these rows and the given columns (None: no column)."""
        place = self.place if columns is None else self.place_with(columns)
        dtypes = {t.name: t.dtype for t in self.workload.inputs}
        return Emitter(place, dtypes, names, tiles=dict(known), fill=fill)

    def body_of(self, stage: Stage) -> Expression:
        """What the stage computes at one point, with pointwise stages inlined and reductions left by name."""
        return inline(stage.expression, {s.name: s for s in self.workload.stages if not s.reduction})

    def store_output(self, emitter: Emitter, streaming: bool) -> None:
        """Compute the last stage where the emitter is, and write it."""
        last = self.workload.stages[-1]
        result = emitter.tiles[last.name] if last.reduction else emitter.tile(self.body_of(last), "result")
        axes = tuple(x.name for x in last.axes)
        sliced = {x: piece.extent for x in axes if (piece := emitter.place[x]).extent is not None}
        emitter.store(last.name, axes, spread(emitter, result, sliced), streaming)

    @property
    def writes_columns(self) -> bool:
        """Whether the output has the column axis, or one value per row."""
        return self.form.column in self.workload.stages[-1].axes


def row_tiling(form: RowForm, target: Target) -> Tiling:
    """How many rows a program takes at once."""
    extent = form.tiled_row.extent
    if form.outer and target.kind != "gpu":
        heights = tuple(sorted({min(h, extent) for h in ROWS_OUTER_CPU}))
    else:
        candidates = ROWS_OUTER if form.outer else ROWS
        heights = tuple(h for h in candidates if h < 2 * max(extent, candidates[0]))
    return Tiling("rows", extent, ("grid", "tile"), tuple(cover(extent, (h,)) for h in heights))


def fold(rows: RowTiles, emitter: Emitter, stage: Stage, columns: Slice, name: str) -> Tile:
    """Reduce the stage's body over the columns of the emitter's place; padding columns are left out."""
    assert stage.reduction is not None
    assert columns.extent is not None
    values = emitter.tile(rows.body_of(stage), f"{stage.name}_body")
    column = rows.form.column
    # A body without the column axis still counts once per column.
    values = spread(emitter, values, {rows.row_axis: rows.height, column.name: columns.extent})
    dst = Tile(emitter.names.fresh(name), (rows.row_axis,), (rows.height,), folded_in(stage))
    padded = column.extent % columns.extent != 0
    bound = Bound(columns.start, column.extent) if padded else None
    emitter.body.append(Reduce(dst, values.name, column.name, stage.reduction.operator, bound))
    return dst


def spread(emitter: Emitter, values: Tile, extents: Mapping[str, int | None]) -> Tile:
    """The tile repeated along those of the axes that it lacks."""
    missing = {x: e for x, e in extents.items() if x not in values.axes and e is not None}
    if not missing:
        return values
    integral = is_integer(values.dtype)
    dtype = "int64" if integral else "float32"
    ones = Tile(emitter.names.fresh("ones"), tuple(missing), tuple(missing.values()), dtype)
    emitter.body.append(Fill(ones, 1 if integral else 1.0))
    return emitter.map("mul", values, ones, dtype=dtype)


def folded_in(stage: Stage) -> str:
    """The element type that a reduction folds in."""
    return "int64" if is_integral(stage.expression) else "float32"


def identity(stage: Stage) -> float | int:
    """What a running reduction starts from."""
    assert stage.reduction is not None
    return tile_program.identity(stage.reduction.operator, is_integral(stage.expression))


def combine_operator(stage: Stage) -> str:
    """The pointwise operator that joins two partial results of the stage."""
    assert stage.reduction is not None
    return {"sum": "add", "max": "maximum", "min": "minimum", "prod": "mul"}[stage.reduction.operator]


def reads(expression: Expression, tensor: str) -> bool:
    return any(isinstance(e, Access) and e.tensor == tensor for e in walk(expression))
