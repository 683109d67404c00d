"""Tiles of a batch of small products: a program has several positions of the batch, each a dot of its own.

Before:  grid g, m.0:        acc[m, n] += dot(x[m, g, k], w[g, k, n])           32 bytes of a pixel's 12 groups of 16
After (batch=3x4):
         grid g.0, m.0:      acc[g, m, n] += dot(x[m, g, k], w[g, k, n])        128 bytes, of four groups

Rows of tiles are then whole lines of the caches, and addresses and masks of a row serve several products. A single dot
of a block-diagonal tile would multiply each position's values by the zeros of the others, and an infinity by 0 is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from search_spaces.anchors.contractions.class_tiles import class_positions, fits
from search_spaces.decisions.decision import Decision
from search_spaces.decisions.memory.transfers import is_by_pointers
from search_spaces.decisions.tiles.tiling import tiling
from search_spaces.devices.features import multiplied
from search_spaces.devices.target import Target
from search_spaces.schedules.knobs import Knob, KnobValue, Values
from search_spaces.schedules.rules import Rule, only
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.dtypes import dtype, is_promoted
from search_spaces.workloads.expressions.expression import why_not_sliced
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.workload import Axis

BATCH = "batch"
# Positions of the batch in a tile: at two bytes an element, 32 of four channels are two lines of the caches.
_TILES = (1, 2, 4, 8, 16, 32)
# A line of the caches: longer rows of a single product are whole lines already.
LINE_BYTES = 128
# What only dots of warp groups have, and the values without it.
_BY_WARPS: Mapping[str, KnobValue] = {"specialize": "none", "ctas": 1}


def batch_tile(values: Values) -> int:
    """Positions of the batch in a tile; 1 without the decision."""
    return values.tile(BATCH) if BATCH in values else 1


def batch_axis(form: Contraction) -> Axis:
    """The axis of the batch along which tiles have several positions: the innermost one of the first output."""
    (output, *_), places = form.workload.outputs, {x.name: at for at, x in enumerate(form.axes)}
    return min(form.batch, key=lambda x: output.effective_strides[places[x.name]])


def batch_tiling(form: Contraction, target: Target, several: bool) -> tuple[Decision, ...]:
    """The decision for a batch of products whose rows are shorter than a line; without a choice unless `several`."""
    if not form.batch or not _is_small(form) or not has_warp_dots(form, target) or not _is_sliced(form):
        return ()
    extent = batch_axis(form).extent
    sizes = [s for s in _TILES if fits(s, extent)] if several else _TILES[:1]
    return (tiling(BATCH, extent, "grid", sizes),)


def _is_small(form: Contraction) -> bool:
    """True if rows of an operand along k, and rows or columns of the outputs, are shorter than a line."""
    narrow = min(class_positions(form, x, ranged=True) for x in "mn")
    return max(narrow, form.k.extent) * dtype(form.dtype).bytes < LINE_BYTES


def has_warp_dots(form: Contraction, target: Target) -> bool:
    """True if dots are computed by matrix instructions of single warps, which other units' sums may need to be."""
    precision = form.workload.precision
    units = target.features.multiplying(multiplied(form.dtype, precision), "registers")
    return bool(units) and not is_promoted(form.dtype, precision)


def _is_sliced(form: Contraction) -> bool:
    """True if no index moves along the batch and another tiled axis, nor is data that depends on the batch."""
    tiled = [x.name for axes, _ in form.classes.values() for x in axes]
    operands = (a for side in form.operands for e in side for a in accesses(e))
    read = (*operands, *(a for _, e in form.results for a in accesses(e)))
    along = batch_axis(form).name
    sliced = all(why_not_sliced(a, [along, x]) is None for a in dict.fromkeys(read) for x in tiled)
    return sliced and not form.is_looked_up_along(batch_axis(form))


def batch_rules(knobs: Mapping[str, Knob]) -> Iterator[Rule]:
    """Rules of tiles with several positions of the batch."""
    if BATCH in knobs:
        yield from by_warps(
            BATCH, ("a_load", "b_load", "store", "epilogue_load"), lambda values: batch_tile(values) > 1
        )


def by_warps(decision: str, moved: Sequence[str], where: Callable[[Values], bool]) -> Iterator[Rule]:
    """Rules of dots that single warps compute, of tiles that are moved by pointers, where a decision makes such."""
    for name, value in _BY_WARPS.items():
        yield only(name, value, (decision,), where, f"{decision} makes dots of single warps")
    for name in moved:
        yield Rule((decision, name), _why_described(decision, name, where))


def _why_described(decision: str, name: str, where: Callable[[Values], bool]) -> Callable[[Values], str | None]:
    def why(values: Values) -> str | None:
        if is_by_pointers(values[name]) or not where(values):
            return None
        return f"{name}={values[name]} of {decision}={values[decision]}; expected a way by pointers"

    return why


def with_batch(rule: Rule, knobs: Mapping[str, Knob]) -> Rule:
    """The rule with the batch, if it reads the size of a tile."""
    reads = BATCH in knobs and {"m", "n"} & {*rule.knobs} and BATCH not in rule.knobs
    return Rule((*rule.knobs, BATCH), rule.why_broken) if reads else rule
