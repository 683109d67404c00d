"""Parts of kernels of rows: rows on the grid, and the statements of reductions over some of the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from search_spaces.anchors.rows.column_loop import ColumnLoop
from search_spaces.decisions.decision import Decision
from search_spaces.decisions.tiles.tiling import tiling
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.grid import GridAxis
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Fill, Reduce, Statement, fold_identity
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.structure.axes import Structure, structure_of
from search_spaces.structure.chains.finding import chain_of
from search_spaces.structure.contraction import SHORT_AXIS, contraction
from search_spaces.structure.direct_form import direct_form
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Expression
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.names import Names
from search_spaces.workloads.stages import JOINED_BY
from search_spaces.workloads.workload import Axis, Stage, Workload

# Rows of a program, each of which is long.
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
# Rows that are neighbours in memory, so that a program reads contiguous pieces: from a sector of a GPU's cache up to
# several cache lines per warp; on a CPU, as many as have one running value each in a first-level cache.
ROWS_OUTER = (8, 16, 32, 64, 128, 256, 512, 1024)
ROWS_OUTER_CPU = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def rows_on(workload: Workload, target: Target) -> Structure:
    """The structure of a workload that reduces rows, as seen by kernels for the target.

    A CPU streams neighbours of all tensors alike, or else vectors of columns, which are apart in some tensors. Products
    for dots are no reductions of rows there, on a GPU unless one side is thin.

    Raises:
        UnmatchedError: the reason that it is none.
    """
    found = structure_of(workload)
    if not found.reduced:
        raise UnmatchedError("nothing is folded, nor scanned")
    product = contraction(workload)
    _check_chain(workload, target)
    if target.kind == "gpu":
        if product and not product.is_thin(SHORT_AXIS):
            raise UnmatchedError(f"{product.dots[0].stage} is a product of matrices, for dots")
        return found
    if (product and product.is_plain_product and product.is_packed) or _is_direct(workload):
        raise UnmatchedError("it is a product of two tensors, for dots")
    walked = found.even and not found.folds_scans_of_folds
    return replace(found, outer=False) if found.outer and not walked else found


def _is_direct(workload: Workload) -> bool:
    """True if register tiles sum the products, of more than a vector."""
    try:
        form = direct_form(workload)
    except UnmatchedError:
        return False
    return form.m.extent > 1 < form.n.extent


def _check_chain(workload: Workload, target: Target) -> None:
    """Raise UnmatchedError for folds of a product of matrices, each of which would compute the whole product anew."""
    try:
        chain = chain_of(workload)
    except UnmatchedError:
        return
    thin = min(chain.m.extent, chain.c.extent) <= SHORT_AXIS
    if target.kind == "cpu" or not (thin or chain.why_not_held):
        raise UnmatchedError(f"{chain.inner[0].stage} is a product of matrices, for dots")


@dataclass(frozen=True)
class RowTiles:
    """The rows of one program: `height` of the last parallel axis, one position of every other one.

    `walked`: slices of the reduced axes except the column, in variables of the loops around it. `scan`: scans of every
    iteration over some columns, before its other statements. `ahead`: values of rows, computed before loops.
    """

    structure: Structure
    height: int
    walked: Mapping[str, Slice] = field(default_factory=dict)
    scan: Callable[[Emitter, Slice], None] | None = None
    ahead: Mapping[Expression, Tile] = field(default_factory=dict)

    @property
    def workload(self) -> Workload:
        return self.structure.workload

    @property
    def grid(self) -> tuple[GridAxis, ...]:
        if self.structure.row is None:
            return (GridAxis("r.0", 1),)
        *outer, last = self.structure.parallel
        rows = GridAxis(f"{last.name}.0", -(-last.extent // self.height))
        return (*(GridAxis(f"{x.name}.0", x.extent) for x in outer), rows)

    @property
    def place(self) -> dict[str, Slice]:
        """Slices of a program's rows."""
        if self.structure.row is None:
            return {}
        *outer, last = self.structure.parallel
        place = {x.name: Slice(Affine.of((f"{x.name}.0", 1))) for x in outer}
        place[last.name] = Slice(Affine.of((f"{last.name}.0", self.height)), self.height, last.name)
        return place

    def place_with(self, columns: Slice) -> dict[str, Slice]:
        """Slices of the rows and these columns; tiles have their axes in this order, as memory does."""
        column = {**self.walked, self.structure.column.name: columns}
        return column | self.place if self.structure.outer else self.place | column

    @property
    def sliced(self) -> dict[str, int]:
        """Axes of a tile with one value per row, and their extents."""
        row = self.structure.row
        return {row.name: self.height} if row else {}

    def statistic(self, stage: Stage) -> Tile:
        """Tile of a reduction's result: one value per row."""
        return Tile(stage.name, tuple(self.sliced), tuple(self.sliced.values()), folded_in(stage))

    def points(self, name: str, columns: Slice, dtype: str) -> Tile:
        """A tile with one value per row and column."""
        extents = {axis: piece.extent for axis, piece in self.place_with(columns).items() if piece.extent is not None}
        return Tile(name, tuple(extents), tuple(extents.values()), dtype)

    def emitter(self, columns: Slice | None, names: Names, known: dict[str, Tile], fill: float = 0.0) -> Emitter:
        """An emitter for these rows and the given columns (None: no column)."""
        place = {**self.walked, **self.place} if columns is None else self.place_with(columns)
        dtypes = {t.name: t.dtype for t in self.workload.inputs}
        made = Emitter(place, dtypes, names, tiles=dict(known), fill=fill)
        for expression, tile in self.ahead.items():
            made.know(expression, tile)
        if columns is not None and self.scan is not None:
            self.scan(made, columns)
        return made

    def body_of(self, stage: Stage) -> Expression:
        """The stage's value at one point, with pointwise stages inlined and reductions left by name."""
        return self.structure.body_of(stage)

    def store(self, outputs: Iterable[Stage], emitter: Emitter) -> None:
        """Compute the outputs at the emitter's place, and store them."""
        for output in outputs:
            known = emitter.tiles.get(output.name) if not output.is_pointwise else None
            result = known or emitter.tile(self.body_of(output), "result")
            axes = tuple(x.name for x in output.axes)
            sliced = {x: piece.extent for x in axes if (piece := emitter.place[x]).extent is not None}
            emitter.store(output.name, axes, spread(emitter, result, sliced))


def split_outputs(structure: Structure) -> tuple[list[Stage], list[Stage]]:
    """The outputs that have reduced axes, and those of one value per row."""
    outputs = structure.outputs
    points = [s for s in outputs if structure.is_per_point(s)]
    return points, [s for s in outputs if s not in points]


def ready_early(structure: Structure, points: list[Stage]) -> list[Stage]:
    """The outputs with reduced axes, if the loop of the first fold can write all of them: none needs it.

    If some are written later, that loop reads enough for all.
    """
    whole = not structure.kept and not structure.scans and not any(map(structure.read_folds, points))
    return points if whole else []


def storing(loop: ColumnLoop, rows: RowTiles, outputs: list[Stage], names: Names) -> ColumnLoop:
    """The loop with stores of the outputs in every iteration; it leaves out no columns."""

    def write(columns: Slice) -> list[Statement]:
        emitter = rows.emitter(columns, names, {})
        rows.store(outputs, emitter)
        return emitter.body

    return replace(loop, beside=write, unchanged=frozenset())


def row_tiling(structure: Structure, target: Target) -> Decision:
    """Numbers of rows of a program."""
    extent = structure.rows
    if structure.outer and target.kind != "gpu":
        heights = tuple(sorted({min(h, extent) for h in ROWS_OUTER_CPU}))
    else:
        candidates = ROWS_OUTER if structure.outer else ROWS
        heights = tuple(h for h in candidates if h < 2 * max(extent, candidates[0]))
    return tiling("rows", extent, "grid", heights)


def fold_along(rows: RowTiles, emitter: Emitter, stage: Stage, pieces: Mapping[Axis, Slice], name: str) -> Tile:
    """Reduce the stage's body over pieces of these axes, the last one first; padding is left out."""
    assert stage.reduction is not None
    values = emitter.tile(rows.body_of(stage), f"{stage.name}_body")
    # A body without a reduced axis still counts once per position.
    kept = {x.name: emitter.place[x.name].extent for x in stage.axes if x in rows.structure.reduced}
    values = spread(emitter, values, {**rows.sliced, **kept, **{x.name: piece.extent for x, piece in pieces.items()}})
    for axis, piece in reversed([*pieces.items()]):
        assert piece.extent is not None
        rest = {x: e for x, e in zip(values.axes, values.shape, strict=True) if x != axis.name}
        wanted = name if axis == next(iter(pieces)) else f"{stage.name}_{axis.name}"
        dst = Tile(emitter.names.fresh(wanted), tuple(rest), tuple(rest.values()), folded_in(stage))
        uneven = axis.extent % piece.extent != 0 or piece.skew is not None
        bound = Bound(piece.start, axis.extent, piece.skew) if uneven else None
        emitter.body.append(Reduce(dst, values.name, axis.name, stage.reduction.operator, bound))
        values = dst
    return values


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
    """Start of a running reduction."""
    assert stage.reduction is not None
    return fold_identity(stage.reduction.operator, is_integral(stage.expression))


def combine_operator(stage: Stage) -> str:
    """The pointwise operator that joins two partial results of the stage."""
    assert stage.reduction is not None
    return JOINED_BY[stage.reduction.operator]
