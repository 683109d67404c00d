"""Vectors of operands on their way through shared memory, in the order in which lanes multiply them.

    copy_ahead<16>(shared_at + … + (part * 4 + v) * 1024 + j * 512 + lane * 16, rows_at + …);       iterations ahead
    wait_ahead<2>(); meet_part<2>(part);                                           all but two of them are there
    load_words<16>(b_words, shared + … + (part * 4 + step) * 1024 + j * 512 + lane * 16);

Registers can be loaded one iteration ahead: a thread waits for all of its loads at once. Copies are waited for in their
order. Lanes have vectors of their own, so that neighbours read neighbours. Warps that multiply the same elements copy a
share of them each, and meet; elements that one warp multiplies are copied by itself, without a barrier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.language.index import grouped, scaled, sum_of
from autosched.backends.cuda.language.iterations import Iterations
from autosched.backends.cuda.language.scope import call
from autosched.backends.cuda.memory.moves import Move
from autosched.backends.cuda.memory.places import Place
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.layouts import Digit, Layout, copies, registers, simplified, thread_digit
from autosched.backends.gpu.warps import WARP
from search_spaces.devices.lanes import LOAD_BYTES
from search_spaces.programs.addressing import address
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import Buffer
from search_spaces.workloads.dtypes import dtype

_MEET = """\
// Barrier of the warps of one part.
template <int warps>
__device__ __forceinline__ void meet_part(int part) {
    asm volatile("bar.sync %0, %1;" ::"r"(part + 1), "n"(32 * warps) : "memory");
}"""


@dataclass(frozen=True)
class SharedVectors:
    """A load whose elements of one iteration after another have `slots` places in shared memory, `begin` bytes on.

    `layout`: that in which lanes multiply it; its axes are those of the parts, of `own` positions and of `k`. `beside`:
    warps with the same elements.
    """

    load: Load
    part: str
    own: str
    k: str
    layout: Layout
    beside: int
    slots: int
    begin: int
    buffer: Buffer
    functions: Functions

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

    @property
    def _tiles(self) -> int:
        """Groups of eight positions that lanes lie across."""
        return registers(self.layout[self.own])

    def _move(self, layout: Layout, place: Place, printer: KernelPrinter) -> Move:
        place = replace(place, axis=self.k, vector=self.vector)
        return Move(self.load.dst, self.buffer, layout, place, printer.tiles.at(self.load.dst.axes, layout))

    def copy(self, at: str, turns: Iterations, printer: KernelPrinter) -> None:
        """Issue the copies of an iteration to its slot."""
        across, along = self._shares
        layout = self._divided(across, along) if self.beside > 1 else self.layout
        place = printer.places.place(address(self.buffer, self.load.slices, printer.indexing.extents), layout)
        move = self._move(layout, place, printer)

        def counted(number: str, share: int, before: int) -> str:
            own = thread_digit(Digit("warp", share, before), printer.warps)
            return f"{own} + {scaled(grouped(number), share)}" if share > 1 else number

        number = counted(f"{grouped(move.at[self.k])} / {self.vector}", along, across)
        to = self._place(at, number, counted(move.at[self.own], across, 1), turns, printer)
        inside = [" && ".join(place.tests)] if place.tests else []
        line = (
            call(f"copy_ahead<{self.vector_bytes}>", f"shared_at + {to}", printer.memory.pointer(move), *inside) + ";"
        )
        if first := [f"{thread_digit(d, printer.warps)} == 0" for d in copies(layout, printer.warps)]:
            line = f"if ({' && '.join(first)}) {line}"
        printer.memory.each_vector(move, [line])

    @property
    def _shares(self) -> tuple[int, int]:
        """Warps beside each other among which copies are divided, across and along k; the rest copy nothing."""
        across = math.gcd(self._tiles, self.beside)
        return across, math.gcd(self.layout[self.k][0].size // self.vector, self.beside // across)

    def _divided(self, across: int, along: int) -> Layout:
        """The layout in which warps beside each other copy: as many vectors of each lane."""
        (lanes, *_), (run, lanes_along, *rest) = self.layout[self.own], self.layout[self.k]
        vectors = (
            Digit("register", self.vector),
            Digit("warp", along, across),
            Digit("register", run.size // (self.vector * along)),
        )
        return {
            self.part: self.layout[self.part],
            self.own: simplified((lanes, Digit("warp", across), Digit("register", self._tiles // across))),
            self.k: simplified((*vectors, lanes_along, *rest)),
        }

    def meet(self, printer: KernelPrinter) -> None:
        """Wait for the warps with the same elements, whose copies are read, and which may read what is overwritten."""
        if self.beside > 1:
            name = self.functions.use("meet_part", _MEET)
            printer.block.write(f"{name}<{self.beside}>({self._part(printer) or '0'});")

    def take(self, words: str, load: str, at: str, turns: Iterations, printer: KernelPrinter) -> None:
        """Load an iteration's words to registers, by the function `load`."""
        move = self._move(self.layout, Place("", "", (), "", 1), printer)
        number = f"{grouped(move.at[self.k])} / {self.vector}"
        to = f"{words} + {grouped(move.index)} / {4 // self._size}"
        source = self._place(at, number, move.at[self.own], turns, printer)
        printer.memory.each_vector(move, [call(f"{load}<{self.vector_bytes}>", to, f"shared + {source}") + ";"])

    def words(self, at: str, number: str, tile: str, turns: Iterations, printer: KernelPrinter) -> str:
        """A pointer to a lane's vector of these numbers along k and across it."""
        return f"shared + {self._place(at, number, tile, turns, printer)}"

    def _part(self, printer: KernelPrinter) -> str:
        """The number of a warp among those with elements of their own; "" for the only one."""
        parts = printer.warps // self.beside
        return thread_digit(Digit("warp", parts, self.beside), printer.warps) if parts > 1 else ""

    def _place(self, at: str, number: str, tile: str, turns: Iterations, printer: KernelPrinter) -> str:
        """Bytes from the start of shared memory to a lane's vector."""
        vectors, row = registers(self.layout[self.k]) // self.vector, WARP * self.vector_bytes
        part = self._part(printer)
        count = sum_of(*([scaled(grouped(part), vectors)] if part else []), number)
        return sum_of(
            at,
            *([str(self.begin)] if self.begin else []),
            *([f"{turns.counter} % {self.slots} * {self.load.dst.bytes}"] if self.slots > 1 else []),
            scaled(grouped(count), self._tiles * row),
            scaled(grouped(tile), row),
            f"lane * {self.vector_bytes}",
        )
