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

from collections.abc import Callable, Iterator, Mapping

from search_spaces.devices.descriptors import descriptor_remarks
from search_spaces.devices.target import Target
from search_spaces.schedules.knobs import Knob, KnobValue, Values, nearest
from search_spaces.schedules.limits import USUAL, Offers
from search_spaces.schedules.space import Sketch
from search_spaces.sketches.dots.contraction_kernels import lower
from search_spaces.sketches.dots.dot_knobs import decisions, fastest, tiles_in
from search_spaces.sketches.dots.dot_rules import DECIDED_FIRST, KNOBS_BESIDE_NEEDS, ORDER_KNOBS, dot_rules
from search_spaces.sketches.dots.offered_starts import offered_starts
from search_spaces.structure.contraction import Contraction, contraction
from search_spaces.workloads.dtypes import dtype, is_integer, is_promoted
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.workload import Workload

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
# The same for devices without asynchronous copies, in front of these: operands are loaded to registers on their way,
# which large tiles have none left for.
_EARLY_START_TILES = (
    (128, 128, 128, 4, 3),
    (128, 256, 64, 8, 3),
    (256, 128, 64, 8, 3),
    (128, 128, 64, 4, 3),
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
# The same for outputs that are few tiles of 128 x 128: 1000 x 1000 are 64 of those, and 128 of 64 x 128.
# One tile a program, with a deeper ring; last, large ones with their reduction split.
_FEW_TILES_STARTS = (
    (64, 128, 128, "cooperative", 4, 8, 2),
    (128, 64, 128, "cooperative", 8, 8, 2),
    (64, 128, 256, "cooperative", 4, 4, 2),
    (64, 64, 128, "cooperative", 4, 8, 1),
    (128, 128, 128, "cooperative", 8, 6, 2),
)
# (wide side, k bytes, warps, stages) for thin products, swapped so that the wide side is the dot's rows.
_THIN_STARTS = ((64, 256, 4, 6), (64, 512, 4, 4), (128, 128, 4, 6), (128, 256, 8, 4))
# The rows of an operand's tile along k: those that shared memory swizzles whole.
_SWIZZLED_BYTES = 128
# Tiles of one axis that follow each other, for a few waves of which operands stay in the cache.
_START_GROUP = 8
# What starting points have in common unless they say otherwise.
_USUAL_START: dict[str, KnobValue] = {
    "tail": "masked",
    "swap": False,
    "split_k": 1,
    "partials": "workspace",
    "order": "mn",
    "per_sm": 1,
    "epilogue_load": "pointer",
    "subtiles": 1,
    "specialize": "none",
    "ctas": 1,
    "max_registers": 0,
}
# A product whose shorter side is at most that counts as thin: its starting points are others.
_THIN_PRODUCT = 64


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for a dot of two tensors with pointwise epilogues on a GPU."""
    form = contraction(workload) if target.kind == "gpu" else None
    if form is None or not form.is_tiled_dot:
        return ()
    workload = form.workload
    knobs = decisions(workload, form, target, offers)
    return (
        Sketch(
            "tiled_dot_gpu",
            tuple(knobs.values()),
            lambda values: lower(workload, form, target, values),
            tuple(x for x in knobs if x not in ORDER_KNOBS),
            dot_rules(workload, form, target, knobs, offers),
            _seeds(workload, form, target, knobs, offers),
            resource_knobs=tuple(x for x in knobs if x not in KNOBS_BESIDE_NEEDS),
            remarks=descriptor_remarks(workload, (x.tensor for x in form.tensors), target),
            depth_knob="stages",
            decided_first=DECIDED_FIRST,
        ),
    )


def _seeds(
    workload: Workload, form: Contraction, target: Target, knobs: Mapping[str, Knob], offers: Offers
) -> tuple[Values, ...]:
    """Tiles that fill the dot units of recent GPUs, in a grouped order; with little to do, the reduction is split.

    Pipelines are as deep as is wished for; where they do not fit, they are made shallower (`Sketch.depth_knob`).
    """
    element, element_bytes = form.dtype, dtype(form.dtype).bytes

    def start(m: int, n: int, k_bytes: int, **others: KnobValue) -> Values:
        tiles = {
            name: nearest(knobs[name], size) for name, size in (("m", m), ("n", n), ("k", k_bytes / element_bytes))
        }
        tiles["group"] = nearest(knobs["group"], _START_GROUP)
        values = {**_USUAL_START, **{x: fastest(knobs[x]) for x in ("a_load", "b_load", "store")}, **tiles, **others}
        if values["grid"] == "tiles":
            values["split_k"] = nearest(knobs["split_k"], max(1, target.num_sms / tiles_in(form, values)))
        return Values({name: values[name] for name in knobs})

    swap = form.m.extent <= form.n.extent
    thin = min(form.m.extent, form.n.extent)
    seeds = []
    narrow = is_integer(element) or is_promoted(element, workload.precision)
    warp_group_seeds = _WARP_GROUP_STARTS + (_NARROW_WARP_GROUP_STARTS if narrow else ())
    specialized = len(knobs["specialize"].values) > 1
    if specialized and offers != USUAL:
        seeds += list(_offered_seeds(form, target, knobs, offers, start))
    few = _FEW_TILES_STARTS if tiles_in(form, {x: nearest(knobs[x], 128) for x in "mn"}) <= target.num_sms / 2 else ()
    starts = [("tiles", *x) for x in few] + [("persistent", *x) for x in warp_group_seeds]
    for grid, m, n, k_bytes, kind, warps, stages, subtiles in starts if specialized else ():
        for swapped in (False, True):
            own: dict[str, KnobValue] = {"specialize": kind, "warps": warps, "stages": stages, "subtiles": subtiles}
            columns = "a_load" if swapped else "b_load"
            own |= {x: _along_k(knobs[x]) for x in ("a_load", "b_load") if x == columns or element_bytes == 1}
            seeds.append(start(m, n, k_bytes, grid=grid, swap=swapped, **own))
    early = _EARLY_START_TILES if not target.features.copy_bytes else ()
    for m, n, k_bytes, warps, stages in early + _START_TILES:
        seeds.append(start(m, n, k_bytes, grid="tiles", warps=warps, stages=stages, store="pointer"))
        seeds.append(start(m, n, k_bytes, grid="persistent_flat", warps=warps, stages=stages, subtiles=2))
    for wide, k_bytes, warps, stages in _THIN_STARTS if thin <= _THIN_PRODUCT else ():
        m, n = (thin, wide) if swap else (wide, thin)
        seeds.append(start(m, n, k_bytes, grid="tiles", swap=swap, warps=warps, stages=stages, store="pointer"))
    return tuple(seeds)


def _offered_seeds(
    form: Contraction, target: Target, knobs: Mapping[str, Knob], offers: Offers, start: Callable[..., Values]
) -> Iterator[Values]:
    """Tiles of warp groups beside the usual ones. A plain sum is stored in pieces by itself; an epilogue takes parts of
    a tile one after the other."""
    units = target.wave_groups
    assert units is not None
    plain = all(isinstance(result, Access) for _, result in form.results)
    for tile, swapped in offered_starts(form, knobs, offers, target.num_sms):
        m, n = (tile.columns, tile.rows) if swapped else (tile.rows, tile.columns)
        whole = plain or (tile.blocks > 1 and tile.rows <= tile.columns)
        own = tile.values(swapped, units.waves) | {"subtiles": 1 if whole else 2}
        own |= {x: _along_k(knobs[x]) for x in ("a_load", "b_load")}
        values = start(m, n, _SWIZZLED_BYTES, grid="persistent", **own)
        walked = tiles_in(form, values) > target.num_sms // tile.blocks
        yield values if walked else Values({**values, "grid": "tiles"})


def _along_k(loads: Knob) -> KnobValue:
    """How the operand comes to lie along k, where the dot units want it so."""
    return "transposed" if "transposed" in loads.values else fastest(loads)
