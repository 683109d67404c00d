"""Rows and columns of points as one axis (fused loops): tiles of whole vectors from as many rows as needed.

Before:  grid r.0 in 260/4, c.0 in 1: out[r.0*4 : +4, 0 : +512] = …         half of the 512 columns are no points
After:   grid f.0 in 260*65/1024: out[f.0*4096 : +4096] = … at row f // 65 and columns (f % 65)*4 to (f % 65)*4 + 3

Also called fusing two loops. A division costs more than the saved padding unless rows are no whole tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from search_spaces.programs.grid import GridAxis
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Flat, Slice
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.workload import MAX_EXTENT, Axis

# Multiples of these columns fill tiles.
_WHOLE_TILES = 64


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


@dataclass(frozen=True)
class FlatRows:
    """A tile of `vectors` vectors, each of `width` columns, which divide the rows."""

    row: Axis
    column: Axis
    vectors: int
    width: int

    @property
    def _in_row(self) -> int:
        return self.column.extent // self.width

    @property
    def grid(self) -> GridAxis:
        return GridAxis(f"{self.column.name}.0", -(-self.row.extent * self._in_row // self.vectors))

    @property
    def place(self) -> Mapping[str, Slice]:
        """Slices of the computed rows and columns; columns are counted before unrolling."""
        start, name = Affine.of((self.grid.variable, self.vectors)), self.column.name
        return {
            self.row.name: Slice(Affine(), self.vectors, name, flat=Flat(start, self._in_row)),
            name: Slice(Affine(), self.vectors * self.width, name, flat=Flat(start, size=self._in_row)),
        }

    @property
    def stored(self) -> Slice:
        """Slice of the stores, in buffers whose rows and columns are one dimension."""
        points = self.vectors * self.width
        return Slice(Affine.of((self.grid.variable, points)), points, self.column.name)

    def buffer(self, buffer: Buffer) -> Buffer:
        """An output with rows and columns as one dimension; any other buffer as it is."""
        if buffer.role != "output":
            return buffer
        *outer, rows, columns = buffer.shape
        strides = buffer.declared_strides
        return replace(
            buffer,
            shape=(*outer, rows * columns),
            declared_strides=None if strides is None else (*strides[:-2], strides[-1]),
        )
