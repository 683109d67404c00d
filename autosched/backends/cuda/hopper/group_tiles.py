"""Tiles of a warp group that TMA moves: in pieces of swizzled rows in shared memory, which are rows of memory.

acc (m 128, n 256) bfloat16      4 pieces of 128 rows of 64 columns, 16 KiB each
acc (n 64, m 192), swapped       3 pieces of 64 columns, each a row of 64 elements: transposed
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.cuda.hopper import instructions
from autosched.backends.cuda.hopper.shared_tiles import SharedTile
from autosched.backends.cuda.language.index import Indexing, scaled, sum_of
from autosched.backends.cuda.language.types import element_bytes
from autosched.backends.cuda.registers.layouts import Layout, warp_mma_columns, warp_mma_rows
from autosched.backends.gpu.arguments import described, descriptor
from autosched.backends.gpu.kernel import TensorMap
from autosched.backends.gpu.warps import GROUP_ROWS, WARP_GROUP
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Slice, Tile, sliced
from search_spaces.workloads.expressions.affine import Affine

# Largest number of columns of a transposed piece, and their granularity: the matrices of one instruction.
_MOST_COLUMNS = 64
_COLUMNS = 16


def group_layout(tile: Tile, axes: tuple[str, ...]) -> Layout:
    """Layout of an accumulator tile in a warp group, with these axes as rows and columns."""
    rows, columns = axes
    return {rows: warp_mma_rows(tile.extent(rows), WARP_GROUP), columns: warp_mma_columns(tile.extent(columns))}


@dataclass(frozen=True)
class GroupTile:
    """A tile of a warp group, whose rows and columns are `axes`, and its place in a buffer."""

    tile: Tile
    axes: tuple[str, ...]
    buffer: Buffer
    slices: tuple[Slice, ...]

    @property
    def rows(self) -> int:
        return self.tile.extent(self.axes[0])

    @property
    def columns(self) -> int:
        return self.tile.extent(self.axes[1])

    @property
    def layout(self) -> Layout:
        return group_layout(self.tile, self.axes)

    @property
    def transposed(self) -> bool:
        """True if the rows are contiguous in memory."""
        return [*sliced(self.slices)][-1] == self.axes[0]

    @property
    def packed(self) -> bool:
        """True if instructions on matrices of 16-bit numbers can move it."""
        return self.buffer.dtype in instructions.PACKED and self.columns % _COLUMNS == 0

    @property
    def by_pieces(self) -> bool:
        """True if it goes through shared memory in pieces; otherwise by pointers."""
        size = element_bytes(self.buffer.dtype)
        return self.packed or (not self.transposed and SharedTile(1, self.columns, size).row_bytes > 0)

    @property
    def piece(self) -> SharedTile:
        """The shape of its equal pieces."""
        size = element_bytes(self.buffer.dtype)
        if self.transposed:
            fitting = [x for x in range(_COLUMNS, _MOST_COLUMNS + 1, _COLUMNS) if self.columns % x == 0]
            return SharedTile(fitting[-1], GROUP_ROWS, size)
        return SharedTile(self.rows, SharedTile(1, self.columns, size).row, size)

    @property
    def pieces(self) -> int:
        return self.tile.elements // (self.piece.lines * self.piece.neighbours)

    @property
    def map(self) -> TensorMap:
        """The tensor map of a piece.

        Raises:
            CompileError: the hardware cannot describe it.
        """
        piece, buffer = self.piece, self.buffer
        extents = dict(zip(sliced(self.slices), (piece.lines, piece.neighbours), strict=True))
        found = descriptor(buffer, tuple(p.part(Affine(), extents[p.axis]) if p.axis else p for p in self.slices))
        return TensorMap(buffer.name, buffer.dtype, found.shape, found.strides, found.block, piece.swizzle, False)

    def starts(self, indexing: Indexing) -> list[str]:
        """Coordinates of the piece `piece` in the tensor, innermost first."""
        lines = scaled(self._column if self.transposed else "0", self.piece.lines)
        neighbours = scaled(self._row if self.transposed else self._column, self.piece.neighbours)
        moved = dict(zip(sliced(self.slices), (lines, neighbours), strict=True))
        starts = [
            sum_of(indexing.affine(p.start), _digit(p, moved.get(p.axis, "0")))
            for p in described(self.buffer, self.slices)
        ]
        return starts[::-1]

    def first(self, name: str, down: int, across: int) -> str:
        """Pointer to a thread's first register of the piece `piece`.

        `down`, `across`: registers between neighbouring rows and columns of the tile.
        """
        columns = self.piece.lines if self.transposed else self.piece.neighbours
        rows = scaled(self._row, 2 * down) if self.transposed else "0"
        return sum_of(name, rows, scaled(self._column, columns // 4 * across))

    @property
    def loop(self) -> str:
        """The header of the loop over the pieces; empty for a single one."""
        several = f"#pragma unroll\nfor (int piece = 0; piece < {self.pieces}; ++piece)"
        return several if self.pieces > 1 else ""

    @property
    def _across(self) -> int:
        """Number of transposed pieces next to each other."""
        return self.columns // self.piece.lines

    @property
    def _row(self) -> str:
        """Row index of the transposed piece `piece`."""
        return "0" if self.pieces == self._across else f"piece / {self._across}" if self._across > 1 else "piece"

    @property
    def _column(self) -> str:
        """Column index of the piece `piece`."""
        if not self.transposed:
            return "piece" if self.pieces > 1 else "0"
        return "0" if self._across == 1 else "piece" if self.pieces == self._across else f"piece % {self._across}"


def _digit(piece: Slice, positions: str) -> str:
    """Movement of a slice by so many positions of its axis: by a digit of them along a side of a box."""
    return positions if positions == "0" or not piece.flat else f"{positions} {piece.flat.text('/')}"
