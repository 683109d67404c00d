"""Tiles in shared memory as TMA writes and the dots of warp groups read them: rows of up to 128 bytes, swizzled.

A tile with longer rows is cut into pieces along them, one after the other in memory:

    128 x 128 bfloat16, rows along k        piece 0: 128 rows of k 0 … 63; piece 1: 128 rows of k 64 … 127

(PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"; CUDA driver API, cuTensorMapEncodeTiled.)
"""

from __future__ import annotations

from dataclasses import dataclass

# Widths in bytes of rows whose banks the hardware permutes: the driver's CUtensorMapSwizzle and the layout type of a
# matrix descriptor (PTX ISA, "Matrix Descriptor Format"), by width.
_SWIZZLES = {128: (3, 1), 64: (2, 2), 32: (1, 3)}
# Rows of an atom: the permutation's period, aligned to its own size.
_ATOM_ROWS = 8
# Alignment of an operand in bytes: a whole atom of the widest rows.
ALIGNMENT = 1024
# Bytes along the reduction that one dot instruction multiplies (PTX ISA, wgmma.mma_async: k16 of 16 bits).
STEP_BYTES = 32


@dataclass(frozen=True)
class SharedTile:
    """`lines` lines of `neighbours` elements of `element_bytes` that are neighbours in memory.

    >>> SharedTile(128, 64, 2).pieces
    1
    """

    lines: int
    neighbours: int
    element_bytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a piece's row: the widest swizzled row that divides a line; 0 if none does."""
        return next((width for width in _SWIZZLES if self.neighbours * self.element_bytes % width == 0), 0)

    @property
    def row(self) -> int:
        """Elements of a row of a piece."""
        return self.row_bytes // self.element_bytes

    @property
    def pieces(self) -> int:
        return self.neighbours // self.row

    @property
    def piece_bytes(self) -> int:
        return self.lines * self.row_bytes

    @property
    def bytes(self) -> int:
        return self.lines * self.neighbours * self.element_bytes

    @property
    def room(self) -> int:
        """Its bytes, rounded up to the alignment of the next tile."""
        return -(-self.bytes // ALIGNMENT) * ALIGNMENT

    @property
    def swizzle(self) -> int:
        """The driver's CUtensorMapSwizzle, by number."""
        return _SWIZZLES[self.row_bytes][0]


@dataclass(frozen=True)
class SharedOperand:
    """An operand of dots in shared memory: `positions` rows or columns of `depth` products each."""

    positions: int
    depth: int
    element_bytes: int
    along_k: bool

    @property
    def tile(self) -> SharedTile:
        lines, neighbours = (self.positions, self.depth) if self.along_k else (self.depth, self.positions)
        return SharedTile(lines, neighbours, self.element_bytes)

    @property
    def steps(self) -> int:
        """Dot instructions along the reduction."""
        return self.depth * self.element_bytes // STEP_BYTES

    def offset(self, step: int, position: int = 0) -> int:
        """Offset in bytes of a dot instruction's operand; `position` is a multiple of an atom's."""
        tile = self.tile
        if self.along_k:
            piece, within = divmod(step * STEP_BYTES, tile.row_bytes)
            return piece * tile.piece_bytes + position * tile.row_bytes + within
        lines = step * STEP_BYTES // self.element_bytes
        return position // tile.row * tile.piece_bytes + lines * tile.row_bytes

    @property
    def descriptor(self) -> int:
        """The matrix descriptor of an operand at address 0.

        Bits 32 to 45 hold the distance of neighbouring atoms, along positions or along k, and 16 to 29 that of
        neighbouring pieces, which only operands that do not run along k have, both in units of 16 bytes.
        """
        tile = self.tile
        atoms = _ATOM_ROWS * tile.row_bytes
        pieces = 16 if self.along_k else tile.piece_bytes
        return _SWIZZLES[tile.row_bytes][1] << 62 | atoms >> 4 << 32 | pieces >> 4 << 16
