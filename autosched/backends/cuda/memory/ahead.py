"""Loads of a loop's next iterations on their way to shared memory while this one computes (cp.async).

Every thread copies its own elements, to slots of its own, so that threads need no barrier:

    copy_ahead<16>(shared_at + scratch + slot * 8192 + r_n * 512 + threadIdx.x * 16, x_at + …);    iteration c_0 + 2
    commit_ahead();
    …
    wait_ahead<1>();                                                    all but the last one is there: iteration c_0
    load<4, 1>(x + r_n, shared + scratch + slot * 8192 + r_n * 512 + threadIdx.x * 16);
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.language.iterations import Iterations
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.cuda.language.types import element_bytes, memory_type
from autosched.backends.cuda.memory.moves import MemoryPrinter, Move
from autosched.backends.cuda.registers.layouts import copies
from autosched.backends.cuda.registers.shared import SharedMemory
from autosched.backends.gpu.warps import WARP
from search_spaces.programs.statements import For, Load
from search_spaces.programs.tile_program import loads_at_data

# The rest of shared memory is left for exchanges, on every device that has such copies.
MOST_AHEAD = 64 * 1024


@dataclass(frozen=True)
class _Slot:
    """A load, and its place in the slot of an iteration, in bytes."""

    statement: Load
    begin: int


class LoadsAhead:
    """The loads of a loop that are issued ahead, and their slots; none if nothing is gained."""

    def __init__(self, loop: For, memory: MemoryPrinter, shared: SharedMemory, least: int) -> None:
        """`least`: the fewest bytes of an asynchronous copy."""
        self._memory, self._shared, self._least = memory, shared, least
        self.depth = min(loop.pipeline_stages - 1, loop.extent - 1)
        self._slots: list[_Slot] = []
        self._bytes = 0
        at_data = loads_at_data(loop)
        for s in loop.body if self.depth > 0 else ():
            if isinstance(s, Load) and s not in at_data and self._may_be_ahead(memory.move(s)):
                size = s.dst.bytes
                if self.depth * (self._bytes + size) > MOST_AHEAD:
                    break
                self._slots.append(_Slot(s, self._bytes))
                self._bytes += size

    @property
    def loads(self) -> list[Load]:
        return [slot.statement for slot in self._slots]

    @property
    def bytes(self) -> int:
        """Bytes of all slots."""
        return self.depth * self._bytes

    def _may_be_ahead(self, move: Move) -> bool:
        """True if vectors follow each other in registers, are long enough, and no two threads have the same."""
        size = element_bytes(move.buffer.dtype)
        return (
            move.place.vector * size >= self._least
            and move.apart == 1
            and move.buffer.dtype == move.dst.dtype
            and not copies(move.held.layout, self._memory.warps)
        )

    def begin(self, turns: Iterations) -> str:
        """Issue the loads of the first iterations; returns the name of the end of the loop."""
        variable = turns.counter
        block = self._memory.block
        self._at = self._shared.claim(self.bytes)
        name = self._memory.identifiers.of(("end", variable, self._at), f"{variable}_end")
        block.write(f"const int {name} = {turns.end};")
        open_braces(block, f"#pragma unroll\nfor (int ahead = 0; ahead < {self.depth}; ++ahead)")
        block.write(f"const int {variable} = {sum_of(turns.first, 'ahead')};")
        self._bring(turns, name, "ahead")
        block.close()
        return name

    def turn(self, turns: Iterations, end: str) -> None:
        """Use the data of this iteration, and issue the loads of a later one."""
        block, variable = self._memory.block, turns.counter
        number = variable if turns.first == "0" else f"({variable} - ({turns.first}))"
        slot = "0" if self.depth == 1 else "slot"
        if self.depth > 1:
            block.write(f"const int slot = {number} % {self.depth};")
        block.write(f"wait_ahead<{self.depth - 1}>();")
        for s in self._slots:
            self._memory.load(s.statement, self._place(self._memory.move(s.statement), s, slot, "shared"))
        open_braces(block, "")
        block.write(f"const int ahead = {variable} + {self.depth};")
        open_braces(block, "")
        block.write(f"const int {variable} = ahead;")
        self._bring(turns, end, slot)
        block.close()
        block.close()

    def _bring(self, turns: Iterations, end: str, slot: str) -> None:
        block = self._memory.block
        turns.open_copy(block, f"{turns.counter} < {end}")
        for s in self._slots:
            self._copy(s, slot)
        block.close()
        block.write("commit_ahead();")

    def _copy(self, s: _Slot, slot: str) -> None:
        move = self._memory.move(s.statement)
        size = move.place.vector * element_bytes(move.buffer.dtype)
        arguments = [self._place(move, s, slot, "shared_at"), self._memory.pointer(move)]
        arguments += [" && ".join(move.place.tests)] if move.place.tests else []
        line = call(f"copy_ahead<{size}>", *arguments) + ";"
        self._memory.each_vector(move, [line])

    def _place(self, move: Move, s: _Slot, slot: str, shared: str) -> str:
        """Place of the vector that begins at an element of a thread."""
        element = element_bytes(move.buffer.dtype)
        threads = WARP * self._memory.warps
        offset = scaled(move.index, threads * element)
        own = f"threadIdx.x * {move.place.vector * element}"
        at = sum_of(f"{shared} + {self._at}", scaled(slot, self._bytes), str(s.begin), offset, own)
        return at if shared == "shared_at" else f"reinterpret_cast<const {memory_type(move.buffer.dtype)}*>({at})"
