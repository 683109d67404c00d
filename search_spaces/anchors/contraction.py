"""Contractions: block tiles, a main loop over k, a fused epilogue; on a GPU several dots in one loop.

Before:  for m, n: gate[m, n] = sum over k of f(x[m, k]) * wg[k, n]
         for m, n: up[m, n]   = sum over k of f(x[m, k]) * wu[k, n]
         for m, n: out[m, n]  = epilogue(gate[m, n], up[m, n])
After:   grid m.0, n.0:
           acc, acc2 = 0, 0
           for k.0: a = f(x_tile); acc += dot(a, wg_tile); acc2 += dot(a, wu_tile)
           store out_tile = epilogue(acc, acc2), whole or in subtiles

Ansor's rules "multi-level tiling with fusion", "reduction factorisation" and "cache stage" (Zheng et al., 2020, table
1): thread-level tiling is the backend's, so the levels here are grid, group (for L2) and tile. Besides them there is
horizontal fusion of contractions that share an operand, which is then read once for all of them. With `split` > 1 or
`grid=stream_k` several programs share the reduction of a tile. Their partial sums meet in a workspace, one part each or
all added up by atomic operations, and a second kernel adds the parts in a fixed order and applies the epilogue.
An operand with rows that no descriptor can address, or with the wrong layout for the dot units, may be copied first
(`operand_copies`). On a CPU, in float32, tiles are those of its caches and registers, and operands are packed
(`packed_program`).
"""

from __future__ import annotations

from search_spaces.anchors.contractions.contraction_kernels import lower
from search_spaces.anchors.contractions.dot_knobs import decisions
from search_spaces.anchors.contractions.operand_tiles import whole_tiles
from search_spaces.anchors.contractions.packed.cache_tiles import cache_decisions, cache_starts
from search_spaces.anchors.contractions.packed.packed_program import packed_program
from search_spaces.anchors.contractions.rules.dot_rules import DECIDED_FIRST, dot_rules
from search_spaces.anchors.contractions.starting.contraction_starts import starts
from search_spaces.decisions.decision import Anchor, derived
from search_spaces.devices.descriptors import descriptor_remarks
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.contraction import Contraction, contraction
from search_spaces.structure.looked_up import with_looked_up_tiles
from search_spaces.structure.segmented import segmented
from search_spaces.workloads.workload import Workload


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for sums of products over the same axes, with prologue and epilogue."""
    form = contraction(workload)
    if form is None:
        raise UnmatchedError("its sums are no products of rows and columns over common axes")
    if target.kind == "gpu" and segmented(workload):
        raise UnmatchedError("data cuts its rows into segments, and tiles of one each read its matrix once")
    if target.kind == "cpu" and not (form.is_packed and all(map(form.is_plain, form.tensors))):
        raise UnmatchedError("a CPU packs tiles of one product of two tensors that are read at plain axes")
    return (_on_a_gpu(with_looked_up_tiles(form), target, offers) if target.kind == "gpu" else _on_a_cpu(form, target),)


def _on_a_gpu(form: Contraction, target: Target, offers: Offers) -> Sketch:
    workload = form.workload
    applied = decisions(workload, form, target, offers)
    anchor = Anchor(
        "contraction",
        lambda values: lower(workload, form, values),
        dot_rules(workload, form, target, {d.name: d.knob for d in applied}, offers),
        starts(form, target, applied, offers),
        _remarks(workload, form, target),
        DECIDED_FIRST,
    )
    return derived(anchor, applied)


def _on_a_cpu(form: Contraction, target: Target) -> Sketch:
    workload, form = form.workload, form.row_major
    applied = cache_decisions(form, target)
    anchor = Anchor(
        "contraction",
        lambda values: packed_program(workload, form, target, values),
        starts=cache_starts(form, target, applied),
    )
    return derived(anchor, applied)


def _remarks(workload: Workload, form: Contraction, target: Target) -> tuple[str, ...]:
    """Reasons that descriptors move some of the whole tiles only by way of copies."""
    if form.is_plain_product:
        return descriptor_remarks(workload, (x.tensor for x in form.tensors), target)
    moved = dict.fromkeys(a.tensor for side in form.operands for e in side for a in whole_tiles(e, form))
    return descriptor_remarks(workload, (*moved, *workload.output_names), target, "read by pointers")
