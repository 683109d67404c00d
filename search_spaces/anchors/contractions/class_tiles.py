"""Tiles of a class of axes: along one axis, at one position of each other, or over the mixed-radix number of all.

A class of 8 images of 14 rows of 14 columns, and tiles of 128 positions of it:

    box      128 columns (of 14) of a row of an image; programs or loops go over rows and images
    range    positions 128*t … 128*t + 127 of the number image*196 + row*14 + column, whose digits are those three

A range has padding only at its end. Each index moves along a digit (`tiles.Flat`), and digits that are in radix in
memory are one position again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from search_spaces.programs.addressing import LARGEST_OFFSET
from search_spaces.programs.lowering import start_of
from search_spaces.programs.tiles import Flat, Slice
from search_spaces.schedules.knobs import KnobValue
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, why_not_sliced
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.workload import Axis

BOX, FUSED, RANGE = "box", "fused", "range"
# Longest tiles.
LONGEST = 512
# The classes of a contraction that are tiled, by the names of their tiled axes.
CLASSES = ("m", "n", "k")
# Knobs of the addressing of each class's tiles.
MOVED = {
    "m": ("a_load", "store", "epilogue_load"),
    "n": ("b_load", "store", "epilogue_load"),
    "k": ("a_load", "b_load"),
}


@dataclass(frozen=True)
class ClassTiles:
    """Tiles of `size` positions of a class, along its axis `tiled`, or as ranges over all axes."""

    axes: tuple[Axis, ...]
    tiled: Axis
    size: int
    kind: str

    @property
    def ranged(self) -> bool:
        return self.kind == RANGE

    @property
    def positions(self) -> int:
        """Number of positions along which tiles lie."""
        return math.prod(x.extent for x in self.axes) if self.ranged else self.tiled.extent

    @property
    def count(self) -> int:
        """Number of tiles; for boxes, at one position of the axes around them."""
        return math.prod(size for _, size in self.digits) if self.kind == FUSED else self.steps

    @property
    def steps(self) -> int:
        return -(-self.positions // self.size)

    @property
    def digits(self) -> tuple[tuple[str, int], ...]:
        """Variables of boxes and their extents, if one loop is over all of them."""
        return (*((f"{x.name}.0", x.extent) for x in self.others), (f"{self.tiled.name}.1", self.steps))

    @property
    def outermost(self) -> Axis:
        """The axis whose end a tile may reach beyond."""
        return self.axes[0] if self.ranged else self.tiled

    @property
    def others(self) -> tuple[Axis, ...]:
        """The axes of which a tile has one position."""
        return () if self.ranged else tuple(x for x in self.axes if x != self.tiled)

    def place(self, start: Affine, size: int | None = None) -> dict[str, Slice]:
        """Slices of a tile (or of `size` positions of it) along every axis of which it has several positions."""
        extent, name = size or self.size, self.tiled.name
        if not self.ranged:
            return {name: Slice(start, extent, name)}
        place, divisor = dict[str, Slice](), self.positions
        for x in self.axes:
            divisor //= x.extent
            flat = Flat(start, divisor, 0 if x == self.axes[0] else x.extent)
            place[x.name] = Slice(start_of(), extent, name, flat=flat)
        return place


def counted(form: Contraction, place: Mapping[str, Slice], access: Access) -> dict[str, Slice]:
    """The place with positions along which an operand has windows as digits that end, for im2col descriptors.

    Images without a window have an end in memory, beyond which everything is 0.
    """
    found, moving = dict(place), {x for x, piece in place.items() if piece.extent is not None}
    for index, size in zip(access.index[:-1], form.map_of(access).tensor.shape, strict=False):
        axis = index.along(moving)
        if not axis:
            continue
        piece, extent = place[axis], form.extents[axis]
        flat = piece.flat or Flat(piece.start)
        images = piece.flat and index.is_axis and extent == size
        if not flat.size and not images:
            flat = replace(flat, size=extent)
        found[axis] = Slice(start_of(), piece.extent, piece.axis, flat=flat)
    return found


def class_tiles(form: Contraction, values: Mapping[str, KnobValue], name: str) -> ClassTiles:
    """The tiles of the class m, n or k of a contraction, by its knobs."""
    (axes, tiled), tiling = form.classes[name], values[name]
    assert isinstance(tiling, tuple)
    return ClassTiles(axes, tiled, tiling[-1], str(values.get(f"{name}_axes", BOX)))


def class_positions(form: Contraction, name: str, ranged: bool) -> int:
    """Number of positions of a class along which its tiles lie, as ranges or as boxes."""
    axes, tiled = form.classes[name]
    return ClassTiles(axes, tiled, 1, RANGE if ranged else BOX).positions


def may_range(form: Contraction, name: str) -> bool:
    """True if tiles of a class may be ranges of several axes, next to boxes of the other classes."""
    return len(form.classes[name][0]) > 1 and why_not_ranged(form, {name: True}) is None


def why_not_ranged(form: Contraction, ranged: Mapping[str, bool]) -> str | None:
    """Reason that slices cannot express operands with these classes as ranges, or None."""
    tiled = [x.name for name, (axes, one) in form.classes.items() for x in axes if ranged.get(name) or x == one]
    read = dict.fromkeys(a for side in form.operands for e in side for a in accesses(e))
    if reason := next((reason for a in read if (reason := why_not_sliced(a, tiled))), None):
        return reason
    counted = max(class_positions(form, name, one) for name, one in ranged.items())
    if counted > LARGEST_OFFSET - LONGEST:
        return f"a range of {counted} positions; GPUs count at most {LARGEST_OFFSET} in 32 bits"
    ends = not ranged.get("k") or form.ends_with(form.reduced[0])
    return None if ends else f"operands of {form.dtype} go on beyond the end of {form.reduced[0].name}"


def fits(size: int, positions: int) -> bool:
    """True if a tile exceeds this many positions by less than a whole smaller tile."""
    return size < 2 * positions
