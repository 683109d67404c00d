"""Fused contractions on a GPU: several dots in one reduction loop, operands computed on the way, a common epilogue.

Before:  for m, n: gate[m, n] = sum over k of f(x[m, k]) * wg[k, n]
         for m, n: up[m, n]   = sum over k of f(x[m, k]) * wu[k, n]
         for m, n: out[m, n]  = epilogue(gate[m, n], up[m, n])
After:   grid m.0, n.0 (grouped, maybe persistent):
           acc, acc2 = 0, 0
           for k.0 (pipelined): a = f(x_tile); acc += dot(a, wg_tile); acc2 += dot(a, wu_tile)
           store out_tile = epilogue(acc, acc2), whole or in subtiles

Decisions are those of `tiled_dot_gpu`. Beside Ansor's rules there is horizontal fusion of contractions that share an
operand, which is then read once for all of them. No intermediate result goes to memory, but partial sums.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.devices.descriptors import descriptor_remarks
from search_spaces.devices.target import Target
from search_spaces.schedules.knobs import Knob, KnobValue, Values, nearest
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.space import Sketch
from search_spaces.sketches.dots.contraction_kernels import lower
from search_spaces.sketches.dots.dot_knobs import decisions, fastest, least_tile, tiles_in
from search_spaces.sketches.dots.dot_rules import DECIDED_FIRST, KNOBS_BESIDE_NEEDS, ORDER_KNOBS, dot_rules
from search_spaces.sketches.dots.operand_tiles import whole_tiles
from search_spaces.structure.contraction import Contraction, contraction
from search_spaces.workloads.dtypes import dtype
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
# (m, n, k bytes, kind, warps, stages) of warp-specialised kernels of two dots.
_WARP_GROUP_STARTS = (
    (128, 128, 128, "cooperative", 8, 4),
    (128, 128, 64, "cooperative", 8, 6),
    (64, 128, 128, "pingpong", 8, 4),
    (128, 64, 128, "pingpong", 8, 4),
)


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for dots over the same axes, with what is computed before and after them, on a GPU."""
    form = contraction(workload) if target.kind == "gpu" else None
    if form is None or form.is_tiled_dot:
        return ()
    workload = form.workload
    knobs = decisions(workload, form, target, offers)
    moved = dict.fromkeys(a.tensor for side in form.operands for e in side for a in whole_tiles(e, form))
    return (
        Sketch(
            "fused_dot_gpu",
            tuple(knobs.values()),
            lambda values: lower(workload, form, target, values),
            tuple(x for x in knobs if x not in ORDER_KNOBS),
            dot_rules(workload, form, target, knobs, offers),
            _seeds(form, target, knobs),
            resource_knobs=tuple(x for x in knobs if x not in KNOBS_BESIDE_NEEDS),
            remarks=descriptor_remarks(workload, (*moved, *workload.output_names), target, "read by pointers"),
            depth_knob="stages",
            decided_first=DECIDED_FIRST,
        ),
    )


def _seeds(form: Contraction, target: Target, knobs: Mapping[str, Knob]) -> tuple[Values, ...]:
    """Tiles that fill the dot units, in a grouped order: of specialised programs, of one program each with the
    reduction split where there are few, and of programs that walk them."""
    least = least_tile(form.dtype, form.workload.precision, target)
    swap = form.m.extent < form.n.extent and form.m.extent <= least.rows
    common: dict[str, KnobValue] = {
        "tail": "masked",
        "split_k": 1,
        "partials": "workspace",
        "per_sm": 1,
        "specialize": "none",
        "ctas": 1,
        **{x: fastest(knobs[x]) for x in ("a_load", "b_load")},
        "order": "mn",
        "group": nearest(knobs["group"], 8),
        "epilogue_load": "pointer",
        "max_registers": 0,
    }

    def start(m: int, n: int, k_bytes: int, **own: KnobValue) -> Values:
        sizes = (("m", m), ("n", n), ("k", k_bytes / dtype(form.dtype).bytes))
        values = {**common, **{name: nearest(knobs[name], size) for name, size in sizes}, **own}
        if values["grid"] == "tiles":
            values["split_k"] = nearest(knobs["split_k"], max(1, target.num_sms / tiles_in(form, values)))
        return Values({name: values[name] for name in knobs})

    seeds = []
    descriptor = fastest(knobs["store"])
    for m, n, k_bytes, kind, warps, stages in _WARP_GROUP_STARTS if len(knobs["specialize"].values) > 1 else ():
        own: dict[str, KnobValue] = {"specialize": kind, "warps": warps, "stages": stages, "subtiles": 4}
        seeds += [start(m, n, k_bytes, grid="persistent", store=descriptor, swap=x, **own) for x in (False, True)]
    for rows, columns, k_bytes, warps, stages in _START_TILES:
        m, n = (columns, rows) if swap else (rows, columns)
        own = {"swap": swap, "warps": warps, "stages": stages}
        seeds.append(start(m, n, k_bytes, grid="tiles", store="pointer", subtiles=1, **own))
        seeds.append(start(m, n, k_bytes, grid="persistent", store=descriptor, subtiles=2, **own))
    return tuple(seeds)
