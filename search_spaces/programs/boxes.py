"""Boxes of buffers: tiles that run along several dimensions at once, as one descriptor moves them.

    load x[n.0*2 … +2, p.0*8 + r.0 - 1 … +8, q.0*8 + s.0 - 1 … +8, k.0*64 : +64]        a tile (m 128, k 64)
    box  2 x 8 x 8 x 64 from (n.0*2, p.0*8 + r.0 - 1, q.0*8 + s.0 - 1, k.0*64) on        its elements in order

Outside of the buffer a descriptor reads 0 and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from search_spaces.programs.tiles import Slice, sliced


def box(slices: Sequence[Slice]) -> tuple[int, ...]:
    """Number of positions along every dimension."""
    return tuple(piece.side for piece in slices)


def why_no_box(slices: Sequence[Slice], strides: Sequence[int]) -> str | None:
    """Reason that the elements of a tile are no box of a buffer with these strides, in order; or None."""
    if scattered := next((p for p in slices if p.step != 1 or p.skew or p.before), None):
        return f"{scattered} skips elements"
    moving = [(p, stride) for p, stride in zip(slices, strides, strict=True) if p.axis]
    if ranged := next((p for p, _ in moving if p.flat and not p.is_side), None):
        return f"{ranged} begins within a row"
    if any(stride == 0 for p, stride in moving if p.flat):
        return "a side of the box is one position in memory"
    axes = [axis for axis, _ in groupby(p.axis for p, _ in moving)]
    if len(axes) != len(sliced(slices)):
        return f"sides along {' and '.join(axes)} alternate in memory"
    for axis, extent in sliced(slices).items():
        divisor = extent
        for p in (p for p, _ in moving if p.axis == axis):
            divisor //= p.side
            if p.flat and p.flat.divisor != divisor:
                return f"sides along {axis} have another order in memory"
    return None
