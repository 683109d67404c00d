"""Operands that are views of halos: their form, and the decisions that allow them.

x[n, p + r - 1, q + s - 1, c]      boxes of n, p, q; taps r, s; channels c in vectors: a halo of each block of channels
w[f, r, s, c]                      filters f of all taps, each of which is a view, too

The loop over channels is outside of the one over taps (`programs.halos`), so that all taps are read of one halo. Where
both operands are, the loop over taps loads nothing, and threads do not meet in it; a persistent program with all
channels loads its filters once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from search_spaces.anchors.contractions.class_tiles import CLASSES, FUSED, RANGE, class_tiles
from search_spaces.anchors.contractions.operand_tiles import LOADS
from search_spaces.programs.halos import HALO
from search_spaces.schedules.knobs import Knob, KnobValue, Values
from search_spaces.schedules.rules import Rule
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.expression import Access, Expression
from search_spaces.workloads.expressions.walking import accesses

# Bytes that are copied at once, and that rows of matrix instructions' operands have (PTX ISA, cp.async and ldmatrix).
_CHUNK_BYTES = 16
# Taps of a window of 7 x 7, and of some more: all of them are in shared memory at once.
_MOST_TAPS = 64
# Time to multiply a pixel by 64 filters of 64 channels under nine taps, in loads of one: on an H100 28 cycles of a
# multiprocessor and about 7.
_MULTIPLIED = 4
# Values of decisions next to a halo: tiles of channels are those of one loop, and programs do all of their taps.
_BESIDE: Mapping[str, tuple[KnobValue, ...]] = {
    "k_axes": (FUSED,),
    "tail": ("masked",),
    "grid": ("tiles", "persistent"),
    "specialize": ("none",),
    "ctas": (1,),
}


def has_halo(form: Contraction, side: tuple[Expression, ...]) -> bool:
    """True if tiles of a side have rows of whole chunks, and taps move them, so that those of all taps are one tile."""
    access, taps = side[0], {x.name for x in form.around}
    windows = any(slides(form, operands) for operands in form.operands)
    if not windows or len(side) != 1 or not isinstance(access, Access) or access.fill:
        return False
    tensor, last = form.map_of(access).tensor, access.index[-1]
    chunk = _CHUNK_BYTES // dtype(tensor.dtype).bytes
    *strides, step = tensor.effective_strides
    row = last.along([tiled.name for axes, tiled in form.classes.values() if tiled == form.k or len(axes) == 1])
    others = (last.offset, tensor.shape[-1], *strides, *(c for x, c in last.terms if x != row))
    in_chunks = step == 1 and not any(x % chunk for x in others)
    rows = tensor.dtype == form.dtype and bool(row) and last.step(row) == 1 and not taps & {*last.axes}
    few = math.prod(x.extent for x in form.around) <= _MOST_TAPS
    return few and in_chunks and rows and any(taps & {*i.axes} for i in access.index)


def slides(form: Contraction, side: tuple[Expression, ...]) -> bool:
    """True if several positions of an output read the same element of a side, under different taps."""
    taps, free = {x.name for x in form.around}, {x.name for x in (*form.rows, *form.columns)}
    return any(taps & {*i.axes} and free & {*i.axes} for e in side for a in accesses(e) for i in a.index)


def cost_of_halos(form: Contraction, values: Values, knob: str) -> int:
    """Pixels that all tiles load as halos of the operand that a knob moves, and four times those that they have.

    Of boxes of the same size, those that are cheapest waste few pixels, and have small halos.
    """
    ((access,),) = (side for name, side in zip(LOADS, form.operands, strict=True) if name == knob)
    assert isinstance(access, Access)
    tiles = [class_tiles(form, values, name) for name in CLASSES[:2]]
    multiplied = values.tile(CLASSES[LOADS.index(knob)]) * _MULTIPLIED
    sides = {axis: size for t in tiles for axis, size in t.sides.items()} | {x.name: x.extent for x in form.around}
    pixels = math.prod(i.maximum(defaultdict(lambda: 1, sides)) - i.offset + 1 for i in access.index[:-1])
    return (pixels + multiplied) * math.prod(count for t in tiles for count in t.counts.values())


def halo_rules(form: Contraction, knobs: Mapping[str, Knob]) -> Iterator[Rule]:
    """Rules of the sides that may be views of halos."""
    for knob, side in zip(LOADS, form.operands, strict=True):
        if HALO not in knobs[knob].values:
            continue
        (access,) = (e for e in side if isinstance(e, Access))
        moving = {x for i in access.index for x in i.axes}
        boxes = {f"{c}_axes" for c in CLASSES[:2] if moving & {x.name for x in form.classes[c][0]}}
        for name, allowed in _BESIDE.items():
            if name in knobs:
                yield Rule((knob, name), _why_not_beside(knob, name, allowed))
        for name in sorted(boxes & knobs.keys()):
            kinds = tuple(v for v in knobs[name].values if v != RANGE)
            yield Rule((knob, name), _why_not_beside(knob, name, kinds))
        yield Rule((knob, "k", "split"), _why_uneven(form, knob))


def _why_not_beside(knob: str, name: str, allowed: tuple[KnobValue, ...]) -> Callable[[Values], str | None]:
    def why(values: Values) -> str | None:
        if values[knob] != HALO or values[name] in allowed:
            return None
        return f"{knob}={HALO} needs {name}={' or '.join(map(str, allowed))}, got {values[name]}"

    return why


def _why_uneven(form: Contraction, knob: str) -> Callable[[Values], str | None]:
    """Operands are views, which nothing masks, and parts of the reduction have equal numbers of halos."""

    def why(values: Values) -> str | None:
        if values[knob] != HALO:
            return None
        tiles, split = class_tiles(form, values, "k"), values.integer("split")
        if tiles.reaches and not form.ends_at_zeros(form.k):
            return f"{knob}={HALO} needs zeros beyond the end of {form.k.name}, or whole tiles of it"
        blocks = tiles.counts[form.k.name]
        return f"split={split} does not divide {blocks} halos of a tile" if blocks % split else None

    return why
