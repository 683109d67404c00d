"""Tiles that an epilogue reads, loaded by the producer like operands, once for every tile of the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autosched.backends.cuda.hopper.group_tiles import GroupTile
from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.cuda.language.types import memory_type
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.gpu.kernel import TensorMap
from search_spaces.programs.roles.halves import HALF
from search_spaces.programs.statements import Load


@dataclass(frozen=True)
class Extras:
    """The tiles that the producer loads for the epilogue, by the number of the load there.

    Each group has a place for all of them, and two barriers: full and empty. `place`: the first group's, in bytes of
    shared memory.
    """

    groups: int
    tiles: Mapping[int, GroupTile]
    place: int

    @property
    def group_bytes(self) -> int:
        """Bytes of shared memory for one warp group."""
        return sum(t.pieces * t.piece.room for t in self.tiles.values())

    @property
    def expected(self) -> int:
        return sum(t.pieces * t.piece.bytes for t in self.tiles.values())

    def open_groups(self, printer: KernelPrinter, alternating: bool) -> None:
        """Open the scope for the slots of each group, or of the one that has this tile."""
        block, half = printer.block, printer.indexing.variable(HALF)
        if alternating:
            open_braces(block, "")
            block.write(f"const int {half} = extra_tile % 2, extra_parity = extra_tile / 2 & 1;")
        else:
            open_braces(block, f"for (int {half} = 0; {half} < {self.groups}; ++{half})")
            block.write("const int extra_parity = extra_tile & 1;")

    def acquire(self, printer: KernelPrinter) -> None:
        half = printer.indexing.variable(HALF)
        printer.block.write(f"barrier_wait(extras_empty + 8 * {half}, extra_parity ^ 1);")
        printer.block.write(f"barrier_expect(extras_full + 8 * {half}, {self.expected});")

    def copy(self, load: Load, printer: KernelPrinter, maps: Mapping[TensorMap, str]) -> None:
        block, half = printer.block, printer.indexing.variable(HALF)
        number, tile = next((n, t) for n, t in self.tiles.items() if t.tile == load.dst)
        open_braces(block, tile.loop)
        to = sum_of("shared_at", self._at(number, half))
        starts = tile.starts(printer.indexing)
        block.write(call("load_tile", to, maps[tile.map], f"extras_full + 8 * {half}", *starts) + ";")
        block.close()

    def read(self, number: int, printer: KernelPrinter) -> None:
        """Print the numbered load of the epilogue, as reads of its copy in shared memory."""
        block, tile, half = printer.block, self.tiles[number], printer.indexing.variable(HALF)
        target = printer.tiles.declare(tile.tile)
        apart = all(target.layout[x] == tile.layout[x] for x in tile.axes)
        held = target if apart else printer.tiles.temporary(tile.tile, f"{target.name}_brought", tile.layout)
        down, across = (held.apart(x) for x in tile.axes)
        name, columns = ("read_columns", tile.piece.lines) if tile.transposed else ("read_rows", tile.piece.neighbours)
        sizes = (columns, down, across) if tile.transposed else (tile.rows, columns, down, across)
        types = ", ".join(map(str, (memory_type(tile.buffer.dtype), *sizes)))
        open_braces(block, tile.loop)
        at = sum_of("shared", self._at(number, half))
        block.write(call(f"{name}<{types}>", tile.first(held.name, down, across), at, "warp", "lane") + ";")
        block.close()
        if held is not target:
            printer.exchange.move(held, target)

    def _at(self, number: int, half: str) -> str:
        """Offset of the piece with the index `piece`."""
        tile = self.tiles[number]
        before = sum(t.pieces * t.piece.room for n, t in self.tiles.items() if n < number)
        piece = scaled("piece" if tile.pieces > 1 else "0", tile.piece.room)
        return sum_of(str(self.place + before), scaled(half, self.group_bytes), piece)
