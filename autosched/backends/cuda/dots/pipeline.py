"""Loops that stage the operands of their dots, iterations ahead, as C++ text.

    for (int k_0 = 0; k_0 < 2; ++k_0) bring_k_0(k_0);
    for (int k_0 = 0; k_0 < 64; ++k_0) {
        await_copies<1>();                        this thread's copies for this iteration are complete
        __syncthreads();                          so are all others; no thread reads the targets of the copies below
        if (k_0 + 2 < 64) bring_k_0(k_0 + 2);
        …                                         the dots
    }

Operands without asynchronous copies go through registers: loaded there before the dots of the previous iteration, and
stored after them. If more iterations may be in flight, and the loop is one dot, operands alternate between its steps,
so that one is in flight while another is stored:

    for (int step = 0; step < 4; ++step) {
        …                                         a step of the dot
        if (step == 1) { put_a_k_0(k_0 + 1); load_b_k_0(k_0 + 1); }
        if (step == 3) { put_b_k_0(k_0 + 1); load_a_k_0(k_0 + 2); }
    }

A dot with many instructions a step is a loop of some of its steps at a time, whose parts are one step ahead:

    for (int begin = 0; begin < 32; begin += 8) {
        if (begin == warp / 4 % 2 * 16) { if (k_0 + 3 < 64) bring_k_0(k_0 + 3); }
        for (int step = 0; step < 8; ++step) {    unrolled
            if (step == 7 && begin == 24) { commit_copies(); await_copies<2>(); __syncthreads(); slot = …; }
            take(step == 7 && begin == 24 ? 0 : begin + step + 1, (step + 1) % 2);
            …                                     a step of the dot
        }
    }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from autosched.backends.cuda.dots.halos import HaloCopy
from autosched.backends.cuda.dots.operands import BY_REGISTERS
from autosched.backends.cuda.dots.staging import Copy, Staging
from autosched.backends.cuda.language.index import grouped
from autosched.backends.cuda.language.iterations import Iterations
from autosched.backends.cuda.language.scope import open_braces
from autosched.backends.cuda.memory.ahead import LoadsAhead
from autosched.backends.cuda.registers.shared import SharedMemory
from autosched.backends.printing.grid import position
from autosched.backends.printing.scope import Block

# Schedulers of a multiprocessor, to which warps are assigned in order of their numbers (CUDA C++ programming guide,
# compute capabilities 7.0 to 9.0).
_SCHEDULERS = 4


class Steps(Protocol):
    """A dot in steps along k, each of parts that are read from shared memory before it."""

    @property
    def steps(self) -> int: ...

    @property
    def unrolled(self) -> int:
        """Steps in straight code; 0: all of them."""
        ...

    def parts(self, sets: str) -> str:
        """The definition of `sets` sets of parts."""
        ...

    def take(self, which: str) -> Iterator[str]:
        """Read the parts of `step` into one of the sets."""
        ...

    def multiply(self, which: str) -> Iterator[str]: ...


@dataclass(frozen=True)
class Pipeline:
    """Prints one such loop. `depth`: most iterations staged in shared memory; `loads`: a thread's own loads ahead."""

    turns: Iterations
    depth: int
    copies: Sequence[Copy | HaloCopy]
    staging: Staging
    shared: SharedMemory
    loads: LoadsAhead | None = None

    def print(
        self, print_body: Callable[[Mapping[str, str]], None], steps: Callable[[Mapping[str, str]], Steps | None]
    ) -> None:
        """Print the loop. Its body, and the steps of its only dot if it is one, get the places of all staged tiles."""
        firsts = [(c, self._place(c)) for c in self.copies]

        def places(slot: Callable[[int], str]) -> dict[str, str]:
            return self.staging.with_windows({c.load.dst.name: self._ring(c, first, slot) for c, first in firsts})

        rings = places(lambda count: f"{self.turns.counter} % {count}")
        open_braces(self._block, "")
        if self.depth == 1:
            self._at_once(rings, print_body)
        else:
            found = steps(rings)
            if found is not None and found.unrolled:
                found = steps(places(lambda _: self._slot))
            self._ahead(rings, print_body, found)
        self._block.close()

    @property
    def _block(self) -> Block:
        return self.staging.block

    @property
    def _slot(self) -> str:
        """The variable with the slot whose parts are taken."""
        return f"slot_{self.turns.counter}"

    @property
    def _next(self) -> str:
        """The next iteration; of the last one itself where windows of a halo would lie beyond its memory."""
        after = f"{self.turns.counter} + 1"
        windows = any(isinstance(c, HaloCopy) for c in self.copies)
        return f"min({after}, {self.turns.end} - 1)" if windows else after

    def _slots(self, copy: Copy | HaloCopy) -> int:
        """Tiles of a copy in shared memory at a time."""
        return copy.slots(self.depth) if isinstance(copy, HaloCopy) else slots(self.depth, copy.asynchronous)

    def _place(self, copy: Copy | HaloCopy) -> str:
        """The place of the first of these tiles."""
        if isinstance(copy, HaloCopy):
            return copy.place(self.depth, self.shared)
        return self.shared.place(self._slots(copy) * copy.stage.bytes)

    def _ring(self, copy: Copy | HaloCopy, first: str, slot: Callable[[int], str]) -> str:
        """The place of a copy's tile in the iteration of the loop's variable. `slot`: its number among so many."""
        count = self._slots(copy)
        if count == 1:
            return first
        if isinstance(copy, HaloCopy):
            turn = f"{self.turns.counter} / {copy.every}" if copy.every > 1 else self.turns.counter
            return f"{first} + {turn} % {count} * {copy.stage.bytes}"
        return f"{first} + {slot(count)} * {copy.stage.bytes}"

    def _open(self, first: str, end: str) -> None:
        self.turns.open_loop(self._block, first, end)

    def _at_once(self, rings: Mapping[str, str], print_body: Callable[[Mapping[str, str]], None]) -> None:
        """Every iteration waits for its own operands."""
        self._open(self.turns.first, self.turns.end)
        self._block.write("__syncthreads();")
        bring_now(self.staging, self.copies, rings, self.turns.counter)
        self._block.write("__syncthreads();")
        print_body(rings)
        self._block.close()

    def _ahead(
        self, rings: Mapping[str, str], print_body: Callable[[Mapping[str, str]], None], steps: Steps | None
    ) -> None:
        turns, block = self.turns, self._block
        ahead = self.depth - 1
        asynchronous = [c for c in self.copies if c.asynchronous]
        others = [c for c in self.copies if isinstance(c, Copy) and not c.asynchronous]
        block.write("__syncthreads();")
        bring = self.staging.bring
        self._define("bring", [partial(bring, c, rings[c.load.dst.name], turns.counter) for c in asynchronous])
        for c in others:
            block.write(self.staging.registers(c))
        if steps is not None and others:
            self._in_turns(others, rings, steps)
            return
        self._define("load", [partial(self.staging.load, c) for c in others])
        self._define("put", [partial(self.staging.put, c, rings[c.load.dst.name]) for c in others])
        if asynchronous:
            self._open(turns.first, f"{turns.first} + {ahead}" if turns.first != "0" else str(ahead))
            self._call("bring", turns.counter)
            block.write(f"{self._common('commit_copies')}();")
            block.close()
        if others:
            self._call("load", turns.first)
            self._call("put", turns.first)
        if steps is not None:
            print_steps = self._by_some_steps if steps.unrolled else self._by_steps
            print_steps(steps)
            return
        end = self.loads.begin(turns) if self.loads else turns.end
        self._open(turns.first, end)
        self._await(bool(asynchronous))
        self._bring_next(bool(asynchronous), bool(others))
        if self.loads:
            self.loads.turn(turns, end)
        print_body(rings)
        if others:
            self._call("put", f"{turns.counter} + 1")
        block.close()

    def _await(self, asynchronous: bool) -> None:
        """Wait for the operands of the next iteration."""
        if asynchronous:
            self._block.write(f"{self._common('await_copies')}<{self.depth - 2}>();")
        self._block.write("__syncthreads();")

    def _bring_next(self, asynchronous: bool, others: bool) -> None:
        """Begin to load the operands of a later iteration."""
        turns = self.turns
        if asynchronous:
            self._call("bring", f"{turns.counter} + {self.depth - 1}")
            if not self.loads:  # Otherwise they are of the same group.
                self._block.write(f"{self._common('commit_copies')}();")
        if others:
            self._call("load", f"{turns.counter} + 1")

    def _by_steps(self, steps: Steps) -> None:
        """The iterations of a loop that is one dot: the parts of a step are loaded during the step before.

        That holds from one iteration to the next, too, so that threads reach barriers while they multiply.
        """
        turns, block = self.turns, self._block
        variable, last = turns.counter, steps.steps - 1
        block.write(steps.parts("[2]"))
        turns.open(block, f"const auto take_{variable} = [&](const int {variable}, const int step)", "};")
        for line in steps.take("[step % 2]"):
            block.write(line)
        block.close()
        self._await(asynchronous=True)
        block.write(f"take_{variable}({turns.first}, 0);")
        self._open(turns.first, turns.end)
        self._bring_next(asynchronous=True, others=False)
        open_braces(block, f"#pragma unroll\nfor (int step = 0; step < {steps.steps}; ++step)")
        open_braces(block, f"if (step == {last})")
        self._await(asynchronous=True)
        block.close()
        block.write(f"take_{variable}(step == {last} ? {self._next} : {variable}, step == {last} ? 0 : step + 1);")
        for line in steps.multiply("[step % 2]"):
            block.write(line)
        block.close()
        block.close()

    def _by_some_steps(self, steps: Steps) -> None:
        """The same in straight code of some steps: compilers delay loads to their uses in longer code."""
        turns, block = self.turns, self._block
        variable, slot, together = turns.counter, self._slot, steps.unrolled
        block.write(steps.parts("[2]"))
        first = "0" if turns.first == "0" else f"{grouped(turns.first)} % {self.depth}"
        block.write(f"int {slot} = {first};")
        block.open(f"const auto take_{variable} = [&](const int step, const int set) {{", footer="};")
        for line in steps.take("[set]"):
            block.write(line)
        block.close()
        self._await(asynchronous=True)
        block.write(f"take_{variable}(0, 0);")
        self._open(turns.first, turns.end)
        open_braces(block, f"#pragma unroll 1\nfor (int begin = 0; begin < {steps.steps}; begin += {together})")
        open_braces(block, f"if (begin == {self._turn_to_bring(steps.steps // together, together)})")
        self._call("bring", f"{turns.counter} + {self.depth - 1}")
        block.close()
        open_braces(block, f"#pragma unroll\nfor (int step = 0; step < {together}; ++step)")
        last = f"step == {together - 1} && begin == {steps.steps - together}"
        open_braces(block, f"if ({last})")
        block.write(f"{self._common('commit_copies')}();")
        self._await(asynchronous=True)
        block.write(f"{slot} = {slot} == {self.depth - 1} ? 0 : {slot} + 1;")
        block.close()
        block.write(f"take_{variable}({last} ? 0 : begin + step + 1, (step + 1) % 2);")
        for line in steps.multiply("[step % 2]"):
            block.write(line)
        block.close()
        block.close()
        block.close()

    def _turn_to_bring(self, chunks: int, together: int) -> str:
        """The step with which a warp copies operands: one multiplies while the other warp of its scheduler copies."""
        if chunks == 1 or self.staging.printer.warps <= _SCHEDULERS:
            return "0"
        return f"warp / {_SCHEDULERS} % 2 * {chunks // 2 * together}"

    def _in_turns(self, copies: Sequence[Copy], rings: Mapping[str, str], steps: Steps) -> None:
        """The iterations of a loop that is one dot of operands through registers.

        After its share of the steps an operand is stored and the next one loaded, unconditionally even after the last
        iteration, so that both are interleaved with the dot's instructions.
        """
        turns, block = self.turns, self._block
        variable, count = turns.counter, len(copies)
        names = [self.staging.printer.tiles.name(c.load.dst.name) for c in copies]
        for name, copy in zip(names, copies, strict=True):
            self._define(f"load_{name}", [partial(self.staging.load, copy)])
            self._define(f"put_{name}", [partial(self.staging.put, copy, rings[copy.load.dst.name])])
        for what in ("load", "put"):
            for name in names:
                self._call(f"{what}_{name}", turns.first)
        self._call(f"load_{names[0]}", f"{turns.first} + 1" if turns.first != "0" else "1")
        self._open(turns.first, turns.end)
        block.write("__syncthreads();")
        open_braces(block, f"#pragma unroll\nfor (int step = 0; step < {steps.steps}; ++step)")
        for line in (steps.parts(""), *steps.take(""), *steps.multiply("")):
            block.write(line)
        for number, name in enumerate(names):
            after, later = names[(number + 1) % count], 2 if number + 1 == count else 1
            open_braces(block, f"if (step == {steps.steps * (number + 1) // count - 1})")
            block.write(f"put_{name}_{variable}({variable} + 1);")
            block.write(f"load_{after}_{variable}(min({variable} + {later}, {turns.end} - 1));")
            block.close()
        block.close()
        block.close()

    def _define(self, what: str, copies: Sequence[Callable[[], None]]) -> None:
        """Define a function that loads operands of any iteration, by printing their copies."""
        if not copies:
            return
        counter = self.turns.counter
        self.turns.open(self._block, f"const auto {what}_{counter} = [&](const int {counter})", "};")
        for print_copy in copies:
            print_copy()
        self._block.close()

    def _call(self, what: str, iteration: str) -> None:
        self._block.write(f"if ({iteration} < {self.turns.end}) {what}_{self.turns.counter}({iteration});")

    def _common(self, name: str) -> str:
        return self.staging.functions.common(name)


def print_tiles_ahead(
    copies: Sequence[HaloCopy], staging: Staging, print_body: Callable[[Mapping[str, str]], None]
) -> None:
    """Print a tile of a persistent program whose halos are copied during the dots of the tile before.

    if (tile == block) bring_tile(tile);
    await_copies<0>();                              this tile's halos are there; no thread reads those of the one before
    __syncthreads();
    if (tile + 132 < 784) bring_tile(tile + 132);
    …                                               the dots
    """
    printer, block = staging.printer, staging.block
    grid, commit = printer.kernel.grid, staging.functions.common("commit_copies")
    places = staging.with_windows({c.load.dst.name: c.place(1, printer.shared) for c in copies})
    open_braces(block, "")
    scope = block.open("const auto bring_tile = [&](const int tile) {", *(a.variable for a in grid.axes), footer="};")
    scope.definitions += position(grid, printer.indexing, "tile")
    for copy in copies:
        staging.bring(copy, places[copy.load.dst.name], "")
    block.write(f"{commit}();")
    block.close()
    block.write("if (tile == block) bring_tile(tile);")
    block.write(f"{staging.functions.common('await_copies')}<0>();")
    block.write("__syncthreads();")
    block.write(f"if (tile + {grid.programs} < {grid.tiles}) bring_tile(tile + {grid.programs});")
    print_body(places)
    block.close()


def slots(depth: int, asynchronous: bool) -> int:
    """Iterations of a tile in shared memory, in a loop of this pipeline depth."""
    return depth if asynchronous else min(depth, BY_REGISTERS)


def bring_now(
    staging: Staging, copies: Sequence[Copy | HaloCopy], places: Mapping[str, str], counter: str = ""
) -> None:
    """Load operands, and wait for this thread's loads."""
    block = staging.block
    for copy in copies:
        at = places[copy.load.dst.name]
        if isinstance(copy, HaloCopy) or copy.asynchronous:
            staging.bring(copy, at, counter)
            continue
        open_braces(block, "")
        block.write(staging.registers(copy))
        staging.load(copy)
        staging.put(copy, at)
        block.close()
    if any(copy.asynchronous for copy in copies):
        block.write(f"{staging.functions.common('commit_copies')}();")
        block.write(f"{staging.functions.common('await_copies')}<0>();")
