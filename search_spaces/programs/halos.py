"""Halos: boxes that a loop's windows read in common, loaded once before it; the windows are views of them.

Before:  for r.0, s.0 in 3 x 3:
           a: (m 128, k 64) = load x[n.0, p.0*8 + r.0 - 1 + m // 16, q.0*16 + s.0 - 1 + m % 16, k.1*64 : +64] else 0
After:   halo: (h 10, w 18, k 64) = load x[n.0, p.0*8 - 1 : +10, q.0*16 - 1 : +18, k.1*64 : +64] else 0
         for r.0, s.0 in 3 x 3:
           a: (m 128, k 64) = halo[r.0 + m // 16, s.0 + m % 16, : +64]

Joined:  a, a2, a3 = halo[r.0 + m // 16, 0 + m % 16 …], halo[…, 1 + …], halo[…, 2 + …]
         ab: (m 128, k 32) = a, a2, a3, 0 along k        short k of all taps of a row, for one dot

So each pixel is read once for all taps, and a window is the tile at an offset. (Halide's `compute_at` outside of the
loops over a stencil; "halo" and "ghost zone" are the words of stencil codes.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_spaces.programs.statements import Load, View
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names

# The way to load an operand (`decisions.memory.transfers`), and the word of backends that view tiles in shared memory.
HALO = "halo"


def why_no_halo(load: Load, taps: Mapping[str, int]) -> str | None:
    """Reason that the windows of a load are no views of a box, or None. `taps`: extents of the variables of the loop.

    Rows of a halo are those of the buffer's last dimension, in which windows do not slide.
    """
    if uneven := next((p for p in load.slices if p.skew or p.before or p.step < 1), None):
        return f"{uneven} is no window"
    if ranged := next((p for p in load.slices if p.flat and not p.is_side), None):
        return f"{ranged} begins within a row"
    last = load.slices[-1]
    if last.extent is None or last.flat or last.step != 1 or _span(last.start, taps):
        return f"{last} is no row of a halo"
    return None if any(_span(p.start, taps) for p in load.slices) else "nothing is read by several windows"


def halo_of(load: Load, taps: Mapping[str, int], names: Names) -> tuple[Load, View]:
    """The load of a halo, before the loop over `taps`, and the view in it that is the result of `load`."""
    assert why_no_halo(load, taps) is None, f"{load.dst} is no window of a halo"
    boxes, windows = list[Slice](), list[Slice]()
    for dimension, piece in enumerate(load.slices):
        tap = Affine(tuple((v, c) for v, c in piece.start.terms if v in taps))
        before = tap.minimum(taps)
        first = Affine(tuple((v, c) for v, c in piece.start.terms if v not in taps), piece.start.offset + before)
        extent = (piece.side - 1) * piece.step + _span(piece.start, taps) + 1
        if piece.axis and piece is load.slices[-1]:
            boxes.append(Slice(first, extent, piece.axis))
        elif extent == 1:
            boxes.append(Slice(first))
            continue
        else:
            boxes.append(Slice(first, extent, f"{load.dst.name}.{dimension}"))
        windows.append(replace(piece, start=Affine(tap.terms, -before), clamped=False))
    name = names.fresh(f"{load.dst.name}_halo")
    halo = Tile.along(boxes, name, load.dst.dtype)
    return replace(load, dst=halo, slices=tuple(boxes), guarded=True), View(load.dst, name, tuple(windows))


def _span(start: Affine, taps: Mapping[str, int]) -> int:
    """Distance between the least and the greatest start of the windows."""
    return sum(abs(c) * (taps[v] - 1) for v, c in start.terms if v in taps)
