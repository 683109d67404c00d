"""Operands that are views of halos: their form, and the decisions that allow them.

x[n, p + r - 1, q + s - 1, c]      boxes of n, p, q; taps r, s; channels c in vectors: a halo of each block of channels
w[f, r, s, c]                      filters f of all taps, each of which is a view, too

The loop over channels is outside of the one over taps (`programs.halos`), so that all taps are read of one halo. Where
both operands are, the loop over taps loads nothing, and threads do not meet in it; a persistent program with all
channels loads its filters once. Several groups of few channels are a batch of products of the same pixels, and their
taps are joined along k (`joined_tiles`), all of them views.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping

from search_spaces.anchors.contractions.batch_tiles import BATCH, batch_tile
from search_spaces.anchors.contractions.class_tiles import CLASSES, FUSED, JOINED, RANGE, class_tiles
from search_spaces.anchors.contractions.operand_tiles import LOADS
from search_spaces.programs.halos import HALO
from search_spaces.schedules.knobs import Knob, KnobValue, Values
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.expression import Access, Expression
from search_spaces.workloads.expressions.walking import accesses

# Bytes that are copied at once, and that rows of matrix instructions' operands have (PTX ISA, cp.async and ldmatrix).
_CHUNK_BYTES = 16
# Bytes of shorter rows that are copied at once, too (PTX ISA, cp.async); threads read them in words.
_SHORT_BYTES = 8
# Columns of matrix instructions: tiles of fewer are of two products.
_COLUMNS = 8
# Taps of a window of 7 x 7, and of some more: all of them are in shared memory at once.
_MOST_TAPS = 64
# Time to multiply a pixel by 64 filters of 64 channels under nine taps, in loads of one: on an H100 28 cycles of a
# multiprocessor and about 7; if these are of several groups, each with its own channels only.
_MULTIPLIED, _CHANNELS = 4, 64
# Values of decisions next to a halo: tiles of channels are those of one loop, and programs do all of their taps.
_BESIDE: Mapping[str, tuple[KnobValue, ...]] = {
    "k_axes": (FUSED, JOINED),
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
    chunk = tensor.shape[-1] if has_short_rows(form, side) else _CHUNK_BYTES // dtype(tensor.dtype).bytes
    *strides, step = tensor.effective_strides
    row = last.along([tiled.name for axes, tiled in form.classes.values() if tiled == form.k or len(axes) == 1])
    others = (last.offset, tensor.shape[-1], *strides, *(c for x, c in last.terms if x != row))
    in_chunks = step == 1 and not any(x % chunk for x in others)
    rows = tensor.dtype == form.dtype and bool(row) and last.step(row) == 1 and not taps & {*last.axes}
    few = math.prod(x.extent for x in form.around) <= _MOST_TAPS
    return few and in_chunks and rows and any(taps & {*i.axes} for i in access.index)


def has_short_rows(form: Contraction, side: tuple[Expression, ...]) -> bool:
    """True if rows of an operand that is read in place are shorter than a chunk, and copied whole."""
    (access,) = (e for e in side if isinstance(e, Access))
    tensor = form.map_of(access).tensor
    return tensor.shape[-1] * dtype(tensor.dtype).bytes == _SHORT_BYTES


def slides(form: Contraction, side: tuple[Expression, ...]) -> bool:
    """True if several positions of an output read the same element of a side, under different taps."""
    taps, free = {x.name for x in form.around}, {x.name for x in (*form.rows, *form.columns)}
    return any(taps & {*i.axes} and free & {*i.axes} for e in side for a in accesses(e) for i in a.index)


def cost_of_halos(form: Contraction, values: Values, knob: str) -> float:
    """Pixels that all tiles load as halos of the operand that a knob moves, and four times those that they have.

    Of boxes of the same size, those that are cheapest waste few pixels, and have small halos.
    """
    ((access,),) = (side for name, side in zip(LOADS, form.operands, strict=True) if name == knob)
    assert isinstance(access, Access)
    tiles = [class_tiles(form, values, name) for name in CLASSES[:2]]
    channels = form.k.extent / _CHANNELS if batch_tile(values) > 1 else 1
    multiplied = values.tile(CLASSES[LOADS.index(knob)]) * _MULTIPLIED * channels
    sides = {axis: size for t in tiles for axis, size in t.sides.items()} | {x.name: x.extent for x in form.around}
    pixels = math.prod(i.maximum(defaultdict(lambda: 1, sides)) - i.offset + 1 for i in access.index[:-1])
    return (pixels + multiplied) * math.prod(count for t in tiles for count in t.counts.values())


def halo_rules(form: Contraction, knobs: Mapping[str, Knob], offers: Offers) -> Iterator[Rule]:
    """Rules of the sides that may be views of halos."""
    views = has_views_along_k(form, {x: knobs[x].values for x in LOADS})
    for name, several, by_loads in (
        (BATCH, _has_batch, offers.batches),
        ("k_axes", _is_joined, offers.joins),
        ("n", _is_narrow, False),
    ):
        if name in knobs and any(several(Values({name: v})) for v in knobs[name].values):
            yield Rule((name, *LOADS), _why_not_alike(name, several, views, by_loads))
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
        if has_short_rows(form, side):
            yield Rule((knob, "k_axes", "k"), _why_not_joined(form, knob))


def _has_batch(values: Values) -> bool:
    return batch_tile(values) > 1


def _is_narrow(values: Values) -> bool:
    return values.tile("n") < _COLUMNS


def _is_joined(values: Values) -> bool:
    return values["k_axes"] == JOINED


def has_views_along_k(form: Contraction, knobs: Mapping[str, Collection[KnobValue]]) -> bool:
    """True if both operands may be views of halos with rows along k: several of these may be one operand of a dot."""
    rows = all(e.index[-1].step(form.k.name) for side in form.operands for e in side if isinstance(e, Access))
    return rows and all(HALO in knobs[x] for x in LOADS)


def _why_not_alike(
    name: str, several: Callable[[Values], bool], views: bool, by_loads: bool
) -> Callable[[Values], str | None]:
    """Several tiles of an operand are views of one halo, on both sides; or loads, if a backend has dots of these."""
    allowed = [*(["both operands"] if views else []), *(["none"] if by_loads else [])]

    def why(values: Values) -> str | None:
        ways = [values[x] for x in LOADS]
        if not several(values) or (views and ways == [HALO, HALO]) or (by_loads and HALO not in ways):
            return None
        return f"{name}={values[name]} needs halos of {' or of '.join(allowed)}, got {' and '.join(map(str, ways))}"

    return why


def _why_not_joined(form: Contraction, knob: str) -> Callable[[Values], str | None]:
    """Rows that are shorter than a chunk are multiplied from words, of as many taps as fill an instruction."""

    def why(values: Values) -> str | None:
        if values[knob] != HALO:
            return None
        size = class_tiles(form, values, "k").sides[form.k.name] if _is_joined(values) else 0
        joined = f"{knob}={HALO} of rows of {form.k.extent} needs k_axes={JOINED}, of tiles of {form.k.extent}"
        return None if size == form.k.extent else joined

    return why


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
