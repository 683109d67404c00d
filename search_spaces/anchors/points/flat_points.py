"""Several axes of points as one (fused loops): tiles of whole vectors from as many rows as needed.

Before:  grid r.0 in 260/4, c.0 in 1: out[r.0*4 : +4, 0 : +512] = …         half of the 512 columns are no points
After:   grid f.0 in 260*65/1024: out[f.0*4096 : +4096] = … at row f // 65 and columns (f % 65)*4 to (f % 65)*4 + 3

Also called fusing loops. Of rows and columns where an expression selects among reads: there a division costs more than
the saved padding unless rows are no whole tiles. Of all axes where neighbours along others than the last share what
they read: a thread has a vector of the last one, as of channels, and unrolled positions of the others, as of an image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from search_spaces.anchors.points.tiled_axes import TiledAxes
from search_spaces.decisions.tiles.class_axes import FLAT_SIZES
from search_spaces.programs.addressing import LARGEST_OFFSET
from search_spaces.programs.grid import GridAxis
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Flat, Slice
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import why_not_sliced
from search_spaces.workloads.expressions.walking import distinct_accesses, gathers
from search_spaces.workloads.workload import MAX_EXTENT, Axis

# Multiples of these columns fill tiles.
_WHOLE_TILES = 64


def flat_axes(structure: Structure, axes: TiledAxes, selects: bool) -> tuple[Axis, ...]:
    """The axes that may be one, the outermost first; none if they may not. `selects`: reads are selected."""
    if selects:
        return () if why_not_flat(structure, axes.row, axes.column) else (axes.row, axes.column)
    shared = any(x != axes.column for x in axes.shared.values()) and axes.column not in axes.shared.values()
    return () if not shared or why_not_one(structure) else structure.parallel


def why_not_flat(structure: Structure, row: Axis, column: Axis) -> str | None:
    """Reason that rows and columns are not one axis in memory in every output, or that it saves nothing; or None."""
    if row.extent == 1 or column.extent % _WHOLE_TILES == 0:
        return f"columns of {column.extent} in {row.extent} rows fill tiles"
    if row.extent * column.extent > MAX_EXTENT:
        return f"{row.extent} rows of {column.extent} columns are no axis; expected at most {MAX_EXTENT} positions"
    for stage, tensor in zip(structure.outputs, structure.workload.outputs, strict=True):
        if stage.axes[-2:] != (row, column):
            return f"{stage.name} does not end with {row.name} and {column.name}"
        if tensor.effective_strides[-2:] != (column.extent, 1):
            return f"{stage.name} has gaps between its rows"
    return None


def why_not_one(structure: Structure) -> str | None:
    """Reason that slices cannot express all parallel axes as one, or None."""
    count, names = math.prod(x.extent for x in structure.parallel), [x.name for x in structure.parallel]
    if count > LARGEST_OFFSET - max(FLAT_SIZES):
        return f"{count} points; GPUs count at most {LARGEST_OFFSET} in 32 bits"
    for stage in (*structure.outputs, *structure.folds):
        body = structure.body_of(stage)
        if stage.axes != structure.parallel or gathers(body):
            return f"{stage.name} has other axes, or looks positions up"
        if reason := next((r for a in distinct_accesses(body) if (r := why_not_sliced(a, names))), None):
            return reason
    return None


@dataclass(frozen=True)
class FlatPoints:
    """A tile of `vectors` vectors of these axes, the last of which is the column.

    `widths`: unrolled positions of an axis. With `merges`, those of the column are a vector and divide the columns, and
    stores have the last two axes as one.
    """

    axes: tuple[Axis, ...]
    vectors: int
    widths: Mapping[str, int]
    merges: bool

    @property
    def column(self) -> Axis:
        return self.axes[-1]

    @property
    def grid(self) -> GridAxis:
        return GridAxis(f"{self.column.name}.0", -(-math.prod(map(self._groups, self.axes)) // self.vectors))

    @property
    def place(self) -> Mapping[str, Slice]:
        """Slices of the computed points along every axis, counted before unrolling."""
        start, name, divisor = Affine.of((self.grid.variable, self.vectors)), self.column.name, 1
        place: dict[str, Slice] = {}
        for x in reversed(self.axes):
            # The outermost digit has all that is left.
            flat = Flat(start, divisor, 0 if x == self.axes[0] else self._groups(x))
            place[x.name] = Slice(Affine(), self.vectors * self.widths.get(x.name, 1), name, flat=flat)
            divisor *= self._groups(x)
        return dict(reversed(place.items()))

    def _groups(self, axis: Axis) -> int:
        """Number of groups of unrolled positions."""
        return -(-axis.extent // self.widths.get(axis.name, 1))

    @property
    def merged(self) -> str:
        """The axis whose dimension in outputs is one with that of the columns; "" for none."""
        return self.axes[-2].name if self.merges else ""

    @property
    def stored(self) -> Slice | None:
        """Slice of the stores, in buffers whose rows and columns are one dimension; None without such."""
        if not self.merged:
            return None
        points = self.vectors * self.widths.get(self.column.name, 1)
        return Slice(Affine.of((self.grid.variable, points)), points, self.column.name)

    def buffer(self, buffer: Buffer) -> Buffer:
        """An output with rows and columns as one dimension where stores have them so; any other buffer as it is."""
        if buffer.role != "output" or not self.merged:
            return buffer
        *outer, rows, columns = buffer.shape
        strides = buffer.declared_strides
        return replace(
            buffer,
            shape=(*outer, rows * columns),
            declared_strides=None if strides is None else (*strides[:-2], strides[-1]),
        )
