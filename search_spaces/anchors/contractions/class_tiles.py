"""Tiles of a class of axes: along one of them, at one position of each other, or over the number that all of them are.

A class of 8 images of 14 rows of 14 columns, and tiles of 128 positions of it:

    box      128 columns (of 14) of a row of an image; programs or loops go over rows and images
    range    positions 128*t … 128*t + 127 of the number image*196 + row*14 + column, whose digits are those three

A range has no padding but at its end. Each index moves along a digit (`tiles.Flat`), and where memory has the digits
in radix they are one position again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces.programs.addressing import LARGEST_OFFSET
from search_spaces.programs.lowering import start_of
from search_spaces.programs.tiles import Flat, Slice
from search_spaces.schedules.knobs import KnobValue
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import why_not_sliced
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.workload import Axis

BOX, FUSED, RANGE = "box", "fused", "range"
# No tile is longer.
LONGEST = 512
# The classes of a contraction that tiles have an axis of, by its name.
CLASSES = ("m", "n", "k")
# The knobs of what moves tiles of a class.
MOVED = {
    "m": ("a_load", "store", "epilogue_load"),
    "n": ("b_load", "store", "epilogue_load"),
    "k": ("a_load", "b_load"),
}


@dataclass(frozen=True)
class ClassTiles:
    """Tiles of `size` positions of a class, along its axis `tiled`, or where they are ranges, over all axes."""

    axes: tuple[Axis, ...]
    tiled: Axis
    size: int
    kind: str

    @property
    def ranged(self) -> bool:
        return self.kind == RANGE

    @property
    def positions(self) -> int:
        """How many positions tiles lie along."""
        return math.prod(x.extent for x in self.axes) if self.ranged else self.tiled.extent

    @property
    def count(self) -> int:
        """How many tiles that takes, of boxes at one position of what loops or programs go over around them."""
        return math.prod(size for _, size in self.digits) if self.kind == FUSED else self.steps

    @property
    def steps(self) -> int:
        return -(-self.positions // self.size)

    @property
    def digits(self) -> tuple[tuple[str, int], ...]:
        """The variables of boxes, and their extents, where one loop goes over all of them."""
        return (*((f"{x.name}.0", x.extent) for x in self.others), (f"{self.tiled.name}.1", self.steps))

    @property
    def outermost(self) -> Axis:
        """The axis whose positions a tile that reaches beyond the end leaves."""
        return self.axes[0] if self.ranged else self.tiled

    @property
    def others(self) -> tuple[Axis, ...]:
        """The axes that a tile has one position of."""
        return () if self.ranged else tuple(x for x in self.axes if x != self.tiled)

    def place(self, start: Affine, size: int | None = None) -> dict[str, Slice]:
        """Where a tile (or so much of one) lies along every axis that it has several positions of."""
        extent, name = size or self.size, self.tiled.name
        if not self.ranged:
            return {name: Slice(start, extent, name)}
        place, divisor = dict[str, Slice](), self.positions
        for x in self.axes:
            divisor //= x.extent
            flat = Flat(start, divisor, 0 if x == self.axes[0] else x.extent)
            place[x.name] = Slice(start_of(), extent, name, flat=flat)
        return place


def class_tiles(form: Contraction, values: Mapping[str, KnobValue], name: str) -> ClassTiles:
    """The tiles of the class m, n or k of a contraction, as its knobs have them."""
    (axes, tiled), tiling = form.classes[name], values[name]
    assert isinstance(tiling, tuple)
    return ClassTiles(axes, tiled, tiling[-1], str(values.get(f"{name}_axes", BOX)))


def class_positions(form: Contraction, name: str, ranged: bool) -> int:
    """How many positions of a class tiles lie along, where they are ranges of it or not."""
    axes, tiled = form.classes[name]
    return ClassTiles(axes, tiled, 1, RANGE if ranged else BOX).positions


def may_range(form: Contraction, name: str) -> bool:
    """Whether tiles of a class may be ranges of several axes, next to boxes of the other classes."""
    return len(form.classes[name][0]) > 1 and why_not_ranged(form, {name: True}) is None


def why_not_ranged(form: Contraction, ranged: Mapping[str, bool]) -> str | None:
    """Why operands cannot be read where these classes are ranges, the others boxes: by slices, with an end."""
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
    """Whether a tile exceeds so many positions by less than a whole smaller tile."""
    return size < 2 * positions
