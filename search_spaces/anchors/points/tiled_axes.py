"""Axes of pointwise tiles: the last two, and more if these are short or reads are transposed.

out[b, s, i, p] with p in 2, i in 64        a tile of 2 x 64 points is short: s is its third axis
out[b, i, m, j] = x[b, m, j, i]             neighbours of x are along i, which is the third axis
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces.anchors.points.unrolling import is_shared
from search_spaces.schedules.knobs import padded
from search_spaces.structure.axes import Structure
from search_spaces.structure.reads.memory_walks import largest_walk, memory_walks
from search_spaces.workloads.expressions.walking import distinct_accesses
from search_spaces.workloads.workload import Axis

# Points of a tile that give every thread some vectors: a tile of whole axes with fewer takes a third one, and a
# fourth.
FEW_POINTS = 4096
# Fewest positions of tiles along a last axis, unless it is shorter.
LEAST_COLUMNS = 64
# Fewest positions of an axis that makes a short tile worth a third one.
_LONG = 16
NO_AXIS = Axis("", 1)


@dataclass(frozen=True)
class TiledAxes:
    """The axes of a tile; neighbours in the output lie along the column; `NO_AXIS` for none.

    `turned`: reads have neighbours along another one of them. `shared`: the axes along which neighbouring points share
    what they read, by what their unrolling is called. `flat`: the axes that may be one.
    """

    volume: Axis
    plane: Axis
    row: Axis
    column: Axis
    turned: bool
    shared: Mapping[str, Axis]
    flat: tuple[Axis, ...] = ()

    @property
    def tilings(self) -> Mapping[Axis, str]:
        """The names of the tilings of all these axes."""
        named = {self.volume: "volumes", self.plane: "planes", self.row: "rows", self.column: "columns"}
        return {x: name for x, name in named.items() if x != NO_AXIS}

    @property
    def short(self) -> bool:
        """True if other sizes than those of long rows pay."""
        return self.plane != NO_AXIS or self.column.extent < LEAST_COLUMNS


def tiled_axes(structure: Structure) -> TiledAxes:
    """The axes of a tile on a GPU; on a CPU, the last two.

    No two of them index one dimension of a tensor together: all points of a tile would need addresses of their own.
    """
    *others, column = structure.parallel
    row = next((x for x in reversed(others) if not _together(structure, x, column)), NO_AXIS)
    free = [x for x in others if x != row and not any(_together(structure, x, y) for y in (row, column))]
    near = _axis_of_neighbours(structure)
    plane = NO_AXIS
    if near in free:
        plane = near
    elif free and _are_few((row, column)):
        plane = next((x for x in reversed(free) if x.extent >= _LONG), free[-1])
    beside = [x for x in free if x != plane and not _together(structure, x, plane)]
    volume = beside[-1] if plane != NO_AXIS and beside and _are_few((plane, row, column)) else NO_AXIS
    turned = near in (plane, row) and near != NO_AXIS
    return TiledAxes(volume, plane, row, column, turned, _shared(structure, row, column))


def _shared(structure: Structure, row: Axis, column: Axis) -> Mapping[str, Axis]:
    """The axes along which neighbouring points share what they read: the column, and the last two others.

    The row is one of these; if it is not shared, as channels with several filters each, other axes are unrolled.
    """
    others = [x for x in structure.parallel if x != column and is_shared(structure, x)]
    rows = row if row in others else (others[-1] if others else NO_AXIS)
    rest = [x for x in others if x != rows]
    found = {"planes": rest[-1] if rest else NO_AXIS, "rows": rows, "columns": column}
    return {name: x for name, x in found.items() if x != NO_AXIS and (x != column or is_shared(structure, x))}


def _are_few(axes: Sequence[Axis]) -> bool:
    """True if a tile of all of these axes is too small to keep its threads busy."""
    return math.prod(padded(x.extent) for x in axes) < FEW_POINTS


def _together(structure: Structure, a: Axis, b: Axis) -> bool:
    """True if the axes index a dimension together."""
    forms = (i for s in structure.workload.stages for access in distinct_accesses(s.expression) for i in access.index)
    return any({a.name, b.name} <= {v for v, _ in form.terms} for form in forms)


def _axis_of_neighbours(structure: Structure) -> Axis:
    """The axis along which neighbours of the largest input are neighbours in memory."""
    walks = memory_walks(structure.workload)[: -len(structure.outputs)]
    walk = largest_walk(walks, structure.parallel)
    return min(walk, key=lambda x: (walk[x], x != structure.parallel[-1]), default=NO_AXIS)
