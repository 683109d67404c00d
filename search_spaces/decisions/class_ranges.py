"""Ranges of a class of axes: tiles over the mixed-radix number that the axes of a class are, or along one of them.

Before (m_axes=box):   grid image, row, m.0:  rows of the tile are columns m.0*64 : +64 of a row of an image
After (m_axes=range):  grid m.0:              rows of the tile are positions m.0*64 : +64 of image*196 + row*14 + column

With k a range there is one loop over all that is reduced, which may be shared by programs, or have its end peeled.
`fuse` (Halide, TVM), implicit GEMM (CUTLASS, cuDNN) where the class is that of a convolution.
"""

from __future__ import annotations

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice

NAMES = ("m_axes", "n_axes", "k_axes")
WHERE_NOT = "Where a class has one axis, or no slice says what a range of it reads."


def ranges(name: str, possible: bool) -> tuple[Decision, ...]:
    """Whether tiles of a class are boxes or ranges, where there is a choice."""
    return (Decision(Choice(name, ("box", "range"), ordered=False)),) if possible else ()
