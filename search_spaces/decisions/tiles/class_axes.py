"""Axes of a class: tiles along one axis of a set, as boxes of several, or over the mixed-radix number that they are.

Before: grid image, row, m.0:                   a tile's rows are columns m.0*64 : +64 of a row of an image
After (m_axes=range):  grid m.0:                a tile's rows are positions m.0*64 : +64 of image*196 + row*14 + column
      (m_axes=plane): grid image, row.0, column.0: rows row.0*8 : +8 and columns column.0*16 : +16 of an image
      (m_axes=patch): grid image.0, row.0, column.0: 4 x 4 pixels of each of 8 images, of which 28 x 28 are whole boxes

Before: for tap in 9: for k.0 in 4:             channels k.0*64 : +64 of a tap
After (k_axes=fused):  for k.0 in 36:           channels (k.0 % 4)*64 : +64 of the tap k.0 // 4
      (k_axes=range):  for k.0:                 positions k.0*64 : +64 of tap*256 + channel
      (k_axes=joined): for row in 3:            8 channels of each of the 3 taps of a row, one after the other
      (k_axes=unrolled): for k.0:               bytes k.0*64 : +64, and a dot for each of the two values in them
      (k_axes=interleaved): for k.0:            the same, and one dot of both, alternating along k

Before: grid r.0, c.0: out[r, c] of a tile of rows and columns, half of which are beyond the end of short columns
After (flat=1024):     grid f.0: 1024 vectors of the rows and columns as one axis, or positions of all axes as one

A range has no positions beyond the end of a row; a box is moved by one instruction (`programs.boxes`). One loop is
pipelined from end to end, and may be shared by programs; of a range its end may be peeled, too. Joined tiles fill dots
that are deeper than each alone. `fuse` of loops (Halide, TVM), implicit GEMM (CUTLASS, cuDNN) where the class is that
of a convolution.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice, padded

NAMES = ("m_axes", "n_axes", "k_axes", "flat")
# Vectors of a tile of rows and columns of points as one axis, or positions of all axes; 0 if each is tiled by itself.
FLAT_SIZES = (0, 256, 512, 1024, 2048)
# Boxes of several axes.
PATCH, PLANE = "patch", "plane"
BOXES = (PATCH, PLANE)
# Planes with more positions than this, relative to those that exist, lose to patches.
_MOST_WASTE = 1.5
WHERE_NOT = "Where a class has one axis; no range or box of it where slices cannot say what that reads, or move it."


def class_axes(
    name: str, extents: Sequence[int], ranged: bool, tiles: Sequence[int] = (), together: Sequence[str] = ()
) -> tuple[Decision, ...]:
    """Tiles along one axis, or along several axes of these extents, if there is a choice.

    `ranged`: also ranges of all; `tiles`: sizes of tiles that may be boxes, which divide reduced axes; `together`: an
    iteration may have tiles at all positions of one axis, which are joined along another, or have dots of their own.
    """
    summed = name == "k_axes"
    fused = ("fused",) if summed and len(extents) > 1 else ()
    boxes = [kind for kind in BOXES if any(box_of(tuple(extents), tile, kind, summed) for tile in tiles)]
    values = ("box", *fused, *(("range", *boxes) if ranged else ()), *together)
    return (Decision(Choice(name, values, ordered=False)),) if len(values) > 1 else ()


@lru_cache(4096)  # Every schedule asks.
def box_of(extents: tuple[int, ...], tile: int, kind: str, whole: bool = False) -> tuple[int, ...] | None:
    """Sides of the box with so many positions along axes of these extents; None if there is none of this kind.

    A patch is the box with the fewest positions beyond the ends of the axes, a plane the same within one position of
    the first axis, unless that is the patch; of equal ones, that with the least surface. `whole`: it divides the axes.

    >>> box_of((16, 56, 56), 128, "patch"), box_of((16, 56, 56), 128, "plane")
    ((2, 8, 8), (1, 8, 16))
    """
    boxes = [sides for sides in _boxes(extents, tile) if kind == PATCH or sides[0] == 1]
    found = min(boxes, key=lambda sides: (_waste(extents, sides), *_surface(sides)), default=None)
    if found is None or (whole and _waste(extents, found) > 1):
        return None
    if kind == PATCH:
        return found
    return None if _waste(extents, found) > _MOST_WASTE or found == box_of(extents, tile, PATCH) else found


def _boxes(extents: Sequence[int], tile: int) -> list[tuple[int, ...]]:
    """All boxes of powers of two that are no longer than the axes, rounded up."""
    first, *inner = extents
    powers = [[1 << n for n in range(min(padded(x), tile).bit_length())] for x in inner]
    chosen = [sides for sides in itertools.product(*powers) if tile % math.prod(sides) == 0]
    boxes = [(tile // math.prod(sides), *sides) for sides in chosen]
    return [sides for sides in boxes if sides[0] <= padded(first) and sum(x > 1 for x in sides) > 1]


def _waste(extents: Sequence[int], sides: Sequence[int]) -> float:
    """Positions of all boxes, relative to those that exist."""
    return math.prod(-(-extent // side) * side / extent for extent, side in zip(extents, sides, strict=True))


def _surface(sides: Sequence[int]) -> tuple[float, tuple[int, ...]]:
    """Positions at one face of each pair, relative to all of the box; then long sides along inner axes first."""
    return sum(1 / x for x in sides[1:]), tuple(sides)


def flat_points() -> Decision:
    """Axes of points each tiled by itself, or as one axis in so many vectors.

    The base program is made with it.
    """
    return Decision(Choice("flat", FLAT_SIZES))
