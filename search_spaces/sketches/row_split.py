"""Row reductions with each row shared by several programs: for few, long rows.

Before:  for r: for c: total += x[r, c];  for c: out[r, c] = …
After:   kernel 1, grid r.0, s in S:  partial_total[s, r] = sum of x over the s-th part of the columns
         kernel 2, grid r.0, s in S:  total = sum of partial_total over s;  store the s-th part of out[r]
One kernel per reduction, each joining the partial results of those before it (rfactor in Halide and TVM).
"""

from __future__ import annotations

from search_spaces.expression import Affine
from search_spaces.knobs import Choice, Knob, Tiling, Values, cover
from search_spaces.lowering import Emitter, Names, buffers
from search_spaces.row_parts import RowTiles, combine_operator, fold, identity
from search_spaces.sketches.pointwise import launch
from search_spaces.sketches.row_looped import COLUMNS
from search_spaces.space import Sketch
from search_spaces.structure import RowForm, row_form
from search_spaces.target import Target
from search_spaces.tile_program import (
    Bound,
    Buffer,
    Fill,
    For,
    Grid,
    GridAxis,
    Kernel,
    Load,
    Slice,
    Statement,
    Store,
    Tile,
    TileProgram,
)
from search_spaces.workload import Stage, Workload

SPLITS = (2, 4, 8, 16, 32, 64)
# A part of a row shorter than this is not worth a program.
MIN_PART = 1024


def derive(workload: Workload, target: Target) -> tuple[Sketch, ...]:
    """One sketch for reductions over an axis long enough to share, on a GPU: a CPU has few threads and many rows."""
    found = row_form(workload)
    if found is None or target.kind != "gpu" or found[1].column.extent < 2 * MIN_PART:
        return ()
    workload, form = found
    return (
        Sketch("row_split", _knobs(form), lambda values: _lower(workload, form, target, values), ("columns", "warps")),
    )


def _knobs(form: RowForm) -> tuple[Knob, ...]:
    extent = form.column.extent
    splits = [s for s in SPLITS if extent // s >= MIN_PART] or [SPLITS[0]]
    tiles = [c for c in COLUMNS if c <= extent // SPLITS[0]]
    return (
        Choice("split", tuple(splits)),
        Tiling("columns", extent, ("loop", "tile"), tuple(cover(extent, (c,)) for c in tiles)),
        Choice("warps", (1, 2, 4, 8, 16)),
        Choice("streaming", (False, True)),
    )


def _lower(workload: Workload, form: RowForm, target: Target, values: Values) -> TileProgram:
    split, (steps, width) = values.integer("split"), values.tiling("columns")
    rows = RowTiles(workload, form, 1)
    parts = _Parts(rows, split, -(-steps // split), width)
    launched = launch(target, values)
    grid = Grid((*rows.grid, GridAxis("s", split)))
    kernels = [
        Kernel(f"{workload.name}_{stage.name}", grid, tuple(parts.partial(stage, form.reductions[:i])), launched)
        for i, stage in enumerate(form.reductions)
    ]
    last_grid = grid if rows.writes_columns else Grid(rows.grid)
    kernels.append(
        Kernel(f"{workload.name}_finish", last_grid, tuple(parts.finish(values.flag("streaming"))), launched)
    )
    return TileProgram(workload.name, buffers(workload, *map(parts.workspace, form.reductions)), tuple(kernels))


class _Parts:
    """The bodies of the kernels; a row is cut into `split` parts of `steps` tiles of `width` columns."""

    def __init__(self, rows: RowTiles, split: int, steps: int, width: int) -> None:
        self.rows, self.split, self.steps = rows, split, steps
        start = Affine.of(("c.0", width), ("s", steps * width))
        self.columns = Slice(start, width)
        self.bound = Bound(start, rows.form.column.extent)

    def workspace(self, stage: Stage) -> Buffer:
        """One partial result per part and row."""
        shape = (self.split, *(x.extent for x in self.rows.form.rows))
        return Buffer(f"partial_{stage.name}", shape, "float32", "workspace")

    def partial(self, stage: Stage, before: tuple[Stage, ...]) -> list[Statement]:
        """Kernel of one reduction: fold this program's part of the row."""
        names = Names({s.name for s in self.rows.workload.stages})
        body, known = self._joined(before, names)
        running = self.rows.statistic(stage)
        emitter = self.rows.emitter(self.columns, names, known)
        part = fold(self.rows, emitter, stage, self.columns, f"{stage.name}_part")
        emitter.assign(running, combine_operator(stage), running, part)
        where = (Slice(Affine.of(("s", 1))), *self.rows.place.values())
        body += [Fill(running, identity(stage)), self._loop(emitter)]
        return [*body, Store(f"partial_{stage.name}", where, running.name)]

    def finish(self, streaming: bool) -> list[Statement]:
        """The last kernel: join every reduction and write this program's part of the output."""
        rows = self.rows
        names = Names({s.name for s in rows.workload.stages})
        body, known = self._joined(rows.form.reductions, names)
        last = rows.workload.stages[-1]
        emitter = rows.emitter(self.columns if rows.writes_columns else None, names, known)
        result = known[last.name] if last.reduction else emitter.tile(rows.body_of(last), "result")
        emitter.store(last.name, rows.output_axes(), result, streaming)
        return body + ([self._loop(emitter)] if rows.writes_columns else emitter.body)

    def _loop(self, emitter: Emitter) -> For:
        return For("c.0", self.steps, tuple(emitter.body), bound=self.bound)

    def _joined(self, stages: tuple[Stage, ...], names: Names) -> tuple[list[Statement], dict[str, Tile]]:
        """Join the partial results of finished reductions, in a fixed order."""
        body: list[Statement] = []
        known: dict[str, Tile] = {}
        for stage in stages:
            joined = known[stage.name] = self.rows.statistic(stage)
            part = Tile(names.fresh(f"{stage.name}_of_part"), joined.axes, joined.shape)
            emitter = Emitter(self.rows.place, {}, names)
            where = (Slice(Affine.of(("p", 1))), *self.rows.place.values())
            emitter.body.append(Load(part, f"partial_{stage.name}", where))
            emitter.assign(joined, combine_operator(stage), joined, part)
            body += [Fill(joined, identity(stage)), For("p", self.split, tuple(emitter.body))]
        return body, known
