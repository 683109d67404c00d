"""Tile programs as CUDA C++: one function per kernel, every size a constant, every tile in registers.

The text is a pure function of the kernel and the target's compute capability. Dots are not printed here: that, and the
layouts of accumulators, is left to `Products`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from autosched.backends.backend import CompileError
from autosched.backends.cuda.language.grid import print_grid, stream_iterations
from autosched.backends.cuda.language.index import Indexing
from autosched.backends.cuda.language.iterations import Iterations, as_one, nested
from autosched.backends.cuda.language.scope import RESERVED, call, cpp_identifiers, open_braces
from autosched.backends.cuda.language.types import element_bytes, memory_type
from autosched.backends.cuda.memory.ahead import LoadsAhead
from autosched.backends.cuda.memory.assignment import assigned
from autosched.backends.cuda.memory.functions import LISTED_BYTES
from autosched.backends.cuda.memory.moves import MemoryPrinter
from autosched.backends.cuda.memory.places import Places
from autosched.backends.cuda.registers.arithmetic import Arithmetic
from autosched.backends.cuda.registers.exchange import Exchange
from autosched.backends.cuda.registers.layouts import Layout, registers
from autosched.backends.cuda.registers.positions import Positions
from autosched.backends.cuda.registers.rearrange import Rearranging
from autosched.backends.cuda.registers.reduce import Folds
from autosched.backends.cuda.registers.scan import Scans
from autosched.backends.cuda.registers.shared import SharedMemory
from autosched.backends.cuda.registers.tiles import Tiles, local_tiles
from autosched.backends.gpu.kernel import CudaKernel
from autosched.backends.gpu.warps import WARP, WGMMA
from autosched.backends.printing.loops import first_and_end
from autosched.backends.printing.scope import Block, Scope, valid_identifier
from search_spaces.devices.features import Features
from search_spaces.programs.statements import (
    Deinterleave,
    Dot,
    Fill,
    For,
    Gather,
    If,
    Interleave,
    Let,
    Load,
    Map,
    Position,
    Prefetch,
    Reduce,
    Regroup,
    Scan,
    Split,
    Statement,
    Store,
    View,
    statements,
)
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram, loop_digits, loop_extents

# Bytes that a thread should have in flight from memory, if an iteration loads less; a few hundred threads of a
# multiprocessor then cover the product of its bandwidth and its latency.
_IN_FLIGHT_BYTES = 128
_MOST_UNROLLED = 8


def function_name(kernel: Kernel) -> str:
    return valid_identifier(kernel.name, RESERVED)


def blocks_that_fit(max_registers: int, threads: int) -> int:
    """Blocks of `threads` threads resident on a multiprocessor, given a cap on the registers of each thread."""
    return max(1, WGMMA.registers // (max_registers * threads)) if max_registers else 1


class Products(Protocol):
    """Printer of the dots of one kernel."""

    @property
    def anchored(self) -> Mapping[str, Layout]:
        """The layouts of tiles that dots determine: of accumulators, and of operands multiplied from registers."""
        ...

    @property
    def functions(self) -> Sequence[str]:
        """The device functions that the printed text uses."""
        ...

    def load(self, s: Load | View | Fill | Interleave, printer: KernelPrinter) -> bool:
        """Load a tile that dots read from shared memory; False if the tile is loaded, or made, like any other."""
        ...

    def printed(self, s: Statement, printer: KernelPrinter) -> None:
        """Add the statements that follow one that was just printed."""
        ...

    def loop(self, s: For, turns: Iterations, printer: KernelPrinter) -> bool:
        """Print a loop with dots, and the loads of its operands; False if it is printed like any other."""
        ...

    def dot(self, s: Dot, printer: KernelPrinter) -> None:
        """Print a dot outside of such loops."""
        ...


class NoProducts:
    """Products of kernels without dots."""

    anchored: Mapping[str, Layout] = {}
    functions: Sequence[str] = ()

    def load(self, s: Load | View | Fill | Interleave, printer: KernelPrinter) -> bool:
        return False

    def printed(self, s: Statement, printer: KernelPrinter) -> None:
        pass

    def loop(self, s: For, turns: Iterations, printer: KernelPrinter) -> bool:
        return False

    def dot(self, s: Dot, printer: KernelPrinter) -> None:
        raise CompileError(f"dot of {s.a} and {s.b}: this kernel has no products")


class KernelPrinter:
    """Prints one kernel, or some statements of a kernel that another printer prints.

    `tiles` are tiles in registers, `shared` the block's shared memory, `indexing` and `positions` the names of
    variables and positions, `exchange` moves a tile from one layout to another; all write into `block`.
    """

    def __init__(
        self, program: TileProgram, kernel: Kernel, features: Features, products: Products | None = None
    ) -> None:
        self.program, self.kernel, self.features = program, kernel, features
        self.products: Products = NoProducts() if products is None else products
        self.root = Scope(variables=frozenset())
        self.block = Block(self.root)
        self.identifiers = cpp_identifiers()
        self.warps = kernel.launch.num_warps
        self.buffers = _taken(program, kernel)
        self.parameters = {b.name: self.identifiers.of(("buffer", b.name), f"{b.name}_ptr") for b in self.buffers}
        self.indexing = Indexing(loop_extents(kernel), self.identifiers, loop_digits(kernel))
        layouts = assigned(program, kernel, self.indexing, self.products.anchored)
        self.tiles = Tiles(layouts, local_tiles(kernel.body), self.identifiers, self.block)
        self.positions = Positions(self.indexing, self.tiles, self.identifiers, self.block, self.warps)
        self.places = Places(self.positions)
        self.shared = SharedMemory(self.block)
        self.exchange = Exchange(self.tiles, self.positions, self.shared)
        self.folds = Folds(self.tiles, self.positions, self.shared, self.warps)
        self._scans = Scans(self.tiles, self.positions, self.shared, self.warps)
        self._arithmetic = Arithmetic(self.tiles, self.positions, self.exchange, self.folds)
        self._rearranging = Rearranging(self.tiles, self.positions, self.exchange)
        self.memory = MemoryPrinter(
            program,
            self.parameters,
            _written(kernel),
            self.warps,
            self.tiles,
            self.places,
            self.exchange,
            self.identifiers,
            self.block,
        )

    @property
    def launched(self) -> CudaKernel:
        """Launch data of the printed function."""
        return CudaKernel(
            name=function_name(self.kernel),
            arguments=tuple(b.name for b in self.buffers),
            programs=self.kernel.grid.programs,
            num_warps=self.warps,
            num_ctas=1,  # Blocks of a cluster do not share their loads here.
            shared_bytes=self.shared.bytes,
            scratch_bytes=0,
            hidden_parameters=0,
        )

    def text(self) -> str:
        """The text of the function. The printer is used up by it."""
        print_grid(self.kernel.grid, self.indexing, self.root, self.block)
        if self.kernel.grid.walked:
            self.shared.forget()
        self.body(self.kernel.body)
        # Without a known number of threads, the compiler keeps tests that always hold.
        threads = f"__builtin_assume(threadIdx.x < {WARP * self.warps});"
        return self.function([threads, "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;"])

    def function(self, first: Sequence[str], threads: int = 0, more: Sequence[str] = ()) -> str:
        """The printed statements as a function of `threads` threads.

        `first` is text before them; `more` parameters follow the buffers.
        """
        threads = threads or WARP * self.warps
        blocks = blocks_that_fit(self.kernel.launch.max_registers, threads)
        head = f'extern "C" __global__ void __launch_bounds__({threads}, {blocks})\n{function_name(self.kernel)}'
        written = _written(self.kernel)
        parameters = []
        for b in self.buffers:
            constant = "" if b.name in written else "const "
            parameters.append(f"{constant}{memory_type(b.dtype)}* __restrict__ {self.parameters[b.name]}")
        own = ["    " + line for line in (*self.shared.definitions(), *first)]
        return "\n".join([call(head, *parameters, *more) + " {", *own, *self.root.text(1), "}"]) + "\n"

    def functions(self) -> list[str]:
        """The device functions that the printed text uses, except those of operators, element types and memory."""
        return [*self.folds.functions(), *self._scans.functions, *self.products.functions]

    def body(self, body: Sequence[Statement]) -> None:
        for together, run in itertools.groupby(body, self._arithmetic.loop_of):
            if together is None:
                for statement in run:
                    self.print(statement)
            else:
                maps = [s for s in run if isinstance(s, Map)]
                self._arithmetic.maps(maps)
                for statement in maps:
                    self.products.printed(statement, self)
        for _ in (s for s in body if isinstance(s, Let)):
            self.block.close()

    def print(self, statement: Statement) -> None:
        """Print a statement and those nested in it."""
        match statement:
            case Load():
                if not self.products.load(statement, self):
                    self.memory.load(statement)
            case Gather():
                self.memory.gather(statement)
            case Position():
                self._arithmetic.position(statement)
            case View():
                if not self.products.load(statement, self):
                    self._rearranging.view(statement)
            case Fill():
                if not self.products.load(statement, self):
                    self._arithmetic.fill(statement)
            case Dot():
                self.products.dot(statement, self)
            case Map():
                self._arithmetic.maps([statement])
            case Reduce():
                self._arithmetic.reduce(statement)
            case Regroup():
                self._rearranging.regroup(statement)
            case Scan():
                layout = self.tiles.layout(statement.dsts[0].name)
                given = [self.exchange.as_in(self.tiles[x], layout) for x in statement.srcs]
                self._scans.scan(statement, given, function_name(self.kernel))
            case Split():
                self._rearranging.split(statement)
            case Deinterleave():
                self._rearranging.take_apart(statement)
            case Interleave():
                if not self.products.load(statement, self):
                    self._rearranging.put_together(statement)
            case Store():
                self.memory.store(statement)
            case Prefetch():
                pass  # A GPU hides the latency of stores by itself.
            case For():
                self._for(statement)
            case If():
                self._if(statement)
            case Let():
                self._let(statement)
        self.products.printed(statement, self)

    def _for(self, s: For) -> None:
        if s.marks:
            self._marked(s)
            return
        turns = Iterations(self.indexing.variable(s.variable), *self._first_and_end(s), (s.variable,))
        if self.products.loop(s, turns, self):
            return
        if s.extent == 1 and s.bound is None and not (s.until or s.since):
            self.body(s.body)
            return
        self._loop(s, turns)

    def _marked(self, s: For) -> None:
        """A loop over marked iterations, which makes one loop with the one that is all of its body."""
        with self.shared.taken():
            open_braces(self.block, "")
            loop, turns = as_one(s), self._listed(s)
            if not self.products.loop(loop, turns, self):
                self._loop(loop, turns)
            self.block.close()

    def _listed(self, s: For) -> Iterations:
        """List the marked iterations in shared memory, in a place that is taken."""
        inner, variable = nested(s), self.indexing.variable(s.variable)
        listed, count, turn = (
            self.identifiers.of((word, s.variable), f"{variable}_{word}") for word in ("marked", "count", "turn")
        )
        at, marks = self.shared.claim(LISTED_BYTES * s.extent), self.tiles[s.marks]
        scratch = self.exchange.written(marks, marks.tile.axes[:1])
        self.block.write(f"int* const {listed} = reinterpret_cast<int*>(shared + {at});")
        found = call("list_marked", scratch.pointer, *self._first_and_end(s), listed)
        self.block.write(f"const int {count} = {found};")
        self.shared.meet()
        if inner is None:
            return Iterations(turn, "0", count, (s.variable,), (f"const int {variable} = {listed}[{turn}];",))
        each = inner.extent
        lines = (
            f"const int {variable} = {listed}[{turn} / {each}];",
            f"const int {self.indexing.variable(inner.variable)} = {turn} % {each};",
        )
        return Iterations(turn, "0", f"{count} * {each}", (s.variable, inner.variable), lines)

    def _loop(self, s: For, turns: Iterations) -> None:
        ahead = self.loads_ahead(s)
        if ahead is not None:
            self._for_with_loads_ahead(s, turns, ahead)
            return
        turns.open_loop(self.block, turns.first, turns.end, self._unrolled(s))
        with self.shared.repeated():
            self.body(s.body)
        self.block.close()

    def loads_ahead(self, s: For) -> LoadsAhead | None:
        """The loads of a loop that threads issue ahead for themselves; None if there are none."""
        ahead = LoadsAhead(s, self.memory, self.shared, self.features.copy_bytes) if self.features.copy_bytes else None
        return ahead if ahead is not None and ahead.loads else None

    def _for_with_loads_ahead(self, s: For, turns: Iterations, ahead: LoadsAhead) -> None:
        with self.shared.taken():
            open_braces(self.block, "")
            end = ahead.begin(turns)
            turns.open_loop(self.block, turns.first, end, unroll=1)
            self.shared.forget()
            ahead.turn(turns, end)
            self.body([t for t in s.body if t not in ahead.loads])
            self.block.close()
            self.block.close()

    def _unrolled(self, s: For) -> int:
        """Iterations to unroll, so that enough of their loads are in flight."""
        loads = [t for t in s.body if isinstance(t, Load)]
        held = (
            math.prod(registers(self.tiles.layout(t.dst.name)[x]) for x in t.dst.axes) * element_bytes(t.dst.dtype)
            for t in loads
        )
        brought = sum(held)
        return max(1, min(s.extent, _IN_FLIGHT_BYTES // brought, _MOST_UNROLLED)) if brought else 1

    def _first_and_end(self, s: For) -> tuple[str, str]:
        """The first iteration of a loop in a block, and the one after the last."""
        return stream_iterations(self.kernel.grid, s.variable) or first_and_end(s, self.indexing)

    def _let(self, s: Let) -> None:
        """Begin the part of a body in which the variable is known."""
        value = self.tiles[s.src].element({})
        bound = f"{value} < 0 ? 0 : {value} < {s.extent} ? int({value}) : {s.extent - 1}"
        self.block.write(f"const int {self.indexing.variable(s.variable)} = {bound};")
        self.block.open("", s.variable)

    def _if(self, s: If) -> None:
        if self.indexing.extents[s.variable] == 1:
            self.body(s.then if s.value == 0 else s.otherwise)
            return
        open_braces(self.block, f"if ({self.indexing.variable(s.variable)} == {s.value})")
        with self.shared.repeated():
            self.body(s.then)
        self.block.close()
        if s.otherwise:
            open_braces(self.block, "else")
            with self.shared.repeated():
                self.body(s.otherwise)
            self.block.close()


def _taken(program: TileProgram, kernel: Kernel) -> tuple[Buffer, ...]:
    """The buffers that the kernel takes pointers to, in the program's order."""
    names = {s.buffer for s in statements(kernel.body) if isinstance(s, Load | Gather | Store)}
    return tuple(b for b in program.buffers if b.name in names)


def _written(kernel: Kernel) -> frozenset[str]:
    return frozenset(s.buffer for s in statements(kernel.body) if isinstance(s, Store))
