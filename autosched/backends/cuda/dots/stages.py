"""Tiles in shared memory for dots: rows of 16-byte chunks, placed so that eight neighbours cover all banks.

swizzled    chunk c of row r is at c ^ (r % 8), for rows of 128 bytes        ldmatrix reads eight rows at once
padded      rows are an odd number of chunks                                 single elements and vectors are read
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autosched.backends.backend import CompileError
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import dtype

CHUNK = 16
# Chunks that together cover all banks (CUDA programming guide, shared memory: 32 banks of four bytes).
_BANKS = 8


@dataclass(frozen=True)
class Stage:
    """Layout of a tile of two axes in shared memory: rows along the first, their neighbours along the second."""

    axes: tuple[str, str]
    shape: tuple[int, int]
    element_bytes: int
    swizzled: bool

    @staticmethod
    def of(tile: Tile, fastest: str, swizzled: bool) -> Stage:
        others = [x for x in tile.axes if x != fastest]
        if len(others) != 1:
            axes = ", ".join(tile.axes)
            raise CompileError(f"{tile.name} is multiplied, and has the axes {axes}; expected two different ones")
        (slower,) = others
        shape = (tile.extent(slower), tile.extent(fastest))
        return Stage((slower, fastest), shape, dtype(tile.dtype).bytes, swizzled)

    @property
    def chunks(self) -> int:
        """Chunks of a row with elements."""
        return -(-self.shape[1] * self.element_bytes // CHUNK)

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next."""
        return CHUNK * (self.chunks if self.swizzled else self.chunks | 1)

    @property
    def bytes(self) -> int:
        return self.shape[0] * self.pitch

    def chunk(self, row: str, chunk: str) -> str:
        """Place of a chunk of a row, in bytes; both are given as C expressions that bind as tightly as a product."""
        turned = math.gcd(self.chunks, _BANKS)
        if not self.swizzled or turned == 1:
            return f"{row} * {self.pitch} + {chunk} * {CHUNK}"
        turn = row if turned == _BANKS else f"{row} / {_BANKS // turned}"
        return f"{row} * {self.pitch} + ({chunk} ^ {turn} % {turned}) * {CHUNK}"

    def element(self, row: str, column: str) -> str:
        """Place of an element, in bytes."""
        size = self.element_bytes
        if not self.swizzled or math.gcd(self.chunks, _BANKS) == 1:
            return f"{row} * {self.pitch} + {column} * {size}" if size > 1 else f"{row} * {self.pitch} + {column}"
        held = CHUNK // size
        inner = f"{column} % {held} * {size}" if size > 1 else f"{column} % {held}"
        return f"{self.chunk(row, f'({column} / {held})')} + {inner}"
