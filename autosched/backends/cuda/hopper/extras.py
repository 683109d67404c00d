"""Tiles that an epilogue reads, brought by the producer like operands, once for every tile of the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autosched.backends.cuda.hopper.group_tiles import GroupTile
from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.cuda.language.types import memory_type
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.gpu.kernel import TensorMap
from autosched.backends.gpu.specialized.form import DotForm
from autosched.backends.gpu.specialized.halves import HALF


@dataclass(frozen=True)
class Extras:
    """What is brought for the epilogue, by the number of its load there: every warp group has a place for all of it,
    and a barrier each that says that it is full, and that it is empty.

    `place`: where the first group's begin, in bytes of shared memory.
    """

    form: DotForm
    tiles: Mapping[int, GroupTile]
    place: int

    @property
    def group_bytes(self) -> int:
        """How much one warp group has."""
        return sum(t.pieces * t.piece.room for t in self.tiles.values())

    def bring(self, printer: KernelPrinter, maps: Mapping[TensorMap, str]) -> None:
        """Bring what the epilogue reads, after the operands: it is needed last, and its place free late."""
        block, half = printer.block, printer.indexing.variable(HALF)
        if self.form.alternating:
            open_braces(block, "")
            block.write(f"const int {half} = extra_tile % 2, extra_parity = extra_tile / 2 & 1;")
        else:
            open_braces(block, f"for (int {half} = 0; {half} < {self.form.groups}; ++{half})")
            block.write("const int extra_parity = extra_tile & 1;")
        block.write(f"barrier_wait(extras_empty + 8 * {half}, extra_parity ^ 1);")
        expected = sum(t.pieces * t.piece.bytes for t in self.tiles.values())
        block.write(f"barrier_expect(extras_full + 8 * {half}, {expected});")
        for number, tile in self.tiles.items():
            open_braces(block, tile.loop)
            to = sum_of("shared_at", self._at(number, half))
            starts = tile.starts(printer.indexing)
            block.write(call("load_tile", to, maps[tile.map], f"extras_full + 8 * {half}", *starts) + ";")
            block.close()
        block.close()
        block.write("++extra_tile;")

    def read(self, number: int, printer: KernelPrinter) -> None:
        """Print the load of that number: from where it was brought."""
        block, tile, half = printer.block, self.tiles[number], printer.indexing.variable(HALF)
        if number == min(self.tiles):
            block.write(f"barrier_wait(extras_full + 8 * {half}, extra_parity);")
            block.write("extra_parity ^= 1;")
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
        if number == max(self.tiles):
            block.write(f"barrier_arrive(extras_empty + 8 * {half});")

    def _at(self, number: int, half: str) -> str:
        """Where the piece called `piece` lies."""
        tile = self.tiles[number]
        before = sum(t.pieces * t.piece.room for n, t in self.tiles.items() if n < number)
        piece = scaled("piece" if tile.pieces > 1 else "0", tile.piece.room)
        return sum_of(str(self.place + before), scaled(half, self.group_bytes), piece)
