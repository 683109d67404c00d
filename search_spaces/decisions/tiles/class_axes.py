"""Axes of a class: tiles along one axis of a set, or over the mixed-radix number that the axes are.

Before: grid image, row, m.0:                   a tile's rows are columns m.0*64 : +64 of a row of an image
After (m_axes=range):  grid m.0:                a tile's rows are positions m.0*64 : +64 of image*196 + row*14 + column

Before: for tap in 9: for k.0 in 4:             channels k.0*64 : +64 of a tap
After (k_axes=fused):  for k.0 in 36:           channels (k.0 % 4)*64 : +64 of the tap k.0 // 4
      (k_axes=range):  for k.0:                 positions k.0*64 : +64 of tap*256 + channel

Before: grid r.0, c.0: out[r, c] of a tile of rows and columns, half of which are beyond the end of short columns
After (flat=1024):     grid f.0: 1024 vectors of the rows and columns as one axis, or positions of all axes as one

One loop is pipelined from end to end, and may be shared by programs; of a range its end may be peeled, too. `fuse` of
loops (Halide, TVM), implicit GEMM (CUTLASS, cuDNN) where the class is that of a convolution.
"""

from __future__ import annotations

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice

NAMES = ("m_axes", "n_axes", "k_axes", "flat")
# Vectors of a tile of rows and columns of points as one axis, or positions of all axes; 0 if each is tiled by itself.
FLAT_SIZES = (0, 256, 512, 1024, 2048)
WHERE_NOT = "Where a class has one axis; no range of it where slices cannot say what that reads."


def class_axes(name: str, axes: int, ranged: bool) -> tuple[Decision, ...]:
    """Boxes or ranges of several axes of a class, if there is a choice; `ranged`: also ranges of all."""
    fused = ("fused",) if name == "k_axes" and axes > 1 else ()
    values = ("box", *fused, *(("range",) if ranged else ()))
    return (Decision(Choice(name, values, ordered=False)),) if len(values) > 1 else ()


def flat_points() -> Decision:
    """Axes of points each tiled by itself, or as one axis in so many vectors.

    The base program is made with it.
    """
    return Decision(Choice("flat", FLAT_SIZES))
