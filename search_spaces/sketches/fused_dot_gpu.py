"""Fused contractions on a GPU: several dots in one reduction loop, operands computed on the way, a common epilogue.

Before:  for m, n: gate[m, n] = sum over k of f(x[m, k]) * wg[k, n]
         for m, n: up[m, n]   = sum over k of f(x[m, k]) * wu[k, n]
         for m, n: out[m, n]  = epilogue(gate[m, n], up[m, n])
After:   grid m.0, n.0 (grouped, maybe persistent):
           acc, acc2 = 0, 0
           for k.0 (pipelined): a = f(x_tile); acc += dot(a, wg_tile); acc2 += dot(a, wu_tile)
           store out_tile = epilogue(acc, acc2), whole or in subtiles

Ansor's rules as in `tiled_dot_gpu`, and horizontal fusion of contractions that share an operand, which is then read
once for all of them. No intermediate result goes to memory.
"""

from __future__ import annotations

from search_spaces.devices.descriptors import descriptor_remarks
from search_spaces.devices.target import Target
from search_spaces.programs.lowering import buffers
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.schedules.knobs import Choice, Knob, KnobValue, Values, nearest
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.space import Sketch
from search_spaces.sketches.dots.dot_knobs import (
    MIN_ROWS,
    WARPS,
    addressing_of_all,
    epilogue_addressing,
    fastest,
    store_addressing,
    tilings,
    why_too_narrow,
)
from search_spaces.sketches.dots.fused_tiles import FusedTile, whole_tiles
from search_spaces.structure.fused_contraction import FusedContractionForm, fused_contraction_form
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expression import Access, Expression
from search_spaces.workloads.workload import Workload

# (m, n, k bytes, warps, stages) of the tiles to start from. Accumulators share the registers: with two, 128 x 128 is
# what 128 x 256 is to one dot.
_START_TILES = (
    (128, 256, 128, 8, 3),
    (256, 128, 128, 8, 3),
    (128, 128, 128, 8, 4),
    (128, 128, 128, 8, 3),
    (128, 128, 64, 8, 4),
    (128, 64, 128, 4, 4),
    (64, 128, 128, 4, 4),
    (64, 64, 128, 4, 5),
    (64, 32, 128, 4, 6),
    (32, 64, 128, 4, 4),
    (16, 64, 256, 4, 4),
)
# What neither legality nor the needs of a program depend on, and what its needs alone do not depend on.
_ORDER_KNOBS = ("order", "group")
_NEEDLESS_KNOBS = (*_ORDER_KNOBS, "a_load", "b_load")


def derive(workload: Workload, target: Target) -> tuple[Sketch, ...]:
    """One sketch for dots over the same axes, with what is computed before and after them, on a GPU."""
    form = fused_contraction_form(workload) if target.kind == "gpu" else None
    if form is None:
        return ()
    knobs = _knobs(workload, form, target)
    moved = dict.fromkeys(a.tensor for side in form.operands for a in _moved(side))
    return (
        Sketch(
            "fused_dot_gpu",
            knobs,
            lambda values: _lower(workload, form, target, values),
            tuple(k.name for k in knobs if k.name not in _ORDER_KNOBS),
            (
                Rule(
                    ("swap", "m", "n", "k", "subtiles", "a_load", "b_load", "store"),
                    lambda values: _why_illegal(workload, form, values),
                ),
            ),
            _seeds(form, target, {k.name: k for k in knobs}),
            resource_knobs=tuple(k.name for k in knobs if k.name not in _NEEDLESS_KNOBS),
            remarks=descriptor_remarks(workload, (*moved, workload.output.name), target, "read by pointers"),
        ),
    )


def _moved(operands: tuple[Expression, ...]) -> tuple[Access, ...]:
    """The tensors of one side whose tiles descriptors may move."""
    return tuple(dict.fromkeys(a for e in operands for a in whole_tiles(e, "k")))


def _knobs(workload: Workload, form: FusedContractionForm, target: Target) -> tuple[Knob, ...]:
    a_ways, b_ways = (addressing_of_all(workload, _moved(x), target) for x in form.operands)
    return (
        *tilings(form.m, form.n, form.k, dtype(form.dtype).bytes),
        Choice("swap", (False, True)),
        Choice("order", ("mn", "nm")),
        Choice("group", (1, 2, 4, 8, 16)),
        Choice("grid", ("tiles", "persistent", "persistent_flat"), ordered=False),
        Choice("a_load", a_ways, ordered=False),
        Choice("b_load", b_ways, ordered=False),
        Choice("store", store_addressing(workload.output, target)),
        Choice("epilogue_load", epilogue_addressing(workload, form.result, target)),
        Choice("subtiles", (1, 2, 4, 8)),
        Choice("max_registers", (0, 128, 168)),
        Choice("warps", WARPS),
        Choice("stages", (1, 2, 3, 4, 5, 6)),
    )


def _seeds(form: FusedContractionForm, target: Target, knobs: dict[str, Knob]) -> tuple[Values, ...]:
    """Tiles that fill the dot units, in a grouped order, of one program each and of programs that walk them."""
    swap = form.m.extent < form.n.extent and form.m.extent <= MIN_ROWS
    seeds = []
    for m, n, k_bytes, warps, stages in _START_TILES:
        wanted = (("m", m), ("n", n)) if not swap else (("m", n), ("n", m))
        sizes = (*wanted, ("k", k_bytes / dtype(form.dtype).bytes))
        tiles: dict[str, KnobValue] = {name: nearest(knobs[name], size) for name, size in sizes}
        common: dict[str, KnobValue] = {
            **tiles,
            **{x: fastest(knobs[x]) for x in ("a_load", "b_load")},
            "swap": swap,
            "order": "mn",
            "group": 8,
            "epilogue_load": "pointer",
            "max_registers": 0,
            "warps": warps,
            "stages": stages,
        }
        whole: dict[str, KnobValue] = {"grid": "tiles", "store": "pointer", "subtiles": 1}
        walked: dict[str, KnobValue] = {"grid": "persistent", "store": fastest(knobs["store"]), "subtiles": 2}
        for own in (whole, walked):
            values = {**common, **own}
            seeds.append(Values({name: values[name] for name in knobs}))
    return tuple(seeds)


def _why_illegal(workload: Workload, form: FusedContractionForm, values: Values) -> str | None:
    """The first rule that the values break: no kernel can be made of them."""
    tile = FusedTile(workload, form, values)
    rows, columns = tile.output.shape
    subtiles = values.integer("subtiles")
    if rows < MIN_ROWS:
        return f"a dot has at least {MIN_ROWS} rows, got {rows}; swap makes them columns"
    if subtiles > 1 and columns // subtiles < MIN_ROWS:
        return f"subtiles={subtiles} needs at least {subtiles * MIN_ROWS} columns of the accumulators, got {columns}"
    dtypes = {t.name: t.dtype for t in workload.inputs}
    moved = [
        (a.index[-1].terms[0][0], dtypes[a.tensor])
        for side, way in zip(form.operands, ("a_load", "b_load"), strict=True)
        for a in _moved(side)
        if values[way] == "descriptor"
    ]
    moved += [(form.n.name, workload.output.dtype)] if values["store"] == "descriptor" else []
    return why_too_narrow(moved, {**tile.extents, **{x.name: 1 for x in form.batch}})


def _lower(workload: Workload, form: FusedContractionForm, target: Target, values: Values) -> TileProgram:
    tile = FusedTile(workload, form, values)
    grid = tile.output.grid((), persistent=None if values["grid"] == "tiles" else target.num_sms)
    kernel = Kernel(workload.name, grid, tile.body(), tile.launch())
    return TileProgram(workload.name, buffers(workload), (kernel,))
