"""Operands on their way to shared memory: copied asynchronously, through registers, or from registers once computed.

copy_async_16(shared_at + 8192 * slot + …, a_from + …, 16);                   asynchronous
a_ahead[i] = …;   (the dots of this iteration)   … = a_ahead[i];              before, and where no copy is aligned
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from autosched.backends.cuda.dots import functions as fn
from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.dots.halos import HaloCopy
from autosched.backends.cuda.dots.operands import Operands
from autosched.backends.cuda.dots.stages import CHUNK, Stage
from autosched.backends.cuda.dots.windows import Window
from autosched.backends.cuda.language.index import Indexing, grouped, sum_of
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.cuda.language.types import memory_type
from autosched.backends.cuda.memory.places import Place, vectors
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.layouts import Layout, blocked, registers, transposing
from autosched.backends.cuda.registers.layouts import vector as neighbours
from autosched.backends.cuda.registers.tiles import Held
from autosched.backends.printing.scope import Block
from search_spaces.devices.features import Features
from search_spaces.programs.addressing import Dimension, address
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Slice

# Types that move this number of bytes at once through registers.
_MOVED = {16: "uint4", 8: "uint2", 4: "uint32", 2: "int16", 1: "uint8"}


@dataclass(frozen=True)
class Copy:
    """A load that is staged: its layout over threads, and the bytes that each moves at once."""

    load: Load
    stage: Stage
    layout: Layout
    place: Place
    bytes: int
    asynchronous: bool

    @property
    def count(self) -> int:
        """Number of moves of a thread."""
        elements = 1
        for axis in self.load.dst.axes:
            elements *= registers(self.layout[axis])
        return elements * self.stage.element_bytes // self.bytes


@dataclass(frozen=True)
class Staging:
    """Prints the moves of one kernel's operands to shared memory."""

    operands: Operands
    functions: Functions
    printer: KernelPrinter

    @property
    def block(self) -> Block:
        return self.printer.block

    def copy(self, load: Load) -> Copy:
        """The staging of a load."""
        buffer, stage = self.printer.program.buffer(load.buffer), self.operands.stages[load.dst.name]
        assert isinstance(stage, Stage)
        slower, fastest = stage.axes
        size = bytes_at_once(buffer, load, stage, self.printer.indexing)
        extents = {x: load.dst.extent(x) for x in (fastest, slower)}
        at = address(buffer, load.slices, self.printer.indexing.extents)
        if load.dst.name in self.operands.transposed:
            at = replace(at, dimensions=tuple(map(_unclamped, at.dimensions)))
            layout = transposing({slower: extents[slower], fastest: extents[fastest]}, self.printer.warps)
        else:
            layout = blocked(extents, self.printer.warps, size // stage.element_bytes)
        place = self.printer.places.place(at, layout)
        return Copy(load, stage, layout, place, size, is_asynchronous(self.printer.features, size))

    def with_windows(self, places: Mapping[str, str]) -> dict[str, str]:
        """The places of tiles, and those of the views of the halos among them."""
        found = dict(places)
        for name, view in self.operands.views.items():
            if view.src in places:
                window = self.operands.stages[name]
                assert isinstance(window, Window)
                found[name] = sum_of(places[view.src], self.printer.indexing.affine(window.start))
        return found

    def bring(self, copy: Copy | HaloCopy, at: str, counter: str) -> None:
        """Copy asynchronously, to `at` in shared memory; a halo in those iterations that are the first to read it."""
        if isinstance(copy, HaloCopy):
            name = self.functions.use(f"copy_async_{copy.stage.piece}", fn.copy_async(copy.stage.piece))
            condition = copy.condition(counter)
            open_braces(self.block, f"if ({condition})" if condition else "")
            source = self.printer.parameters[copy.load.buffer]
            for line in copy.text(self.printer.indexing, name, source, sum_of("shared_at", at)):
                self.block.write(line)
            self.block.close()
            return
        name = self.functions.use(f"copy_async_{copy.bytes}", fn.copy_async(copy.bytes))
        size = f"{grouped(self._tests(copy))} ? {copy.bytes} : 0" if copy.place.tests else str(copy.bytes)
        to, source = sum_of("shared_at", at, self._within(copy)), self._from(copy)
        if copy.load.dst.name in self.operands.transposed:
            source = self._from_variable(copy)
        self._each(copy, [call(name, to, source, size) + ";"])

    def load(self, copy: Copy) -> None:
        """Load to registers of the copy."""
        kind, to = _MOVED[copy.bytes], f"{self._ahead(copy)}[{self._number(copy)}]"
        source = f"*reinterpret_cast<const {kind}*>({self._from(copy)})"
        if copy.place.tests:
            lines = [f"{to} = {kind}{{}};", f"if ({self._tests(copy)})", f"    {to} = {source};"]
        else:
            lines = [f"{to} = {source};"]
        self._each(copy, lines)

    def put(self, copy: Copy, at: str) -> None:
        """Store from these registers, to `at` in shared memory."""
        to = f"shared + {sum_of(at, self._within(copy))}"
        source = f"{self._ahead(copy)}[{self._number(copy)}]"
        self._each(copy, [f"*reinterpret_cast<{_MOVED[copy.bytes]}*>({to}) = {source};"])

    def registers(self, copy: Copy) -> str:
        """The definition of these registers."""
        return f"{_MOVED[copy.bytes]} {self._ahead(copy)}[{copy.count}];"

    def write(self, held: Held, at: str) -> None:
        """Store an operand that is in registers, to `at` in shared memory."""
        stage = self.operands.stages[held.tile.name]
        slower, fastest = stage.axes
        count = _together(held, stage)
        place = stage.element(*(grouped(self.printer.positions.within(x, held.layout[x])) for x in stage.axes))
        pointer = f"reinterpret_cast<{memory_type(held.tile.dtype)}*>(shared + {sum_of(at, place)})"
        counting = self.printer.tiles.at(held.tile.axes, held.layout)
        line = f"store<{count}, {held.apart(fastest)}>({pointer}, {held.address(counting)});"
        self.printer.tiles.each(held.layout, (slower, fastest), [line], {fastest: count})

    def read(self, held: Held, at: str) -> None:
        """Load a tile that is staged `at` this place in shared memory to registers."""
        stage = self.operands.stages[held.tile.name]
        slower, fastest = stage.axes
        count = _together(held, stage)
        place = stage.element(*(grouped(self.printer.positions.within(x, held.layout[x])) for x in stage.axes))
        pointer = f"reinterpret_cast<const {memory_type(held.tile.dtype)}*>(shared + {sum_of(at, place)})"
        counting = self.printer.tiles.at(held.tile.axes, held.layout)
        line = f"load<{count}, {held.apart(fastest)}>({held.address(counting)}, {pointer});"
        self.printer.tiles.each(held.layout, (slower, fastest), [line], {fastest: count})

    # Text

    def _ahead(self, copy: Copy) -> str:
        return f"{self.printer.tiles.name(copy.load.dst.name)}_ahead"

    def _from(self, copy: Copy) -> str:
        buffer = self.printer.parameters[copy.load.buffer]
        return sum_of(buffer, copy.place.start, grouped(copy.place.offset))

    def _from_variable(self, copy: Copy) -> str:
        """The same from a pointer that compilers know nothing of: they add constants to it for many short moves.

        Otherwise they extend the offset of each to 64 bits, or keep a pointer for each in registers.
        """
        name = f"{self.printer.tiles.name(copy.load.dst.name)}_from"
        buffer = self.printer.parameters[copy.load.buffer]
        kind = memory_type(self.printer.program.buffer(copy.load.buffer).dtype)
        self.block.write(f"const {kind}* {name} = {sum_of(buffer, copy.place.start)};")
        self.block.write(f'asm("" : "+l"({name}));')
        return sum_of(name, grouped(copy.place.offset))

    def _tests(self, copy: Copy) -> str:
        return " && ".join(copy.place.tests)

    def _within(self, copy: Copy) -> str:
        return copy.stage.element(*(grouped(self.printer.positions.within(x, copy.layout[x])) for x in copy.stage.axes))

    def _number(self, copy: Copy) -> str:
        """Number of the move among a thread's."""
        slower, fastest = copy.stage.axes
        at = self.printer.tiles.at((slower, fastest), copy.layout)
        vector = copy.bytes // copy.stage.element_bytes
        row = registers(copy.layout[fastest]) // vector
        column = at[fastest] if vector == 1 else f"{at[fastest]} / {vector}"
        terms = [f"{at[slower]} * {row}" if row > 1 else at[slower]] if at[slower] != "0" else []
        return sum_of(*terms, column if at[fastest] != "0" else "0")

    def _each(self, copy: Copy, lines: list[str]) -> None:
        slower, fastest = copy.stage.axes
        steps: Mapping[str, int] = {fastest: copy.bytes // copy.stage.element_bytes}
        self.printer.tiles.each(copy.layout, (slower, fastest), lines, steps)


def _unclamped(d: Dimension) -> Dimension:
    """The dimension, not clamped where no position is outside."""
    if not isinstance(d.index, Slice) or d.may_leave:
        return d
    return replace(d, index=replace(d.index, clamped=False))


def bytes_at_once(buffer: Buffer, load: Load, stage: Stage | Window, indexing: Indexing) -> int:
    """Bytes of a staged load that are moved at once."""
    fastest = stage.axes[1]
    most = vectors(address(buffer, load.slices, indexing.extents), indexing).get(fastest, 1)
    return math.gcd(most, load.dst.extent(fastest)) * stage.element_bytes


def is_asynchronous(features: Features, size: int) -> bool:
    """True if `size` bytes at once are copied without going through registers."""
    return 0 < features.copy_bytes <= size


def _together(held: Held, stage: Stage | Window) -> int:
    """Neighbours in a thread's registers that are together in shared memory, too."""
    count = neighbours(held.layout[stage.axes[1]])
    while count > 1 and (CHUNK // stage.element_bytes) % count:
        count -= 1
    return count
