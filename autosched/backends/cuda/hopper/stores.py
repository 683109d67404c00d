"""Tiles from a warp group's registers to tensors: written to shared memory, swizzled, and copied from there by TMA.

Of several pieces one is written while the last is still read.
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.cuda.hopper.group_tiles import GroupTile
from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.cuda.language.types import memory_type
from autosched.backends.cuda.printer import KernelPrinter
from search_spaces.programs.roles.halves import HALF


@dataclass(frozen=True)
class GroupStores:
    """Prints the stores of a warp group.

    It has `slots` slots for pieces, of `slot_bytes` each; the first group's begin at byte `place` of shared memory.
    """

    place: int
    slots: int
    slot_bytes: int

    def write(self, stored: GroupTile, before: int, printer: KernelPrinter, map_name: str) -> None:
        """Store a tile; `before`: pieces that earlier stores of the same output tile have written."""
        block = printer.block
        held = printer.exchange.as_in(printer.tiles[stored.tile.name], stored.layout)
        down, across = (held.apart(x) for x in stored.axes)
        open_braces(block, stored.loop)
        own = scaled(printer.indexing.variable(HALF), self.slots * self.slot_bytes)
        slot = scaled(self._slot(stored, before), self.slot_bytes)
        block.write(f"const int to = {sum_of(str(self.place), own, slot)};")
        block.write(f"if (thread == 0) {self._emptied(stored, before)};")
        block.write("group_meets(half);")
        block.write(_written(stored, stored.first(held.name, down, across), down, across))
        block.write("stores_see_shared();")
        block.write("group_meets(half);")
        open_braces(block, "if (thread == 0)")
        block.write(call("store_tile", map_name, "shared_at + to", *stored.starts(printer.indexing)) + ";")
        block.write("stores_issued();")
        block.close()
        block.close()

    def _slot(self, stored: GroupTile, before: int) -> str:
        """The slot of the piece `piece`; pieces use the slots in rotation."""
        first = before % self.slots
        if stored.pieces == 1 or self.slots == 1:
            return str(first)
        return f"{'(piece + 1)' if first else 'piece'} % {self.slots}"

    def _emptied(self, stored: GroupTile, before: int) -> str:
        """Wait until the piece's slot has been read. The first piece may use the slot of the last tile's last piece."""
        if self.slots == 1 or (before == 0 and stored.pieces == 1):
            return "stores_read<0>()"
        return "stores_read<1>()" if before else "piece ? stores_read<1>() : stores_read<0>()"


def _written(stored: GroupTile, first: str, down: int, across: int) -> str:
    name, to = ("write_rows", "shared_at + to") if stored.packed else ("write_elements", "shared + to")
    columns = stored.piece.lines if stored.transposed else stored.piece.neighbours
    sizes: tuple[int, ...] = (stored.rows, columns, down, across)
    if stored.transposed:
        name, sizes = "write_columns", sizes[1:]
    types = ", ".join(map(str, (memory_type(stored.buffer.dtype), *sizes)))
    return call(f"{name}<{types}>", to, first, "warp", "lane") + ";"
