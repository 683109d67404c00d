"""Starts whose rows groups of warps compute in registers, of what a producer loads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from search_spaces.anchors.contractions.class_tiles import INTERLEAVED, class_positions
from search_spaces.anchors.contractions.interleaved_tiles import computed_side, may_interleave
from search_spaces.decisions.programs.specialization import COOPERATIVE
from search_spaces.schedules.knobs import Values, padded
from search_spaces.structure.contraction import Contraction

# (rows, columns, products, warps, stages): large tiles, of which every computed element is multiplied with many.
_MANY = ((128, 256, 64, 8, 4), (128, 256, 64, 8, 3), (128, 128, 64, 8, 6), (256, 128, 64, 8, 4))
# The same of outputs with few columns: as many rows as share what is loaded for these, and deep rings.
_FEW = ((128, 64, 128, 8, 6), (256, 64, 128, 8, 4), (128, 64, 64, 8, 8), (64, 64, 128, 4, 8))
_FEW_COLUMNS = 64


class ComputedStart(NamedTuple):
    """Positions of m, n and k of a tile, and values of other knobs."""

    m: int
    n: int
    k: int
    values: Values


def computed_starts(form: Contraction) -> Iterator[ComputedStart]:
    """Programs of one tile each if columns are few, so that the reduction is split; persistent ones otherwise.

    None unless the operands of one side are computed.
    """
    side = computed_side(form)
    if side is None:
        return
    values = 2 if may_interleave(form) else 1
    positions = class_positions(form, "mn"[1 - side], ranged=False)
    few = positions <= _FEW_COLUMNS
    own = Values(
        {"specialize": COOPERATIVE, "swap": side == 1, "subtiles": 1, "grid": "tiles" if few else "persistent"}
    )
    own |= {"k_axes": INTERLEAVED} if values > 1 else {}
    own |= {"store": "pointer"} if few else {}
    for rows, columns, products, warps, stages in _FEW if few else _MANY:
        least = min(columns, padded(positions))
        m, n = (rows, least) if side == 0 else (least, rows)
        yield ComputedStart(m, n, products // values, Values({**own, "warps": warps, "stages": stages}))
