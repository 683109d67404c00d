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
from collections.abc import Callable, Sequence
from typing import TypeVar

from autosched.backends.gpu.arguments import (
    Arguments,
    Descriptor,
    arguments,
    described,
    descriptor,
    loading_descriptor,
)
from autosched.backends.gpu.roles import product_roles
from autosched.backends.gpu.warps import WARP_GROUP
from autosched.backends.printing.scope import Block, Scope, call
from autosched.backends.triton.gluon.dot_loops import GroupDots
from autosched.backends.triton.gluon.epilogue_moves import GroupMoves
from autosched.backends.triton.gluon.protocol import Count, Protocol, SharedRing, Turns
from autosched.backends.triton.gluon.tiles import open_tiles
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.loops import iterations
from autosched.backends.triton.language.scope import python_identifiers
from autosched.backends.triton.printer import KernelPrinter, function_name
from search_spaces.programs.roles.halves import HALF
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.statements import (
    Advance,
    Await,
    Copy,
    EachGroup,
    Fetch,
    Finish,
    Issue,
    Next,
    Partial,
    Promote,
    Release,
    RoleStatement,
    Settle,
    Steps,
    Tiles,
)
from search_spaces.programs.statements import Fill, Load
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_extents
from search_spaces.schedules.limits import USUAL
from search_spaces.workloads.dtypes import dtype

# What the module of such a kernel imports. Triton 3.9 renamed the copies by descriptor.
IMPORTS = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

load_tile = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
store_tile = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global"""

# Registers of a thread of a producer, whose addresses Triton keeps in them; those that it gives up go to the others.
_PRODUCER_REGISTERS = 40
_INSTRUCTION_ROWS = 16
# Bits of an operand that one dot instruction adds up, along the axis that is summed over.
_INSTRUCTION_BITS = 256


_T = TypeVar("_T")


def print_kernel(program: TileProgram, kernel: Kernel) -> str:
    """The functions of a kernel that asks for producer warps.

    Raises:
        CompileError: it is no contraction that has such roles (see `programs.roles.products`).
    """
    return _Printer(program, _roles(program, kernel)).text()


def kernel_arguments(program: TileProgram, kernel: Kernel) -> Arguments:
    """What such a kernel takes: stores by descriptor are as large as what one warp group stores."""
    return arguments(program, _roles(program, kernel).moving)


def _roles(program: TileProgram, kernel: Kernel) -> ProductRoles:
    return product_roles(program, kernel, USUAL, _PRODUCER_REGISTERS)


class _Printer:
    """Prints one kernel."""

    def __init__(self, program: TileProgram, form: ProductRoles) -> None:
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

    # The producer

    def _load(self) -> str:
        form = self._form
        root, block, indexing = self._scope()
        counter = Count("count", shared=form.alternating)
        protocol = self._protocol(block, indexing, counter, named=True)
        self._produce(form.producer.body, root, indexing, protocol)
        return self._function("load", self._load_arguments(), root)

    def _produce(self, body: Sequence[RoleStatement], root: Scope, indexing: Indexing, protocol: Protocol) -> None:
        block, moves = protocol.block, self._moves()
        for s in body:
            match s:
                case Tiles(body=inner):
                    self._open_tiles(1, indexing, root, block)
                    self._produce(inner, root, indexing, protocol)
                case Steps(body=inner):
                    block.open(f"for {self._variable(indexing)} in range({self._iterations(indexing)}):")
                    self._produce(inner, root, indexing, protocol)
                    block.close()
                case EachGroup(body=inner, alternating=True):
                    block.write("half = count % 2")
                    self._produce(inner, root, indexing, protocol)
                case EachGroup(body=inner):
                    block.open(f"for half in gl.static_range({self._form.groups}):")
                    self._produce(inner, root, indexing, protocol)
                    block.close()
                case Copy(ring=ring, load=load) if ring.apart:
                    name, starts = protocol.copied(load)
                    block.write(call("load_tile", name, f"[{starts}]", "extras_full.index(half)", moves.place(name)))
                case _:
                    protocol.write(s)

    def _protocol(self, block: Block, indexing: Indexing, extra: Count, named: bool) -> Protocol:
        form = self._form
        rings = {form.operands.name: self._ring(named)}
        rings[form.extra.name] = SharedRing(form.extra, "extras_full", "extras_empty", (), extra)
        trips = self._iterations(indexing) if form.loop.bound else ""
        variable = self._variable(indexing)
        return Protocol(block, rings, Turns("turn", "1 - half", "1 - half"), self._copied(indexing), variable, trips)

    def _ring(self, named: bool) -> SharedRing:
        return SharedRing(self._form.operands, "full", "empty", tuple(self._rings.values()), Count("step"), named)

    def _copied(self, indexing: Indexing) -> Callable[[Load], tuple[str, str]]:
        return lambda load: (self._descriptors[self._of(load)], self._starts(indexing, load))

    def _variable(self, indexing: Indexing) -> str:
        return indexing.variable(self._form.loop.variable)

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
        named = not form.a_through_registers
        protocol = self._protocol(block, indexing, Count("extra_turn", parity_alone=True), named)
        names = {load: ring.replace("_ring", "") for load, ring in self._rings.items()}
        blocks = {load: self._of(load).block for load in self._rings}
        dots = GroupDots(form, self._ring(named), names, blocks, self._accumulators)
        self._consume(form.consumer.body, root, indexing, protocol, dots)
        if self._stored:
            root.body.append("hopper.tma.store_wait(0)")
        return self._function("dots", self._dots_arguments("half: gl.constexpr"), root)

    def _consume(
        self, body: Sequence[RoleStatement], root: Scope, indexing: Indexing, protocol: Protocol, dots: GroupDots
    ) -> None:
        block = protocol.block
        for s in body:
            match s:
                case Tiles(body=inner, every=every):
                    self._open_tiles(every, indexing, root, block)
                    self._consume(inner, root, indexing, protocol, dots)
                case Steps(body=inner, part=part):
                    fewer = " - 1" if part == "before the last" else ""
                    block.open(f"for {self._variable(indexing)} in range({self._iterations(indexing)}{fewer}):")
                    self._consume(inner, root, indexing, protocol, dots)
                    block.close()
                case Finish(body=inner):
                    self._call_finish(inner, indexing, protocol)
                case Fill() | Fetch() | Next() | Partial() | Promote() | Issue() | Settle():
                    dots.write(s, block)
                case _:
                    protocol.write(s)

    def _call_finish(self, body: Sequence[RoleStatement], indexing: Indexing, protocol: Protocol) -> None:
        """Call the epilogue: what it waits for is waited for before, and what it releases, after it."""
        for s in body:
            if isinstance(s, Await | Advance):
                protocol.write(s)
        variables = [indexing.variable(v) for v in self._variables()]
        protocol.block.write(call(f"{self._name}_finish", *self._finish_arguments(variables)))
        for s in body:
            if isinstance(s, Release):
                protocol.block.write("hopper.fence_async_shared()")
                protocol.write(s)

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
        barriers = [("full", form.operands.slots, 1), ("empty", form.operands.slots, form.operands.readers)]
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
        block.write(f"{[form.consumer.registers] * others + [form.producer.registers]},")
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

    def _open_tiles(self, every: int, indexing: Indexing, root: Scope, block: Block) -> None:
        open_tiles(self._form.kernel.grid, every, indexing, root, block)

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
