"""Contractions on a GPU: block tiles, a pipelined reduction loop, a fused epilogue; optionally a shared reduction.

Before:  for m, n: out[m, n] = epilogue(sum over k of a[m, k] * b[k, n])
After:   grid m.0, n.0 (grouped, maybe persistent):
           acc = 0
           for k.0 (pipelined): acc += dot(a_tile, b_tile)
           store out_tile = epilogue(acc), whole or in subtiles

Ansor's rules "multi-level tiling with fusion", "reduction factorisation" and "cache stage" (Zheng et al., 2020, table
1): thread-level tiling is the backend's, so the levels here are grid, group (for L2) and tile. With `split_k` > 1 or
`grid=stream_k` several programs share the reduction of a tile. Their partial sums meet in a workspace, one part each or
all added up by atomic operations, and a second kernel adds the parts in a fixed order and applies the epilogue.
An operand whose rows no descriptor can address, or that lies the wrong way round for the dot units, may be copied
first (`operand_copies`).
"""

from __future__ import annotations

import math

from search_spaces.devices.descriptors import descriptor_remarks
from search_spaces.devices.target import Target
from search_spaces.programs.lowering import buffers, start_of
from search_spaces.programs.tile_program import Kernel, Slice, TileProgram
from search_spaces.schedules.knobs import Choice, Knob, KnobValue, Values, nearest
from search_spaces.schedules.space import Sketch
from search_spaces.sketches.dots.dot_knobs import (
    REDUCTION_TILES,
    WARPS,
    addressing,
    epilogue_addressing,
    fastest,
    store_addressing,
    tilings,
)
from search_spaces.sketches.dots.dot_rules import DECIDED_FIRST, DotRules
from search_spaces.sketches.dots.dot_tiles import DotTile
from search_spaces.sketches.dots.operand_copies import Operand, OperandCopy, operand, operand_copy
from search_spaces.sketches.dots.specialization import CAPABILITY, KINDS
from search_spaces.sketches.dots.split_reduction import combine, partial_sums
from search_spaces.structure.forms import ContractionForm, contraction_form
from search_spaces.workloads.dtypes import dtype, is_integer, is_promoted
from search_spaces.workloads.expression import Access
from search_spaces.workloads.workload import Workload

# Reductions are cut into at most so many parts, of at least two of the smaller reduction tiles each.
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MIN_SPLIT = 128
STAGES = (1, 2, 3, 4, 5, 6, 8)
# (m, n, k bytes, warps, stages) of the tiles to start from: large ones for much work, small ones for little.
_START_TILES = (
    (128, 256, 128, 8, 3),
    (128, 256, 128, 8, 4),
    (256, 128, 128, 8, 4),
    (128, 128, 128, 8, 4),
    (128, 64, 128, 4, 5),
    (64, 128, 128, 4, 6),
    (64, 64, 256, 4, 6),
    (64, 32, 128, 4, 8),
)
# (m, n, k bytes, kind, warps, stages, subtiles) of warp-specialised kernels: tiles of 128 x 128 alternating where the
# reduction is short and the epilogue counts, large ones otherwise.
_WARP_GROUP_STARTS = (
    (128, 128, 128, "pingpong", 8, 6, 4),
    (128, 256, 128, "cooperative", 8, 4, 4),
    (256, 128, 128, "cooperative", 8, 4, 4),
    (128, 256, 128, "cooperative", 8, 4, 8),
    (256, 128, 128, "cooperative", 8, 4, 8),
    (128, 128, 128, "cooperative", 8, 6, 2),
)
# The same where sums take twice the registers (promoted ones), or are narrow (integers).
_NARROW_WARP_GROUP_STARTS = (
    (128, 128, 128, "cooperative", 8, 4, 4),
    (64, 128, 128, "pingpong", 8, 6, 2),
    (128, 64, 128, "pingpong", 8, 6, 2),
    (64, 128, 128, "cooperative", 4, 6, 2),
)
# (wide side, k bytes, warps, stages) for thin products, swapped so that the wide side is the dot's rows.
_THIN_STARTS = ((64, 256, 4, 6), (64, 512, 4, 4), (128, 128, 4, 6), (128, 256, 8, 4))
# What starting points have in common unless they say otherwise.
_USUAL_START: dict[str, KnobValue] = {
    "tail": "masked",
    "swap": False,
    "split_k": 1,
    "partials": "workspace",
    "order": "mn",
    "group": 8,
    "per_sm": 1,
    "epilogue_load": "pointer",
    "subtiles": 1,
    "specialize": "none",
    "ctas": 1,
    "max_registers": 0,
}
# A product whose shorter side is at most that counts as thin: its starting points are others.
_THIN_PRODUCT = 64
# What legality does not depend on; and, with these, what the needs of a program do not depend on, though legality may.
_ORDER_KNOBS = ("order", "group")
_KNOBS_BESIDE_NEEDS = (*_ORDER_KNOBS, "tail", "partials", "a_load", "b_load")
# Elements of partial sums that a program of the second kernel adds: all loads of four warps in flight at once.
_COMBINED = 4096


def derive(workload: Workload, target: Target) -> tuple[Sketch, ...]:
    """One sketch for a contraction with a pointwise epilogue on a GPU."""
    form = contraction_form(workload)
    if form is None or target.kind != "gpu":
        return ()
    knobs = _knobs(workload, form, target)
    return (
        Sketch(
            "tiled_dot_gpu",
            knobs,
            lambda values: _lower(workload, form, target, values),
            tuple(k.name for k in knobs if k.name not in _ORDER_KNOBS),
            DotRules(workload, form, target, _operands(workload, form, knobs)).all(),
            _seeds(workload, form, target),
            resource_knobs=tuple(k.name for k in knobs if k.name not in _KNOBS_BESIDE_NEEDS),
            remarks=descriptor_remarks(workload, (form.a.tensor, form.b.tensor), target),
            depth_knob="stages",
            decided_first=DECIDED_FIRST,
        ),
    )


def _knobs(workload: Workload, form: ContractionForm, target: Target) -> tuple[Knob, ...]:
    k = form.k.extent
    grids = ("tiles", "persistent", "persistent_flat", "stream_k")
    return (
        *tilings(form.m, form.n, form.k, dtype(operand(workload, form.a).dtype).bytes),
        Choice("tail", ("masked", "peeled") if k % REDUCTION_TILES[-1] else ("masked",)),
        Choice("swap", (False, True)),
        Choice("split_k", tuple(s for s in SPLITS if s == 1 or s * MIN_SPLIT <= k)),
        Choice("partials", ("workspace", "atomic")),
        Choice("order", ("mn", "nm")),
        Choice("group", (1, 2, 4, 8, 16)),
        Choice("grid", grids, ordered=False),
        Choice("per_sm", (1, 2, 3, 4)),
        Choice("a_load", _ways_to_load(workload, form, form.a, target), ordered=False),
        Choice("b_load", _ways_to_load(workload, form, form.b, target), ordered=False),
        Choice("store", store_addressing(workload.output, target)),
        Choice("epilogue_load", epilogue_addressing(workload, form.result, target)),
        Choice("subtiles", (1, 2, 4, 8)),
        Choice("specialize", KINDS if target.capability == CAPABILITY else KINDS[:1], ordered=False),
        Choice("ctas", (1, 2) if target.has_clusters else (1,)),
        Choice("max_registers", (0, 64, 96, 128, 168)),
        Choice("warps", WARPS),
        Choice("stages", STAGES),
    )


def _ways_to_load(workload: Workload, form: ContractionForm, access: Access, target: Target) -> tuple[KnobValue, ...]:
    """The same, or by way of a copy whose rows descriptors can address, or whose rows run along k.

    Dot units of compute capability 9.0 take 16-bit operands from shared memory either way round, others only k-major
    (PTX ISA, "Strides" of wgmma); Triton then iterations every tile round in the loop.
    """
    (tensor,) = (t for t in workload.inputs if t.name == access.tensor)
    ways = addressing(tensor, target, access)
    if not target.has_tensor_descriptors:
        return ways
    k_major = operand(workload, access).axes[-1] == form.k.name
    if not k_major and dtype(tensor.dtype).bytes != 2:
        ways += ("transposed",)
    return ways if "descriptor" in ways else (*ways, "copied")


def _seeds(workload: Workload, form: ContractionForm, target: Target) -> tuple[Values, ...]:
    """Tiles that fill the dot units of recent GPUs, in a grouped order; with little to do, the reduction is split.

    Pipelines are as deep as is wished for; where they do not fit, they are made shallower (`Sketch.depth_knob`).
    """
    knobs = {knob.name: knob for knob in _knobs(workload, form, target)}
    element = operand(workload, form.a).dtype
    element_bytes = dtype(element).bytes

    def start(m: int, n: int, k_bytes: int, **others: KnobValue) -> Values:
        tiles = {
            name: nearest(knobs[name], size) for name, size in (("m", m), ("n", n), ("k", k_bytes / element_bytes))
        }
        values = {**_USUAL_START, **{x: fastest(knobs[x]) for x in ("a_load", "b_load", "store")}, **tiles, **others}
        if values["grid"] == "tiles":
            values["split_k"] = nearest(knobs["split_k"], max(1, target.num_sms / _tiles(form, values)))
        return Values({name: values[name] for name in knobs})

    swap = form.m.extent <= form.n.extent
    thin = min(form.m.extent, form.n.extent)
    seeds = []
    narrow = is_integer(element) or is_promoted(element, workload.precision)
    warp_group_seeds = _WARP_GROUP_STARTS + (_NARROW_WARP_GROUP_STARTS if narrow else ())
    for m, n, k_bytes, kind, warps, stages, subtiles in warp_group_seeds if target.capability == CAPABILITY else ():
        for swapped in (False, True):
            own: dict[str, KnobValue] = {"specialize": kind, "warps": warps, "stages": stages, "subtiles": subtiles}
            columns = "a_load" if swapped else "b_load"
            own |= {x: _along_k(knobs[x]) for x in ("a_load", "b_load") if x == columns or element_bytes == 1}
            seeds.append(start(m, n, k_bytes, grid="persistent", swap=swapped, **own))
    for m, n, k_bytes, warps, stages in _START_TILES:
        seeds.append(start(m, n, k_bytes, grid="tiles", warps=warps, stages=stages, store="pointer"))
        seeds.append(start(m, n, k_bytes, grid="persistent_flat", warps=warps, stages=stages, subtiles=2))
    for wide, k_bytes, warps, stages in _THIN_STARTS if thin <= _THIN_PRODUCT else ():
        m, n = (thin, wide) if swap else (wide, thin)
        seeds.append(start(m, n, k_bytes, grid="tiles", swap=swap, warps=warps, stages=stages, store="pointer"))
    return tuple(seeds)


def _tiles(form: ContractionForm, values: dict[str, KnobValue]) -> int:
    """Tiles of the output in all batches."""
    counts = [value[0] for value in (values["m"], values["n"]) if isinstance(value, tuple)]
    return math.prod([*counts, *(x.extent for x in form.batch)])


def _along_k(loads: Knob) -> KnobValue:
    """How the operand comes to lie along k, where the dot units want it so."""
    return "transposed" if "transposed" in loads.values else fastest(loads)


def _lower(workload: Workload, form: ContractionForm, target: Target, values: Values) -> TileProgram:
    tile = DotTile(workload, form, values)
    a, a_copies = _brought(workload, form.a, values.word("a_load"))
    b, b_copies = _brought(workload, form.b, values.word("b_load"))
    copies = a_copies + b_copies
    workspaces, before = [c.workspace for c in copies], [c.kernel for c in copies]
    grid, body = tile.grid(target.num_sms), tile.accumulate(a, b)
    if tile.splits == 1 and not tile.streamed:
        kernel = Kernel(workload.name, grid, (*body, *tile.finish()), tile.launch())
        return TileProgram(workload.name, buffers(workload, *workspaces), (*before, kernel))
    atomic = values["partials"] == "atomic"
    partial = partial_sums(workload, form, 1 if atomic else tile.splits)
    index = Slice(start_of() if atomic else start_of(("k.split", 1)))
    body += tile.store_partial(partial.name, index, atomic)
    first = Kernel(f"{workload.name}_partial", grid, tuple(body), tile.launch())
    second = combine(workload, form, partial, _combine_tile(partial.shape[0], form))
    return TileProgram(
        workload.name,
        buffers(workload, *workspaces, partial),
        (*before, first, second),
        zeroed=(partial.name,) if atomic else (),
    )


def _operands(workload: Workload, form: ContractionForm, knobs: tuple[Knob, ...]) -> dict[tuple[str, str], Operand]:
    """Where operands are read, by the knob that says so and its value."""
    accesses = {"a_load": form.a, "b_load": form.b}
    ways = [(k.name, str(how)) for k in knobs if k.name in accesses for how in k.values]
    return {(name, how): _brought(workload, accesses[name], how)[0] for name, how in ways}


def _brought(workload: Workload, access: Access, how: str) -> tuple[Operand, tuple[OperandCopy, ...]]:
    """Where the operand is read, and the copy that is then made first."""
    if how in ("pointer", "descriptor"):
        return operand(workload, access), ()
    copy = operand_copy(workload, access, how == "transposed")
    return copy.operand, (copy,)


def _combine_tile(parts: int, form: ContractionForm) -> tuple[int, int]:
    """Rows and columns of the output that a program of the second kernel does: fewer where it has more to add."""
    elements = max(32, _COMBINED // parts)
    columns = min(elements, 128, max(16, 1 << (form.n.extent - 1).bit_length()))
    return elements // columns, columns
