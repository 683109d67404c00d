"""Tiles of a class of axes: along one axis, boxes of several, or ranges of the mixed-radix number of all.

A class of 8 images of 14 rows of 14 columns, and tiles of 128 positions of it:

    box      128 columns (of 14) of a row of an image; programs or loops go over rows and images
    plane    8 rows and 16 columns of an image; programs go over all such boxes
    patch    2 rows and 8 columns of all 8 images, which leave out fewer positions beyond the ends
    range    positions 128*t … 128*t + 127 of the number image*196 + row*14 + column, whose digits are those three
    joined   of a reduction: the boxes at all columns, one after the other (`joined_tiles`)
    unrolled of a reduction: the same, as operands of a dot for each column
    interleaved of a reduction: the same of a computed operand, alternating along the tile (`interleaved_tiles`)

A range has padding only at its end. Each index moves along a digit (`tiles.Flat`), and digits that are in radix in
memory are one position again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from search_spaces.decisions.tiles.class_axes import BOXES, box_of
from search_spaces.programs.addressing import LARGEST_OFFSET
from search_spaces.programs.lowering import start_of
from search_spaces.programs.tiles import Flat, Slice, side
from search_spaces.schedules.knobs import KnobValue, padded
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, why_not_sliced
from search_spaces.workloads.expressions.walking import accesses, variables
from search_spaces.workloads.workload import Axis

BOX, FUSED, RANGE, JOINED, UNROLLED, INTERLEAVED = "box", "fused", "range", "joined", "unrolled", "interleaved"
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
    """Tiles of `size` positions of a class, along its axis `tiled`, as boxes, or as ranges over all axes.

    `summed`: they are iterations of a loop, instead of programs of a grid. `cuts`: number of places at which data cuts
    the tiled axis, and no tile goes over one of them.
    """

    axes: tuple[Axis, ...]
    tiled: Axis
    size: int
    kind: str
    summed: bool = False
    cuts: int = 0

    @property
    def ranged(self) -> bool:
        return self.kind == RANGE

    @property
    def boxed(self) -> bool:
        """True for boxes of several sides."""
        return self.kind in BOXES

    @property
    def in_one_loop(self) -> bool:
        """True if one loop is over the tiles at all positions, with digits for its variables."""
        return self.summed and (self.boxed or self.kind in (FUSED, JOINED, UNROLLED, INTERLEAVED))

    @property
    def together(self) -> Axis | None:
        """The axis at all of whose positions an iteration has boxes: joined, alternating, or each for itself."""
        return together_axis(self.axes, self.tiled) if self.kind in (JOINED, UNROLLED, INTERLEAVED) else None

    @property
    def joined(self) -> Axis | None:
        """The axis at all of whose positions boxes are joined along the tiled one."""
        return self.together if self.kind == JOINED else None

    @property
    def unrolled(self) -> bool:
        """True if an iteration has several boxes, each an operand of a dot of its own."""
        return self.kind == UNROLLED

    @property
    def interleaved(self) -> bool:
        """True if an iteration has several boxes of an operand, alternating along the tiled axis."""
        return self.kind == INTERLEAVED

    @property
    def depth(self) -> int:
        """Products of an iteration's dot."""
        return self.size * (self.together.extent if self.interleaved and self.together else 1)

    @cached_property
    def sides(self) -> dict[str, int]:
        """Positions of a tile along every axis, unless it is a range."""
        box = self._sides if self.boxed else None
        if box is None:
            several = {x.name: padded(x.extent) for x in (self.together,) if x}
            own = {self.tiled.name: self.size // (math.prod(several.values()) if self.joined else 1)}
            return {x.name: 1 for x in self.axes} | several | own
        return {x.name: side for x, side in zip(self.axes, box, strict=True)}

    @property
    def _sides(self) -> tuple[int, ...] | None:
        return box_of(tuple(x.extent for x in self.axes), self.size, self.kind, self.summed)

    @property
    def extents(self) -> dict[str, int]:
        """Positions of a tile along every axis; those of a range count along the tiled one.

        Alternating values are neighbours along the axis of these.
        """
        alternating = {self.together.name: self.depth} if self.interleaved and self.together else {}
        return {self.tiled.name: self.size} if self.ranged else {**self.sides, **alternating}

    @property
    def counts(self) -> dict[str, int]:
        """Number of tiles along every axis of which grids have a variable."""
        if self.ranged:
            return {self.tiled.name: self.steps}
        return {x.name: -(-x.extent // self.sides[x.name]) for x in self.axes} | self._count_of_segments

    @property
    def _count_of_segments(self) -> dict[str, int]:
        """The most tiles that segments can have: one position in each that has any, and all others in the first."""
        found = min(self.cuts + 1, self.tiled.extent)
        return {self.tiled.name: (self.tiled.extent - found) // self.size + found} if self.cuts else {}

    @property
    def positions(self) -> int:
        """Number of positions along which tiles lie."""
        return math.prod(x.extent for x in self.axes) if self.ranged else self.tiled.extent

    @property
    def count(self) -> int:
        """Number of tiles; along the tiled axis alone, if there are loops or axes of the grid for the others."""
        if self.in_one_loop:
            return math.prod(size for _, size in self.digits)
        return self.steps if self.ranged else self.counts[self.tiled.name]

    @property
    def reaches(self) -> bool:
        """True if some tiles reach beyond the end of an axis."""
        if self.ranged:
            return self.positions % self.size != 0
        return any(x.extent % self.sides[x.name] for x in self.axes if x != self.together)

    @property
    def steps(self) -> int:
        return -(-self.positions // self.size)

    @property
    def digits(self) -> tuple[tuple[str, int], ...]:
        """Variables of boxes and their extents, if one loop is over all of them."""
        outer = (x for x in self.axes if x != self.tiled)
        return tuple((self._variable(x), self.counts[x.name]) for x in (*outer, self.tiled))

    def _variable(self, axis: Axis) -> str:
        """The variable that counts tiles along an axis: a digit, if one loop is over all of them."""
        return f"{axis.name}.{int(self.summed and axis == self.tiled)}"

    @property
    def outermost(self) -> Axis:
        """The axis whose end a tile may reach beyond."""
        return self.axes[0] if self.ranged else self.tiled

    @property
    def others(self) -> tuple[Axis, ...]:
        """The axes of which a tile has one position."""
        return () if self.ranged or self.boxed else tuple(x for x in self.axes if x != self.tiled)

    def place(self, start: Affine) -> dict[str, Slice]:
        """Slices of a tile along every axis of which it has several positions; a box has a start of its own."""
        name = self.tiled.name
        if self.boxed:
            return self._box
        if not self.ranged:
            return {name: Slice(start, self.sides[name], name)}
        place, divisor = dict[str, Slice](), self.positions
        for x in self.axes:
            divisor //= x.extent
            flat = Flat(start, divisor, 0 if x == self.axes[0] else x.extent)
            place[x.name] = Slice(start_of(), self.size, name, flat=flat)
        return place

    @property
    def _box(self) -> dict[str, Slice]:
        place, divisor = dict[str, Slice](), self.size
        for x in self.axes:
            positions = self.sides[x.name]
            divisor //= positions
            start, flat = start_of((self._variable(x), positions)), Flat(start_of(), divisor, positions)
            place[x.name] = side(start, self.size, self.tiled.name, flat)
        return place

    def why_no_box(self) -> str | None:
        """Reason that there are no boxes of this size, if tiles are boxes; or None."""
        if not self.boxed or self._sides:
            return None
        whole = " that divides the axes" * self.summed
        return (
            f"there is no {self.kind} of {self.size} positions of {' x '.join(str(x.extent) for x in self.axes)}{whole}"
        )


def place_of_windows(form: Contraction, place: Mapping[str, Slice], access: Access) -> dict[str, Slice]:
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
    cut, cuts = form.cuts
    kind = str(values.get(f"{name}_axes", BOX))
    return ClassTiles(axes, tiled, tiling[-1], kind, name == "k", cuts if cut == tiled.name else 0)


def class_positions(form: Contraction, name: str, ranged: bool) -> int:
    """Number of positions of a class along which its tiles lie, as ranges or as boxes."""
    axes, tiled = form.classes[name]
    return ClassTiles(axes, tiled, 1, RANGE if ranged else BOX).positions


def may_range(form: Contraction, name: str) -> bool:
    """True if tiles of a class may be ranges of several axes, next to boxes of the other classes."""
    return len(form.classes[name][0]) > 1 and why_not_ranged(form, {name: True}) is None


def why_not_ranged(form: Contraction, ranged: Mapping[str, bool], boxed: Collection[str] = ()) -> str | None:
    """Reason that slices cannot express operands with these classes as ranges, and others as boxes, or None."""
    several = {*boxed, *(name for name, one in ranged.items() if one)}
    if "k" in several and form.is_scaled:
        return "dots are scaled at one position of every reduced axis but the tiled one"
    tiled = [x.name for name, (axes, one) in form.classes.items() for x in axes if name in several or x == one]
    read = dict.fromkeys(a for side in form.operands for e in side for a in accesses(e))
    if reason := next((reason for a in read if (reason := why_not_sliced(a, tiled))), None):
        return reason
    if any(variables(x.number) & {*tiled} for x in form.looked_up):
        return "tiles of an operand are looked up at one position of every axis that their places depend on"
    counted = max(class_positions(form, name, one) for name, one in ranged.items())
    if counted > LARGEST_OFFSET - LONGEST:
        return f"a range of {counted} positions; GPUs count at most {LARGEST_OFFSET} in 32 bits"
    ends = not ranged.get("k") or form.ends_with(form.reduced[0])
    return None if ends else f"operands of {form.dtype} go on beyond the end of {form.reduced[0].name}"


def together_axis(axes: Sequence[Axis], tiled: Axis) -> Axis | None:
    """The innermost axis besides the tiled one, if there is one."""
    return next((x for x in reversed(axes) if x != tiled), None)


def fits(size: int, positions: int) -> bool:
    """True if a tile exceeds this many positions by less than a whole smaller tile."""
    return size < 2 * positions
