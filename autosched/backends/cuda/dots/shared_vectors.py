"""Vectors of an operand in shared memory, in the order in which lanes multiply them, copied by all warps that read them.

    copy_ahead<16>(shared_at + … + (part * 4 + v) * 1024 + j * 512 + lane * 16, rows_at + …);       an iteration ahead
    wait_ahead<0>(); meet_part<2>(part);
    load_words<16>(b_words, shared + … + (part * 4 + step) * 1024 + j * 512 + lane * 16);

Warps with the same part of k share its vectors; lanes have vectors of their own. So neighbouring lanes read neighbours,
and a warp that shares with none waits for no other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.language.index import grouped, scaled
from autosched.backends.cuda.language.iterations import Iterations
from autosched.backends.cuda.language.scope import call
from autosched.backends.cuda.memory.moves import Move
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.layouts import Digit, Layout, copies, registers, simplified, thread_digit
from autosched.backends.gpu.warps import WARP
from search_spaces.devices.lanes import LOAD_BYTES
from search_spaces.programs.addressing import address
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import TileProgram
from search_spaces.workloads.dtypes import dtype

_MEET = """\
// Barrier of the warps of one part.
template <int warps>
__device__ __forceinline__ void meet_part(int part) {
    asm volatile("bar.sync %0, %1;" ::"r"(part + 1), "n"(32 * warps) : "memory");
}"""


@dataclass(frozen=True)
class SharedVectors:
    """A load whose elements go to `slots` places in shared memory in turn.

    `layout`: that in which lanes multiply it, where all `beside` warps of a part have the same elements.
    """

    load: Load
    layout: Layout
    beside: int
    slots: int
    program: TileProgram
    functions: Functions

    @property
    def vector(self) -> int:
        """Elements of a vector."""
        return min(self.layout[self._k][0].size, LOAD_BYTES // self._size)

    @property
    def vector_bytes(self) -> int:
        return self.vector * self._size

    @property
    def slot_bytes(self) -> int:
        return self.load.dst.bytes

    @property
    def bytes(self) -> int:
        return self.slots * self.slot_bytes

    @property
    def _size(self) -> int:
        return dtype(self.load.dst.dtype).bytes

    @property
    def _k(self) -> str:
        return self.load.dst.axes[-1]

    @property
    def _own(self) -> str:
        return self.load.dst.axes[-2]

    @property
    def _tiles(self) -> int:
        """Groups of eight positions that lanes lie across."""
        return registers(self.layout[self._own])

    def copy(self, at: str, turns: Iterations, printer: KernelPrinter) -> None:
        """Issue the copies of an iteration to its slot, from `at` on."""
        buffer = self.program.buffer(self.load.buffer)
        across, along = self._shares
        (lanes, *_), (run, lanes_along, *rest) = self.layout[self._own], self.layout[self._k]
        part = self.load.dst.axes[0]
        layout: Layout = {
            part: self.layout[part],
            self._own: simplified((lanes, Digit("warp", across), Digit("register", self._tiles // across))),
            self._k: simplified(
                (
                    Digit("register", self.vector),
                    Digit("warp", along, across),
                    Digit("register", run.size // (self.vector * along)),
                    lanes_along,
                    *rest,
                )
            ),
        }
        place = printer.places.place(address(buffer, self.load.slices, printer.indexing.extents), layout)
        place = replace(place, axis=self._k, vector=self.vector)
        move = Move(self.load.dst, buffer, layout, place, printer.tiles.at(self.load.dst.axes, layout))
        number, tile = (
            f"{grouped(move.at[axis])}{f' / {self.vector}' if axis == self._k else ''}" for axis in (self._k, self._own)
        )
        mine = [
            f"{thread_digit(Digit('warp', share, before), printer.warps)} + " if share > 1 else ""
            for share, before in ((along, across), (across, 1))
        ]
        to = self._place(f"{mine[0]}{scaled(number, along)}", f"{mine[1]}{scaled(tile, across)}", turns, printer)
        tests = [*place.tests, *(f"{thread_digit(d, printer.warps)} == 0" for d in copies(layout, printer.warps))]
        first, inside = tests[len(place.tests) :], [" && ".join(place.tests)] if place.tests else []
        line = call(
            f"copy_ahead<{self.vector_bytes}>", f"shared_at + {at} + {to}", printer.memory.pointer(move), *inside
        )
        printer.memory.each_vector(move, [f"if ({' && '.join(first)}) {line};" if first else f"{line};"])

    @property
    def _shares(self) -> tuple[int, int]:
        """Warps of a part among which copies are divided, across and along k; the rest copy nothing."""
        across = math.gcd(self._tiles, self.beside)
        return across, math.gcd(self.layout[self._k][0].size // self.vector, self.beside // across)

    def wait(self, behind: int, printer: KernelPrinter) -> None:
        """Wait for all copies but those of so many iterations, and for the warps that still read the last one's."""
        printer.block.write(f"wait_ahead<{behind}>();")
        if self.beside > 1:
            part = thread_digit(Digit("warp", printer.warps // self.beside, self.beside), printer.warps)
            printer.block.write(f"{self.functions.use('meet_part', _MEET)}<{self.beside}>({part});")

    def words(self, at: str, number: str, tile: str, turns: Iterations, printer: KernelPrinter) -> str:
        """A pointer to a lane's vector of these numbers along k and across it."""
        return f"shared + {at} + {self._place(number, tile, turns, printer)}"

    def _place(self, number: str, tile: str, turns: Iterations, printer: KernelPrinter) -> str:
        """Bytes from the first slot to a lane's vector."""
        parts = printer.warps // self.beside
        vectors = registers(self.layout[self._k]) // self.vector
        part = grouped(thread_digit(Digit("warp", parts, self.beside), printer.warps)) if parts > 1 else "0"
        slot = f"{turns.counter} % {self.slots} * {self.slot_bytes} + " if self.slots > 1 else ""
        row = WARP * self.vector_bytes
        return f"{slot}({part} * {vectors} + {number}) * {self._tiles * row} + ({tile}) * {row} + lane * {self.vector_bytes}"
