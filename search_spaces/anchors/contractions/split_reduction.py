"""The second kernel of a contraction whose reduction is shared by several programs.

Before:  grid m.0, n.0:           for k: acc += …; store out[m, n] = epilogue(acc)
After:   grid k.split, m.0, n.0:  for k in its part: acc += …; store partial[k.split, m, n] = acc
         grid m.0, n.0:           store out[m, n] = epilogue(sum over s of partial[s, m, n])

All parts are loaded at once and added in an order that is fixed by the tile: a result never depends on the order in
which programs end. (rfactor in Halide and TVM; reduction factorisation in Ansor, OSDI 2020, table 1.)
"""

from __future__ import annotations

from functools import lru_cache

from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, start_of, workspace_name
from search_spaces.programs.statements import Load, Reduce
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.contraction import Contraction, accumulator_dtype
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Workload

_WARPS = 4


@lru_cache(64)  # One per number of parts: every schedule with that number shares it.
def partial_sums(workload: Workload, form: Contraction, parts: int) -> tuple[Buffer, ...]:
    """The workspaces of the partial sums, one for every dot: [parts, axes …] in the type of the accumulator."""
    shape = (parts, *(x.extent for x in form.axes))
    wanted = [f"partial{number if number > 1 else ''}" for number in range(1, 1 + len(form.dots))]
    return tuple(Buffer(workspace_name(workload, x), shape, accumulator_dtype(form), "workspace") for x in wanted)


@lru_cache(64)
def combine(workload: Workload, form: Contraction, partials: tuple[Buffer, ...], tile: tuple[int, int]) -> Kernel:
    """Add the partial sums over their first dimension, then apply the epilogue; a program has one `tile` of an output.

    The number of parts and both sizes of the tile are powers of two.
    """
    place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in form.axes}
    grid = [GridAxis(f"{x.name}.0", x.extent) for x in form.outer]
    for axis, extent in zip((form.m, form.n), tile, strict=True):
        place[axis.name] = Slice(start_of((f"{axis.name}.0", extent)), extent, axis.name)
        grid.append(GridAxis(f"{axis.name}.0", -(-axis.extent // extent)))
    names = Names()
    emitter = Emitter(place, {t.name: t.dtype for t in workload.inputs}, names)
    for dot, partial in zip(form.dots, partials, strict=True):
        parts = partial.shape[0]
        where = (Slice(start_of(), parts, "s"), *place.values())
        part = Tile.along(where, names.fresh("parts"), partial.dtype)
        acc = Tile.along(place.values(), names.fresh("acc"), partial.dtype)
        emitter.body += [Load(part, partial.name, where), Reduce(acc, part.name, "s", "sum")]
        emitter.tiles[dot.stage] = acc
    for name, result in form.results:
        emitter.store(name, tuple(place), emitter.tile(result, "out"))
    return Kernel(
        f"{workload.name}_combine", Grid(tuple(grid)), tuple(emitter.body), Launch(num_warps=_WARPS), auxiliary=True
    )
