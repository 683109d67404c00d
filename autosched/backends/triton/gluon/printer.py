"""Contractions as Gluon, Triton's language of warps and layouts, for compute capability 9.0 (Hopper).

One warp brings operands into a ring of slots in shared memory; one or two warp groups of four warps take them out and
compute. For every slot a barrier says that it is full, and one that it is empty. As programs walk their tiles, that
warp is a ring ahead: operands of the next tile arrive while an epilogue runs. (Warp specialisation: Bauer et al.,
"CudaDMA", SC 2011; CUTLASS's kernels for Hopper are built so, their "cooperative" being two groups that share a tile,
their "pingpong" two that alternate.)

A kernel is four functions: its entry; `_load`, the warp that brings; `_dots`, a warp group; `_finish`, the epilogue.
The text is for Triton 3.6 to 3.9. Gluon has the pointwise, scalar and pointer operations of Triton under the same
names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from autosched.backends.gpu.arguments import (
    Arguments,
    Descriptor,
    arguments,
    described,
    descriptor,
    loading_descriptor,
)
from autosched.backends.gpu.specialized.form import DotForm, check_program
from autosched.backends.gpu.specialized.halves import HALF
from autosched.backends.gpu.warps import WARP_GROUP, WGMMA
from autosched.backends.printing.scope import Block, Scope, call
from autosched.backends.triton.gluon.dot_loops import DotLoops
from autosched.backends.triton.gluon.epilogue_moves import GroupMoves
from autosched.backends.triton.language.grid import position
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.loops import iterations
from autosched.backends.triton.language.scope import python_identifiers
from autosched.backends.triton.printer import KernelPrinter, function_name
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_extents
from search_spaces.workloads.dtypes import dtype

# What the module of such a kernel imports. Triton 3.9 renamed the copies by descriptor.
IMPORTS = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

load_tile = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
store_tile = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global"""

# Registers of a thread that brings operands; those that it gives up go to the others.
_PRODUCER_REGISTERS = 40
_INSTRUCTION_ROWS = 16
# Bits of an operand that one dot instruction adds up, along the axis that is summed over.
_INSTRUCTION_BITS = 256


_T = TypeVar("_T")


def print_kernel(program: TileProgram, kernel: Kernel) -> str:
    """The functions of a kernel that asks for producer warps.

    Raises:
        CompileError: it is no contraction of the form that is printed (see `gpu.specialized.form`).
    """
    return _Printer(program, DotForm.of(kernel)).text()


def kernel_arguments(program: TileProgram, kernel: Kernel) -> Arguments:
    """What such a kernel takes: stores by descriptor are as large as what one warp group stores."""
    return arguments(program, DotForm.of(kernel).moving)


class _Printer:
    """Prints one kernel."""

    def __init__(self, program: TileProgram, form: DotForm) -> None:
        check_program(program, form)
        self._program, self._form = program, form
        self._name = function_name(form.kernel)
        taken = arguments(program, form.moving)
        names = python_identifiers()
        self._pointers = [names.of(("buffer", b.name), f"{b.name}_ptr") for b in taken.pointers]
        self._descriptors = {d: names.of(d, f"{d.buffer.name}_desc") for d in taken.descriptors}
        stored = {descriptor(program.buffer(s.buffer), s.slices) for s in form.stores}
        self._stored = [text for d, text in self._descriptors.items() if d in stored]
        self._rings = _numbered("a_ring", form.rows_read) | _numbered("b_ring", form.columns_read)
        self._accumulators = [acc.name for acc in form.accumulators] if len(form.dots) > 1 else ["acc"]
        # How many tiles of the epilogue are loaded by each descriptor.
        self._extras = Counter(self._descriptors[self._of(s)] for s in form.extras)
        # Of several pieces one is written while another is on its way, unless the other warp group computes meanwhile.
        self._pieces = 1 if form.alternating else min(2, len(form.stores))

    def text(self) -> str:
        return in_gluon("\n\n\n".join([self._load(), self._finish(), self._dots(), self._entry()]))

    # The warp that brings operands

    def _load(self) -> str:
        form = self._form
        root, block, indexing = self._scope()
        block.write("step = 0")
        if form.extras:
            block.write("count = 0")
        self._open_tiles(indexing, block, "tl.program_id(0)", 1)
        block.open(f"for {indexing.variable(form.loop.variable)} in range({self._iterations(indexing)}):")
        block.write(f"slot = step % {form.stages}")
        # A barrier that was never used counts as passed for the turn before the first.
        block.write(f"hopper.mbarrier.wait(empty.index(slot), step // {form.stages} & 1 ^ 1)")
        block.write(f"hopper.mbarrier.expect(full.index(slot), {sum(s.dst.bytes for s in form.loads)})")
        for load, ring in self._rings.items():
            target, starts = self._descriptors[self._of(load)], self._starts(indexing, load)
            block.write(call("load_tile", target, f"[{starts}]", "full.index(slot)", f"{ring}.index(slot)"))
        block.write("step += 1")
        block.close()
        self._bring_extras(indexing, block)
        return self._function("load", self._load_arguments(), root)

    def _bring_extras(self, indexing: Indexing, block: Block) -> None:
        """Bring what the epilogue reads, after the operands: it is needed last, and its place free late."""
        form = self._form
        if not form.extras:
            return
        if form.alternating:
            block.write("half = count % 2")
            turn = "count // 2"
        else:
            block.open(f"for half in gl.static_range({form.groups}):")
            turn = "count"
        block.write(f"hopper.mbarrier.wait(extras_empty.index(half), {turn} & 1 ^ 1)")
        block.write(f"hopper.mbarrier.expect(extras_full.index(half), {sum(s.dst.bytes for s in form.extras)})")
        moves = self._moves()
        for load in form.extras:
            starts = self._starts(indexing, load)
            name = self._descriptors[self._of(load)]
            block.write(call("load_tile", name, f"[{starts}]", "extras_full.index(half)", moves.place(name)))
        if not form.alternating:
            block.close()
        block.write("count += 1")

    def _starts(self, indexing: Indexing, load: Load) -> str:
        buffer = self._program.buffer(load.buffer)
        return ", ".join(indexing.affine(p.start) for p in described(buffer, load.slices))

    # A warp group that computes

    def _dots(self) -> str:
        form = self._form
        root, block, indexing = self._scope()
        bits = 8 * dtype(form.a.dst.dtype).bytes
        shape = [_INSTRUCTION_ROWS, form.columns, _INSTRUCTION_BITS // bits]
        block.write(
            f"layout: gl.constexpr = gl.NVMMADistributedLayout("
            f"version=[3, 0], warps_per_cta=[{WARP_GROUP}, 1], instr_shape={shape})"
        )
        if form.a_through_registers:
            block.write(
                f"operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=layout, k_width={32 // bits})"
            )
        iterations, grid = self._iterations(indexing), form.kernel.grid
        if form.extras:
            block.write("extra_turn = 0")
        if form.alternating:
            block.write(f"step = half * {iterations}")
            block.write("turn = 1 - half")
            self._open_tiles(indexing, block, f"tl.program_id(0) + half * {grid.programs}", 2)
        else:
            block.write("step = 0")
            self._open_tiles(indexing, block, "tl.program_id(0)", 1)
        zero = "0" if form.dot.dst.dtype == "int32" else "0.0"
        for acc in self._accumulators:
            block.write(f"{acc} = gl.full([{form.rows}, {form.columns}], {zero}, gl.{form.dot.dst.dtype}, layout)")
        blocks = {load: self._of(load).block for load in self._rings}
        if form.alternating:
            block.write("hopper.mbarrier.wait(order.index(half), turn)")
            block.write("turn ^= 1")
        DotLoops(form, self._rings, blocks, self._accumulators).write(block, indexing, iterations)
        if form.alternating:
            block.write(f"step += {iterations}")
        variables = [indexing.variable(v) for v in self._variables()]
        if form.extras:
            block.write("hopper.mbarrier.wait(extras_full.index(half), extra_turn)")
            block.write("extra_turn ^= 1")
        block.write(call(f"{self._name}_finish", *self._finish_arguments(variables)))
        if form.extras:
            block.write("hopper.fence_async_shared()")
            block.write("hopper.mbarrier.arrive(extras_empty.index(half))")
        if self._stored:
            root.body.append("hopper.tma.store_wait(0)")
        return self._function("dots", self._dots_arguments("half: gl.constexpr"), root)

    # Its epilogue

    def _finish(self) -> str:
        form = self._form
        printer = KernelPrinter(self._program, form.finishing, self._moves())
        head = f"@gluon.jit\ndef {self._name}_finish"
        rest = [*self._finish_rings(), f"{HALF}: gl.constexpr"]
        return printer.body_function(head, form.accumulators, self._variables(), rest)

    # The kernel

    def _entry(self) -> str:
        form = self._form
        scope = Scope()
        block = Block(scope)
        rings = [(ring, self._descriptors[self._of(load)], form.stages) for load, ring in self._rings.items()]
        stored = ["ring"] if len(self._stored) == 1 else [f"ring_{i}" for i, _ in enumerate(self._stored)]
        rings += [(ring, name, form.groups * self._pieces) for ring, name in zip(stored, self._stored, strict=True)]
        rings += [(f"extra_{i}", name, form.groups * n) for i, (name, n) in enumerate(self._extras.items())]
        for ring, name, slots in rings:
            shape = f"[{slots}] + {name}.block_type.shape"
            block.write(f"{ring} = gl.allocate_shared_memory({name}.dtype, {shape}, {name}.layout)")
        barriers = [("full", form.stages, 1), ("empty", form.stages, form.groups if form.shares_tile else 1)]
        barriers += [("order", 2, 1)] if form.alternating else []
        barriers += [("extras_full", form.groups, 1), ("extras_empty", form.groups, 1)] if form.extras else []
        for name, count, _ in barriers:
            block.write(f"{name} = gl.allocate_shared_memory(gl.int64, [{count}, 1], hopper.mbarrier.MBarrierLayout())")
        for name, count, arrivals in barriers:
            block.open(f"for i in gl.static_range({count}):")
            block.write(f"hopper.mbarrier.init({name}.index(i), count={arrivals})")
            block.close()
        if len(stored) > 1:
            block.write(f"ring = ({', '.join(stored)})")
        if form.extras:
            block.write(f"extras = ({' '.join(f'extra_{i},' for i in range(len(self._extras)))})")
        block.open("gl.warp_specialize(")
        block.open("[")
        for half in range(form.groups):
            block.write(f"({self._name}_dots, ({', '.join(self._dots_arguments(str(half)))})),")
        block.write(f"({self._name}_load, ({', '.join(self._load_arguments())})),")
        block.close()
        block.write("],")
        others = form.groups - 1
        block.write(f"{[WARP_GROUP] * others + [form.kernel.launch.producer_warps]},")
        registers = WGMMA.group_registers(form.groups, kept=_PRODUCER_REGISTERS)
        block.write(f"{[registers] * others + [_PRODUCER_REGISTERS]},")
        block.close()
        block.write(")")
        return "\n".join(
            [
                "@gluon.jit",
                f"def {self._name}({', '.join([*self._pointers, *self._descriptors.values()])}):",
                *scope.text(1),
            ]
        )

    # Parts of them

    def _scope(self) -> tuple[Scope, Block, Indexing]:
        root = Scope()
        block = Block(root)
        return root, block, Indexing(self._extents(), python_identifiers(), block)

    def _open_tiles(self, indexing: Indexing, block: Block, first: str, every: int) -> None:
        """Begin the loop over the tiles of a program, `every` so many of them, and say which they are."""
        grid = self._form.kernel.grid
        if grid.walked:
            block.open(f"for tile in range({first}, {grid.tiles}, {every * grid.programs}):")
        elif grid.tiles > 1:
            block.write("tile = tl.program_id(0)")
        for line in position(grid, indexing, "tile") if grid.tiles > 1 else ():
            block.write(line)

    def _iterations(self, indexing: Indexing) -> str:
        loop = self._form.loop
        return iterations(loop, indexing) if loop.bound else str(loop.extent)

    def _variables(self) -> tuple[str, ...]:
        return tuple(a.variable for a in self._form.kernel.grid.axes if a.extent > 1)

    def _of(self, load: Load) -> Descriptor:
        return loading_descriptor(self._program.buffer(load.buffer), load, self._extents())

    def _extents(self) -> dict[str, int]:
        return {**loop_extents(self._form.kernel), HALF: 2}

    def _load_arguments(self) -> list[str]:
        loads = (*self._form.loads, *self._form.extras)
        loaded = dict.fromkeys(self._descriptors[self._of(s)] for s in loads)
        extras = ["extras", "extras_full", "extras_empty"] if self._extras else []
        return [*loaded, *self._rings.values(), "full", "empty", *extras]

    def _dots_arguments(self, half: str) -> list[str]:
        order = ["order"] if self._form.alternating else []
        extras = ["extras_full", "extras_empty"] if self._extras else []
        own = [*self._rings.values(), "full", "empty", *order, *extras, *self._finish_rings(), half]
        return [*self._pointers, *self._finish_descriptors(), *own]

    def _finish_arguments(self, variables: list[str]) -> list[str]:
        return [
            *self._accumulators,
            *self._pointers,
            *self._finish_descriptors(),
            *variables,
            *self._finish_rings(),
            HALF,
        ]

    def _finish_rings(self) -> list[str]:
        return [*(["ring"] if self._stored else []), *(["extras"] if self._extras else [])]

    def _moves(self) -> GroupMoves:
        return GroupMoves(self._extras, self._stored, self._pieces)

    def _finish_descriptors(self) -> list[str]:
        return [self._descriptors[d] for d in arguments(self._program, self._form.finishing).descriptors]

    def _function(self, part: str, parameters: list[str], scope: Scope) -> str:
        return "\n".join(["@gluon.jit", f"def {self._name}_{part}({', '.join(parameters)}):", *scope.text(1)])


def _numbered(name: str, of: Sequence[_T]) -> dict[_T, str]:
    """What each is called: by the name, then with numbers behind it."""
    return {x: f"{name}{number if number > 1 else ''}" for number, x in enumerate(of, 1)}


def in_gluon(text: str) -> str:
    """Triton's names of what both languages have, in Gluon."""
    return re.sub(r"\btl\.(?!PropagateNan)", "gl.", text)
