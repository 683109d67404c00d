"""Row reductions that walk the columns in pieces: one loop per reduction, one to write; rows of any length.

Before:  for r: for c: top = max(top, x[r, c]);  for c: total += exp(x[r, c] - top);  for c: out[r, c] = …
After:   grid r.0 in R/H:
           for c.0: top = max(top, max of x_tile)
           for c.0: total += sum of exp(x_tile - top)
           for c.0: store out_tile
With `online`, a sum of exp(… - top) over the same columns joins the loop of its maximum, and is rescaled when the
maximum grows (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3).
"""

from __future__ import annotations

from search_spaces.expression import Access, Affine, Apply
from search_spaces.knobs import Choice, Knob, Tiling, Values, cover
from search_spaces.lowering import Names, buffers
from search_spaces.row_parts import RowTiles, combine_operator, fold, identity, reads
from search_spaces.sketches.pointwise import PREFETCH_BYTES, launch
from search_spaces.sketches.row_whole import row_tiling
from search_spaces.space import Sketch
from search_spaces.structure import RowForm, row_form
from search_spaces.target import Target
from search_spaces.tile_program import Fill, For, Grid, Kernel, Slice, Statement, Tile, TileProgram
from search_spaces.workload import Stage, Workload

# The start of a maximum that sums are shifted by: the lowest float32, not -inf, so that minus itself it is 0.
_LOWEST = -3.4028234663852886e38
COLUMNS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def derive(workload: Workload, target: Target) -> tuple[Sketch, ...]:
    """One sketch for reductions over one axis."""
    found = row_form(workload)
    if found is None:
        return ()
    workload, form = found
    knobs = _knobs(workload, form, target)
    return (
        Sketch(
            "row_looped",
            knobs,
            lambda values: _lower(workload, form, target, values),
            ("rows", "columns", "warps", "stages"),
        ),
    )


def _knobs(workload: Workload, form: RowForm, target: Target) -> tuple[Knob, ...]:
    extent = form.column.extent
    fitting = [c for c in COLUMNS if c < extent] or [COLUMNS[0] if target.kind == "gpu" else extent]
    columns = Tiling("columns", extent, ("loop", "tile"), tuple(cover(extent, (c,)) for c in fitting))
    online = Choice("online", (False, True) if _online_pair(RowTiles(workload, form, 1)) else (False,))
    streaming = Choice("streaming", (False, True))
    if target.kind == "gpu":
        return (
            row_tiling(form),
            columns,
            online,
            Choice("warps", (1, 2, 4, 8, 16, 32)),
            Choice("stages", (1, 2, 3, 4)),
            streaming,
        )
    return (
        row_tiling(form),
        columns,
        online,
        Choice("vectors", (1, 2, 4, 8)),
        Choice("prefetch", PREFETCH_BYTES),
        streaming,
    )


def _lower(workload: Workload, form: RowForm, target: Target, values: Values) -> TileProgram:
    steps, width = values.tiling("columns")
    rows = RowTiles(workload, form, values.tile("rows"))
    columns = Slice(Affine.of(("c.0", width)), width)
    stages = values.integer("stages") if "stages" in values else 0
    names, known = Names({s.name for s in workload.stages}), dict[str, Tile]()
    pair = _online_pair(rows) if values.flag("online") else None
    body: list[Statement] = []

    def loop(statements: list[Statement]) -> For:
        return For("c.0", steps, tuple(statements), pipeline_stages=stages)

    for stage in form.reductions:
        if pair is not None and stage is pair[1]:
            continue
        group = pair if pair is not None and stage is pair[0] else (stage,)
        shifted = len(group) == 2
        body += [Fill(rows.statistic(s), _LOWEST if shifted and s is stage else identity(s)) for s in group]
        turn = (
            _online_turn(rows, columns, names, known, group) if shifted else _turn(rows, columns, names, known, stage)
        )
        body.append(loop(turn))
        known.update({s.name: rows.statistic(s) for s in group})
    last = workload.stages[-1]
    emitter = rows.emitter(columns if rows.writes_columns else None, names, known)
    result = known[last.name] if last.reduction else emitter.tile(rows.body_of(last), "result")
    emitter.store(last.name, rows.output_axes(), result, streaming=values.flag("streaming"))
    body += [loop(emitter.body)] if rows.writes_columns else emitter.body
    kernel = Kernel(workload.name, Grid(rows.grid), tuple(body), launch(target, values))
    return TileProgram(workload.name, buffers(workload), (kernel,))


def _turn(rows: RowTiles, columns: Slice, names: Names, known: dict[str, Tile], stage: Stage) -> list[Statement]:
    """One turn of a reduction's loop: fold a piece of the columns into the running result."""
    emitter = rows.emitter(columns, names, known)
    part = fold(rows, emitter, stage, columns, f"{stage.name}_part")
    running = rows.statistic(stage)
    emitter.assign(running, combine_operator(stage), running, part)
    return emitter.body


def _online_turn(
    rows: RowTiles, columns: Slice, names: Names, known: dict[str, Tile], pair: tuple[Stage, ...]
) -> list[Statement]:
    """One turn of the joint loop of a maximum and the sum of exponentials that are shifted by it."""
    top, total = (rows.statistic(s) for s in pair)
    emitter = rows.emitter(columns, names, known)
    part = fold(rows, emitter, pair[0], columns, f"{top.name}_part")
    higher = emitter.map("maximum", top, part, name=f"{top.name}_next")
    rescale = emitter.map("exp", emitter.map("sub", top, higher), name="rescale")
    emitter.tiles[top.name] = higher
    added = fold(rows, emitter, pair[1], columns, f"{total.name}_part")
    emitter.assign(total, "add", emitter.map("mul", total, rescale), added)
    emitter.assign(top, "maximum", top, part)
    return emitter.body


def _online_pair(rows: RowTiles) -> tuple[Stage, Stage] | None:
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
