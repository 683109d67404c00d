"""Vectors of an operand on their way through shared memory, in the order in which lanes multiply them.

    copy_ahead<16>(shared_at + … + (warp * 4 + v) * 1024 + j * 512 + lane * 16, large_at + …);      iterations ahead
    wait_ahead<2>();                                                               all but two of them are there
    load_words<16>(large_words + …, shared + … + (warp * 4 + v) * 1024 + j * 512 + lane * 16);

Registers can be loaded one iteration ahead: a thread waits for all of its loads at once. Copies are waited for in their
order. Lanes have vectors of their own, so that neighbours read neighbours, and no warp waits for another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autosched.backends.cuda.language.index import grouped, scaled, sum_of
from autosched.backends.cuda.language.iterations import Iterations
from autosched.backends.cuda.language.scope import call
from autosched.backends.cuda.memory.moves import Move
from autosched.backends.cuda.memory.places import Place
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.layouts import Digit, Layout, registers, thread_digit
from autosched.backends.gpu.warps import WARP
from search_spaces.devices.lanes import LOAD_BYTES
from search_spaces.programs.addressing import address
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import Buffer
from search_spaces.workloads.dtypes import dtype


@dataclass(frozen=True)
class SharedVectors:
    """A load whose elements of one iteration after another have `slots` places in shared memory, `begin` bytes on.

    `layout`: that in which lanes multiply it, each warp elements of its own; its axes are those of the parts, of `own`
    positions and of `k`.
    """

    load: Load
    own: str
    k: str
    layout: Layout
    slots: int
    begin: int
    buffer: Buffer

    @property
    def vector(self) -> int:
        """Elements of a vector."""
        return min(self.layout[self.k][0].size, LOAD_BYTES // self._size)

    @property
    def vector_bytes(self) -> int:
        return self.vector * self._size

    @property
    def bytes(self) -> int:
        return self.slots * self.load.dst.bytes

    @property
    def _size(self) -> int:
        return dtype(self.load.dst.dtype).bytes

    def _move(self, place: Place, printer: KernelPrinter) -> Move:
        place, at = replace(place, axis=self.k, vector=self.vector), printer.tiles.at(self.load.dst.axes, self.layout)
        return Move(self.load.dst, self.buffer, self.layout, place, at)

    def copy(self, at: str, turns: Iterations, printer: KernelPrinter) -> None:
        """Issue the copies of an iteration to its slot."""
        place = printer.places.place(address(self.buffer, self.load.slices, printer.indexing.extents), self.layout)
        move = self._move(place, printer)
        to = self._place(at, move, turns, printer)
        inside = [" && ".join(place.tests)] if place.tests else []
        copied = call(f"copy_ahead<{self.vector_bytes}>", f"shared_at + {to}", printer.memory.pointer(move), *inside)
        printer.memory.each_vector(move, [f"{copied};"])

    def take(self, words: str, load: str, at: str, turns: Iterations, printer: KernelPrinter) -> None:
        """Load an iteration's words to registers, by the function `load`."""
        move = self._move(Place("", "", (), "", 1), printer)
        to = f"{words} + {grouped(move.index)} / {4 // self._size}"
        source = self._place(at, move, turns, printer)
        printer.memory.each_vector(move, [call(f"{load}<{self.vector_bytes}>", to, f"shared + {source}") + ";"])

    def _place(self, at: str, move: Move, turns: Iterations, printer: KernelPrinter) -> str:
        """Bytes from the start of shared memory to a lane's vector."""
        vectors, row = registers(self.layout[self.k]) // self.vector, WARP * self.vector_bytes
        warps = printer.warps
        warp = [scaled(grouped(thread_digit(Digit("warp", warps), warps)), vectors)] if warps > 1 else []
        count = sum_of(*warp, f"{grouped(move.at[self.k])} / {self.vector}")
        return sum_of(
            at,
            *([str(self.begin)] if self.begin else []),
            *([f"{turns.counter} % {self.slots} * {self.load.dst.bytes}"] if self.slots > 1 else []),
            scaled(grouped(count), registers(self.layout[self.own]) * row),
            scaled(grouped(move.at[self.own]), row),
            f"lane * {self.vector_bytes}",
        )
