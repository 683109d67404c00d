"""Resources of a printed kernel on a GPU, known before it is printed.

For kernels with dots, shared memory as the printer takes it, and registers approximately. A search asks for these for
many more schedules than it prints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from autosched.backends.cuda.dots.halos import HaloCopy, around_halos
from autosched.backends.cuda.dots.operands import Operands
from autosched.backends.cuda.dots.pipeline import slots
from autosched.backends.cuda.dots.printer import Dots
from autosched.backends.cuda.dots.register_dots import RegisterDots
from autosched.backends.cuda.dots.staging import bytes_at_once, is_asynchronous
from autosched.backends.cuda.dots.wmma import chunk_bytes
from autosched.backends.cuda.language.iterations import as_one
from autosched.backends.cuda.language.types import element_bytes, held_dtype
from autosched.backends.cuda.memory.assignment import moving_layout
from autosched.backends.cuda.memory.functions import LISTED_BYTES
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.cuda.registers.exchange import Scratch, exchanged_along
from autosched.backends.cuda.registers.layouts import Digit, Layout, simplified
from autosched.backends.cuda.registers.shared import SharedMemory
from autosched.backends.cuda.registers.tiles import Held
from autosched.backends.gpu.warps import WARP
from search_spaces.devices.target import Target
from search_spaces.programs.addressing import address
from search_spaces.programs.statements import (
    Dot,
    Fill,
    For,
    If,
    Load,
    Map,
    Reduce,
    Split,
    Statement,
    Store,
    children,
    produced,
    statements,
)
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.limits import Resources

# Registers of addresses, conditions and counters besides tiles: the most that NVRTC 13 uses for a product of 128 x 128
# that does not spill.
KEPT_REGISTERS = 40
_ROW_OVERHEAD = 24


def resources(program: TileProgram, kernel: Kernel, target: Target) -> Resources:
    """The needs of a kernel without producer warps; without dots, registers for its largest tile."""
    if not has_dots(kernel):
        threads = kernel.launch.num_warps * WARP
        largest = max([t.elements for s in statements(kernel.body) for t in produced(s)], default=0)
        return Resources(0, _ROW_OVERHEAD + largest // threads, threads)
    if multiplies_what_lanes_loaded(kernel):
        return _of_registers(program, kernel, target)
    dots = Dots(program, kernel, target.features)
    return _Needs(KernelPrinter(program, kernel, target.features, dots), dots.operands).all()


def why_too_large(need: Resources, kernel: Kernel, target: Target) -> str | None:
    """The limit of the target that a kernel of such needs breaks, or None."""
    if need.threads > target.threads:
        return f"{need.threads} threads per block; {target.name} allows {target.threads}"
    if need.shared_memory_bytes > target.shared_memory_bytes:
        return f"{need.shared_memory_bytes} bytes of shared memory; {target.name} allows {target.shared_memory_bytes}"
    most = kernel.launch.max_registers or target.features.registers_per_thread
    allowed = min(most, target.registers_per_sm // need.threads)
    if need.registers_per_thread > allowed:
        return f"about {need.registers_per_thread} registers a thread; {target.name} allows {allowed}"
    return None


def has_dots(kernel: Kernel) -> bool:
    return any(isinstance(s, Dot) for s in statements(kernel.body))


def multiplies_what_lanes_loaded(kernel: Kernel) -> bool:
    return any(isinstance(s, Dot) and s.from_memory for s in statements(kernel.body))


def _of_registers(program: TileProgram, kernel: Kernel, target: Target) -> Resources:
    """The needs of dots of what lanes loaded: sums, and loads, twice if they are ahead; what follows shares memory."""
    threads = kernel.launch.num_warps * WARP
    body = [*statements(kernel.body)]
    loads = [(s, loop) for loop in body if isinstance(loop, For) for s in loop.body if isinstance(s, Load)]
    sums = {s.dst.name: s.dst.elements // threads for s in body if isinstance(s, Fill | Dot)}
    dots = RegisterDots(program, kernel, target.features)
    held = [(s, loop) for s, loop in loads if s.dst.name not in dots.copied]
    words = sum(s.dst.bytes // (4 * threads) * (2 if loop.pipeline_stages > 1 else 1) for s, loop in held)
    printer = KernelPrinter(program, kernel, target.features, dots)
    with printer.shared.taken():
        printer.shared.place(dots.shared_bytes)
    shared = _Needs(printer, Operands.none()).shared_bytes
    return Resources(shared, KEPT_REGISTERS + sum(sums.values()) + words, threads)


@dataclass(frozen=True)
class _Needs:
    """Takes shared memory for statement after statement, as the printer does, without printing."""

    printer: KernelPrinter
    operands: Operands

    def all(self) -> Resources:
        self._body(self.printer.kernel.body)
        return Resources(self._shared.bytes, self._registers(), self.printer.warps * WARP)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of the statements outside of loops."""
        self._body([s for s in self.printer.kernel.body if not isinstance(s, For)])
        return self._shared.bytes

    @property
    def _shared(self) -> SharedMemory:
        return self.printer.shared

    @cached_property
    def _tiles(self) -> dict[str, Tile]:
        return {t.name: t for s in statements(self.printer.kernel.body) for t in produced(s)}

    def _layout(self, name: str) -> Layout:
        return self.printer.tiles.layout(name)

    def _body(self, body: Sequence[Statement], ring: bool = False) -> None:
        for s in body:
            self._take(s, ring)
            for name in self.operands.complete.get(id(s), ()):
                if self.operands.sums[name].kind == "wmma":
                    self._scratch(chunk_bytes(self.operands.sums[name]))

    def _take(self, s: Statement, ring: bool) -> None:
        match s:
            case For():
                self._loop(s)
            case If():
                for nested in children(s):
                    self._shared.forget()
                    self._body(nested)
                self._shared.forget()
            case Load() if s.dst.name in self.operands.staged:
                if not ring:
                    self._shared.place(self.operands.stages[s.dst.name].bytes)
            case Load():
                self._move(s.dst, s.dst.name, self.printer.program.buffer(s.buffer), s.slices)
            case Store():
                tile = self._tiles[s.src]
                self._move(tile, s.src, self.printer.program.buffer(s.buffer), s.slices)
            case Dot():
                for x in self._written(s):
                    self._shared.place(self.operands.stages[x].bytes)
            case Map():
                for argument in s.arguments:
                    if isinstance(argument, str):
                        self._exchange(self._tiles[argument], self._layout(argument), self._layout(s.dst.name))
            case Split(axis=axis, src=src):
                for half in (s.first, s.second):
                    layout = self._layout(half.name)
                    whole = {**layout, axis: simplified((*layout[axis], Digit("register", 2)))}
                    self._exchange(self._tiles[src], self._layout(src), whole)
            case Reduce():
                self._fold(s)

    def _loop(self, s: For) -> None:
        if s.marks:
            with self._shared.taken():
                self._shared.claim(LISTED_BYTES * s.extent)
                tile = self._tiles[s.marks]
                self._scratch(Scratch(tile, tile.axes[:1]).bytes)
                self._staged_loop(as_one(s))
        else:
            self._staged_loop(s)

    def _staged_loop(self, s: For) -> None:
        halos = list[HaloCopy]()
        if nest := around_halos(s, self.operands.halos, self.operands.staged):
            halos = [nest.copy(x, self.printer, self.operands.halos) for x in nest.loads]
            s = nest.loop
        loads = [x for x in s.body if isinstance(x, Load) and x.dst.name in self.operands.staged]
        depth = min(max(1, s.pipeline_stages), s.extent)
        ahead = self.printer.loads_ahead(replace(s, body=tuple(x for x in s.body if x not in loads)))
        self._shared.forget()
        if not loads and not halos and ahead is None:
            self._body(s.body)
            self._shared.forget()
            return
        with self._shared.taken():
            for halo in halos:
                halo.place(depth, self._shared)
            for x in loads:
                self._shared.place(slots(depth, self._is_asynchronous(x)) * self.operands.stages[x.dst.name].bytes)
            if ahead is not None:
                self._shared.place(ahead.bytes)
            self._body(s.body, ring=True)

    def _is_asynchronous(self, load: Load) -> bool:
        if load.dst.name in self.operands.halos:
            return True
        stage = self.operands.stages[load.dst.name]
        size = bytes_at_once(self.printer.program.buffer(load.buffer), load, stage, self.printer.indexing)
        return is_asynchronous(self.printer.features, size)

    def _written(self, dot: Dot) -> list[str]:
        """The operands that are written to shared memory for a dot."""
        plan = self.operands.plan(dot)
        made = [x for x in dict.fromkeys((dot.a, dot.b)) if (id(dot), x) in self.operands.first_uses]
        return [
            x
            for x in made
            if x not in self.operands.staged and not plan.takes_registers(self._tiles[x], self._layout(x))
        ]

    def _move(self, tile: Tile, name: str, buffer: Buffer, slices: tuple[Slice, ...]) -> None:
        """Shared memory for a tile on its way between memory and registers."""
        at = address(buffer, slices, self.printer.indexing.extents)
        layout = moving_layout(tile, self._layout(name), at, self.printer.indexing, self.printer.warps)
        self._exchange(replace(tile, dtype=buffer.dtype), self._layout(name), layout)

    def _exchange(self, tile: Tile, source: Layout, target: Layout) -> None:
        if all(source[x] == target[x] for x in tile.axes):
            return
        held = (Held("", tile, {x: layout[x] for x in tile.axes}) for layout in (source, target))
        self._scratch(Scratch(tile, exchanged_along(*held)).bytes)

    def _fold(self, s: Reduce) -> None:
        parts = math.prod(d.size for d in self._layout(s.src)[s.axis] if d.kind == "warp")
        if parts > 1:
            self._scratch(parts * s.dst.elements * element_bytes(held_dtype(s.dst.dtype)))

    def _scratch(self, size: int) -> None:
        self._shared.scratch(size)
        self._shared.meet()

    def _registers(self) -> int:
        """Registers of sums, of operands of a step, of loads through registers, and of the largest computed operand."""
        threads = self.printer.warps * WARP
        made = [self._tiles[x].elements // threads for x in self.operands.stages if x not in self.operands.staged]
        sums = sum(f.sums for f in self.operands.sums.values())
        return KEPT_REGISTERS + sums + _parts(self.operands) + self._loaded() + max(made, default=0)

    def _loaded(self) -> int:
        """Registers of loads; in a loop that loads its operands one after the other, of one at a time."""
        body = [*statements(self.printer.kernel.body)]
        loads = [s for s in body if isinstance(s, Load) and s.dst.name in self.operands.staged]
        sizes = {id(s): s.dst.bytes // (4 * WARP * self.printer.warps) for s in loads if not self._is_asynchronous(s)}
        in_turns = [s for s in body if isinstance(s, For) and self.operands.take_turns(s)]
        saved = (sorted(sizes[id(x)] for x in s.body if id(x) in sizes)[:-1] for s in in_turns)
        return sum(sizes.values()) - sum(map(sum, saved))


def _parts(operands: Operands) -> int:
    return max((plan.part_registers for plan in operands.plans.values()), default=0)
