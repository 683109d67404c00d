"""The second kernel of a contraction whose reduction is shared by several programs.

Before:  grid m.0, n.0:           for k: acc += …; store out[m, n] = epilogue(acc)
After:   grid k.split, m.0, n.0:  for k in its part: acc += …; store partial[k.split, m, n] = acc
         grid m.0, n.0:           store out[m, n] = epilogue(sum over s of partial[s, m, n])

All parts are loaded at once and added in an order that is fixed by the tile: a result never depends on which program
ended first. (rfactor in Halide and TVM; reduction factorisation in Ansor, OSDI 2020, table 1.)
"""

from __future__ import annotations

from functools import lru_cache

from search_spaces.programs.lowering import Emitter, Names, start_of, workspace_name
from search_spaces.programs.tile_program import Buffer, Grid, GridAxis, Kernel, Launch, Load, Reduce, Slice, Tile
from search_spaces.structure.forms import ContractionForm, accumulator_dtype
from search_spaces.workloads.workload import Workload

_WARPS = 4


@lru_cache(64)  # One per number of parts: every schedule with that number shares it.
def partial_sums(workload: Workload, form: ContractionForm, parts: int) -> Buffer:
    """The workspace of the partial sums: [parts, batch …, m, n] in the type of the accumulator."""
    shape = (parts, *(x.extent for x in form.contraction.axes))
    return Buffer(workspace_name(workload, "partial"), shape, accumulator_dtype(workload), "workspace")


@lru_cache(64)
def combine(workload: Workload, form: ContractionForm, partial: Buffer, tile: tuple[int, int]) -> Kernel:
    """Add the partial sums over their first dimension and finish: a program does `tile` rows and columns of the output.

    The number of parts and both sizes of the tile are powers of two.
    """
    parts = partial.shape[0]
    place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in form.batch}
    grid = [GridAxis(f"{x.name}.0", x.extent) for x in form.batch]
    for axis, extent in zip((form.m, form.n), tile, strict=True):
        place[axis.name] = Slice(start_of((f"{axis.name}.0", extent)), extent)
        grid.append(GridAxis(f"{axis.name}.0", -(-axis.extent // extent)))
    names = Names()
    axes = (form.m.name, form.n.name)
    part = Tile(names.fresh("parts"), ("s", *axes), (parts, *tile), partial.dtype)
    acc = Tile(names.fresh("acc"), axes, tile, partial.dtype)
    emitter = Emitter(place, {t.name: t.dtype for t in workload.inputs}, names, {form.contraction.name: acc})
    where = (Slice(start_of(), parts), *(place[x.name] for x in form.contraction.axes))
    emitter.body += [Load(part, partial.name, where), Reduce(acc, part.name, "s", "sum")]
    emitter.store(
        workload.stages[-1].name, tuple(x.name for x in form.contraction.axes), emitter.tile(form.result, "out")
    )
    return Kernel(f"{workload.name}_combine", Grid(tuple(grid)), tuple(emitter.body), Launch(num_warps=_WARPS))
