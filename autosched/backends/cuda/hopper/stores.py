"""Tiles from a warp group's registers to tensors: written to shared memory, swizzled, and copied from there by TMA.

A tile goes in pieces of swizzled rows, of which one is written while the last is still read; rows are those of memory:

    acc (m 128, n 256) bfloat16      4 pieces of 128 rows of 64 columns, 16 KiB
    acc (n 64, m 192), swapped       3 pieces of 64 columns, each a row of 64 elements, transposed on the way
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from autosched.backends.cuda.hopper import instructions
from autosched.backends.cuda.hopper.shared_tiles import SharedTile
from autosched.backends.cuda.language.index import Indexing, scaled, sum_of
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.cuda.language.types import element_bytes, memory_type
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.layouts import Layout, warp_mma_columns, warp_mma_rows
from autosched.backends.gpu.arguments import described, descriptor
from autosched.backends.gpu.kernel import TensorMap
from autosched.backends.gpu.specialized.halves import HALF
from search_spaces.devices.warps import GROUP_ROWS, WARP_GROUP
from search_spaces.programs.statements import Store
from search_spaces.programs.tile_program import TileProgram
from search_spaces.programs.tiles import Tile

# Columns of a transposed piece at most, and what they are multiples of: the matrices of one instruction.
_MOST_COLUMNS = 64
_COLUMNS = 16


def group_layout(tile: Tile, axes: tuple[str, ...]) -> Layout:
    """How a warp group holds a tile of sums whose rows and columns are these axes."""
    rows, columns = axes
    return {rows: warp_mma_rows(tile.extent(rows), WARP_GROUP), columns: warp_mma_columns(tile.extent(columns))}


@dataclass(frozen=True)
class StoredTile:
    """What a store by descriptor writes: a tile of one warp group, whose rows and columns are these axes."""

    store: Store
    tile: Tile
    axes: tuple[str, ...]
    element: str

    @property
    def rows(self) -> int:
        return self.tile.extent(self.axes[0])

    @property
    def columns(self) -> int:
        return self.tile.extent(self.axes[1])

    @property
    def transposed(self) -> bool:
        """Whether neighbours in memory are those along the rows."""
        return (self.store.axes or self.tile.axes)[-1] == self.axes[0]

    @property
    def packed(self) -> bool:
        """Whether matrices of 16-bit numbers are stored."""
        return self.element in instructions.PACKED and self.columns % _COLUMNS == 0

    @property
    def by_pieces(self) -> bool:
        """Whether it goes through shared memory in pieces; otherwise by pointers."""
        size = element_bytes(self.element)
        return self.packed or (not self.transposed and SharedTile(1, self.columns, size).row_bytes > 0)

    @property
    def piece(self) -> SharedTile:
        """One of the equal pieces that it goes in."""
        size = element_bytes(self.element)
        if self.transposed:
            fitting = [x for x in range(_COLUMNS, _MOST_COLUMNS + 1, _COLUMNS) if self.columns % x == 0]
            return SharedTile(fitting[-1], GROUP_ROWS, size)
        return SharedTile(self.rows, SharedTile(1, self.columns, size).row, size)

    @property
    def pieces(self) -> int:
        return self.tile.elements // (self.piece.lines * self.piece.neighbours)

    def map(self, program: TileProgram) -> TensorMap:
        """The tensor map by which pieces are stored.

        Raises:
            CompileError: the hardware cannot describe it.
        """
        piece, buffer = self.piece, program.buffer(self.store.buffer)
        extents = iter((piece.lines, piece.neighbours))
        boxed = [p if p.extent is None else dataclasses.replace(p, extent=next(extents)) for p in self.store.slices]
        found = descriptor(buffer, tuple(boxed))
        return TensorMap(buffer.name, buffer.dtype, found.shape, found.strides, found.block, piece.swizzle, False)

    def starts(self, program: TileProgram, indexing: Indexing) -> list[str]:
        """Where the piece called `piece` starts in the tensor, innermost first."""
        moved = iter(
            (
                scaled(self.piece_column if self.transposed else "0", self.piece.lines),
                scaled(self.piece_row if self.transposed else self.piece_column, self.piece.neighbours),
            )
        )
        buffer = program.buffer(self.store.buffer)
        starts = [
            sum_of(indexing.affine(p.start), next(moved) if p.extent is not None else "0")
            for p in described(buffer, self.store.slices)
        ]
        return starts[::-1]

    @property
    def piece_row(self) -> str:
        """Which of the pieces below each other it is that is called `piece`."""
        across = self.columns // self.piece.lines
        return "0" if self.pieces == across else f"piece / {across}" if across > 1 else "piece"

    @property
    def piece_column(self) -> str:
        """Which of the pieces side by side it is."""
        if not self.transposed:
            return "piece" if self.pieces > 1 else "0"
        across = self.columns // self.piece.lines
        return "0" if across == 1 else "piece" if self.pieces == across else f"piece % {across}"


@dataclass(frozen=True)
class GroupStores:
    """Prints the stores of a warp group, which has `slots` slots for pieces, of `slot_bytes` each; the first group's
    begin at byte `place` of shared memory."""

    program: TileProgram
    place: int
    slots: int
    slot_bytes: int

    def write(self, stored: StoredTile, printer: KernelPrinter, map_name: str) -> None:
        block, pieces = printer.block, stored.pieces
        layout = group_layout(stored.tile, stored.axes)
        held = printer.exchange.as_in(printer.tiles[stored.store.src], layout)
        down, across = held.apart(stored.axes[0]), held.apart(stored.axes[1])
        open_braces(block, f"#pragma unroll\nfor (int piece = 0; piece < {pieces}; ++piece)" if pieces > 1 else "")
        slots = self.slots if pieces > 1 else 1
        own = scaled(printer.indexing.variable(HALF), self.slots * self.slot_bytes)
        slot = scaled(f"piece % {slots}" if slots > 1 else "0", self.slot_bytes)
        block.write(f"const int to = {sum_of(str(self.place), own, slot)};")
        # Everything but the other slot has been read.
        block.write(f"if (thread == 0) stores_read<{slots - 1}>();")
        block.write("group_meets(half);")
        block.write(self._written(stored, held.name, down, across))
        block.write("stores_see_shared();")
        block.write("group_meets(half);")
        open_braces(block, "if (thread == 0)")
        block.write(
            call("store_tile", map_name, "shared_at + to", *stored.starts(self.program, printer.indexing)) + ";"
        )
        block.write("stores_issued();")
        block.close()
        block.close()

    def _written(self, stored: StoredTile, name: str, down: int, across: int) -> str:
        piece, element = stored.piece, memory_type(stored.element)
        columns = piece.lines if stored.transposed else piece.neighbours
        first = sum_of(
            name,
            scaled(stored.piece_row, 2 * down) if stored.transposed else "0",
            scaled(stored.piece_column, columns // 4 * across),
        )
        name, to = ("write_rows", "shared_at + to") if stored.packed else ("write_elements", "shared + to")
        sizes: tuple[int, ...] = (stored.rows, columns, down, across)
        if stored.transposed:
            name, sizes = "write_columns", sizes[1:]
        types = ", ".join(map(str, (element, *sizes)))
        return call(f"{name}<{types}>", to, first, "warp", "lane") + ";"
