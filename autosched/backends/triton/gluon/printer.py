"""Contractions as Gluon, Triton's language of warps and layouts, for compute capability 9.0 (Hopper).

The roles of warps are those of `programs.roles.products`: a producer, and one or two groups of consumers. As programs
go over their tiles, the producer is a ring ahead: operands of the next tile arrive while an epilogue runs.

A kernel is four functions: its entry; `_load`, the producer; `_dots`, a group of consumers; `_finish`, its epilogue.
One whose tiles are placed by data has a fifth, `_place`, which every role calls for each of its tiles.
The text is for Triton 3.6 to 3.9. Gluon has the pointwise, scalar and pointer operations of Triton under the same
names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from autosched.backends.gpu.arguments import (
    Descriptor,
    arguments,
    described,
    descriptor,
    loading_descriptor,
)
from autosched.backends.gpu.warps import WARP_GROUP
from autosched.backends.printing.scope import INDENT, Block, Scope, call
from autosched.backends.triton.gluon.dot_loops import GroupDots, GroupLayout
from autosched.backends.triton.gluon.epilogue_moves import GroupMoves
from autosched.backends.triton.gluon.protocol import Count, Protocol, SharedRing, Turns
from autosched.backends.triton.gluon.role_bodies import RoleBody, specialize
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.loops import iterations
from autosched.backends.triton.language.scope import identifier, python_identifiers
from autosched.backends.triton.printer import KernelPrinter, function_name
from search_spaces.programs.roles.halves import HALF
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.statements import (
    Advance,
    Await,
    Copy,
    Fetch,
    Finish,
    Issue,
    Next,
    Place,
    Release,
    RoleStatement,
    Settle,
)
from search_spaces.programs.statements import Fill, For, Let, Load, Statement, produced, read
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_digits, loop_extents
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import dtype

# Imports of a kernel's module. Triton 3.9 renamed the copies by descriptor.
IMPORTS = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

load_tile = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
store_tile = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global"""

# Registers of a thread of a producer, whose addresses Triton keeps in them; those that it gives up go to the others.
PRODUCER_REGISTERS = 40
_INSTRUCTION_ROWS = 16
# Depth of one dot instruction, in bits of an operand.
_INSTRUCTION_BITS = 256
# Names in the text of a group.
OWN = ("layout", "operand", "step", "slot", "full", "empty", "order", HALF, "extra_turn", "extras_full", "extras_empty")


_T = TypeVar("_T")


def print_kernel(program: TileProgram, roles: ProductRoles) -> str:
    """The functions of a contraction with these roles."""
    return _Printer(program, roles).text()


class _Printer:
    """Prints one kernel."""

    def __init__(self, program: TileProgram, roles: ProductRoles) -> None:
        self._program, self._roles = program, roles
        self._name = function_name(roles.kernel)
        taken = arguments(program, roles.moving)
        names = python_identifiers()
        self._pointers = {b.name: names.of(("buffer", b.name), f"{b.name}_ptr") for b in taken.pointers}
        self._descriptors = {d: names.of(d, f"{d.buffer.name}_desc") for d in taken.descriptors}
        stored = {descriptor(program.buffer(s.buffer), s.slices) for s in roles.stores}
        self._stored = [text for d, text in self._descriptors.items() if d in stored]
        self._rings = _numbered("a_ring", roles.rows_read) | _numbered("b_ring", roles.columns_read)
        # Tiles of the epilogue that each descriptor loads.
        self._extras = Counter(self._descriptors[self._of(s)] for s in roles.extras)
        # One of two pieces is written while the other is copied, unless the other warp group computes meanwhile.
        self._pieces = 1 if roles.alternating else min(2, len(roles.stores))

    def text(self) -> str:
        places = [self._place(body) for body in (self._roles.counting, self._roles.placing) if body]
        return in_gluon("\n\n\n".join([*places, self._load(), self._finish(), self._dots(), self._entry()]))

    # The places of tiles

    def _place(self, body: tuple[Statement, ...]) -> str:
        """The function that counts tiles, or of a tile's number, that gives the variables bound to data by `body`.

        And tiles of the epilogue.
        """
        printer = KernelPrinter(self._program, self._placing(body))
        text = printer.body_function(f"@gluon.jit\ndef {self._placed_by(body)}", (), self._placed_at(body), [])
        given = [*map(printer.indexing.variable, _bound(body))]
        given += [printer.tiles.name(t.name) for t in self._numbers_of(body)]
        return f"{text}\n{INDENT}return {', '.join(given)}"

    def _placing(self, body: tuple[Statement, ...]) -> Kernel:
        return replace(self._roles.kernel, body=body)

    def _placed_by(self, body: tuple[Statement, ...]) -> str:
        return f"{self._name}_{'count' if body == self._roles.counting else 'place'}"

    def _placed_at(self, body: tuple[Statement, ...]) -> tuple[str, ...]:
        """The variables of the grid on which they depend."""
        return () if body == self._roles.counting else self._variables()

    @property
    def _bound(self) -> tuple[str, ...]:
        """The variables that are bound to data for a tile."""
        return _bound(self._roles.placing)

    @property
    def _numbers(self) -> tuple[Tile, ...]:
        """The single numbers that the epilogue reads of those that place a tile."""
        return self._numbers_of(self._roles.placing)

    def _numbers_of(self, body: tuple[Statement, ...]) -> tuple[Tile, ...]:
        used = {name for s in self._roles.epilogue for name in read(s)}
        made = {t.name: t for s in body for t in produced(s)}
        return tuple(t for name, t in made.items() if name in used)

    def _call_place(self, body: tuple[Statement, ...], block: Block, indexing: Indexing) -> None:
        pointers = [self._pointers[b.name] for b in arguments(self._program, self._placing(body)).pointers]
        given = [*pointers, *map(indexing.variable, self._placed_at(body))]
        made = [*map(indexing.variable, _bound(body)), *map(_placed, self._numbers_of(body))]
        block.write(call(self._placed_by(body), *given, before=f"{', '.join(made)} = "))

    @property
    def _placed(self) -> list[str]:
        """The names of these numbers in the text of roles."""
        return list(map(_placed, self._numbers))

    # The producer

    def _load(self) -> str:
        roles = self._roles
        root, block, indexing = self._scope()
        counter = Count("count", shared=roles.alternating)
        protocol = self._protocol(block, indexing, counter, named=True)
        moves = self._moves()

        def own(s: RoleStatement) -> bool:
            """Copy the epilogue's tiles, by their descriptors, in the order of their loads."""
            if isinstance(s, Place):
                self._call_place(s.body, block, indexing)
                return True
            if not isinstance(s, Copy) or not s.ring.apart:
                return False
            name, starts = protocol.copied(s.load)
            block.write(call("load_tile", name, f"[{starts}]", "extras_full.index(half)", moves.place(name)))
            return True

        # Digits of the loop's variable are defined, once their own variables are.
        variables = self._variables() if roles.loop.digits else ()
        role = RoleBody(roles, root, indexing, protocol, own, self._trips(indexing), variables=variables)
        role.write(roles.producer.body)
        return self._function("load", self._load_arguments(), root)

    def _protocol(self, block: Block, indexing: Indexing, extra: Count, named: bool) -> Protocol:
        roles = self._roles
        rings = {roles.operands.name: self._ring(named)}
        rings[roles.extra.name] = SharedRing(roles.extra, "extras_full", "extras_empty", (), extra)
        trips = self._iterations(indexing) if roles.loop.bound else ""
        variable = self._variable(indexing)
        return Protocol(block, rings, Turns("turn", "1 - half", "1 - half"), self._copied(indexing), variable, trips)

    def _ring(self, named: bool) -> SharedRing:
        return SharedRing(self._roles.operands, "full", "empty", tuple(self._rings.values()), Count("step"), named)

    def _copied(self, indexing: Indexing) -> Callable[[Load], tuple[str, str]]:
        return lambda load: (self._descriptors[self._of(load)], self._starts(indexing, load))

    def _variable(self, indexing: Indexing) -> str:
        return indexing.variable(self._roles.loop.variable)

    def _starts(self, indexing: Indexing, load: Load) -> str:
        buffer = self._program.buffer(load.buffer)
        return ", ".join(indexing.affine(p.start) for p in described(buffer, load.slices))

    # A warp group that computes

    def _dots(self) -> str:
        roles = self._roles
        printer = KernelPrinter(self._program, self._computing, layouts=GroupLayout(), own=self._own)
        root, block, indexing = printer.root, printer.block, printer.indexing
        bits = 8 * dtype(roles.a.dst.dtype).bytes
        shape = [_INSTRUCTION_ROWS, roles.columns, _INSTRUCTION_BITS // bits]
        root.definitions.append(
            f"layout: gl.constexpr = gl.NVMMADistributedLayout("
            f"version=[3, 0], warps_per_cta=[{WARP_GROUP}, 1], instr_shape={shape})"
        )
        if roles.a_through_registers:
            root.definitions.append(
                f"operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=layout, k_width={32 // bits})"
            )
        named = not roles.a_through_registers
        protocol = self._protocol(block, indexing, Count("extra_turn", parity_alone=True), named)
        blocks = {load: self._of(load).block for load in self._rings}
        accumulators = [printer.tiles.name(t.name) for t in roles.accumulators]
        sums = {d.dst.name: printer.tiles.name(d.dst.name) for d in roles.dots}
        dots = GroupDots(roles, self._ring(named), self._operands, blocks, sums)

        def own(s: RoleStatement) -> bool:
            match s:
                case Place(body):
                    self._call_place(body, block, indexing)
                case Finish(body):
                    self._call_finish(body, indexing, protocol, accumulators)
                case Fetch() | Next() | Issue() | Settle():
                    dots.write(s, block)
                case _ if isinstance(s, Statement):
                    printer.print(s)
                case _:
                    return False
            return True

        variables = (*self._variables(), HALF) if roles.share.scaling else ()
        role = RoleBody(
            roles, root, indexing, protocol, own, self._trips(indexing), variables=variables, bound=self._bound
        )
        role.write(roles.consumer.body)
        if self._stored:
            root.body.append("hopper.tma.store_wait(0)")
        return self._function("dots", self._dots_arguments("half: gl.constexpr"), root)

    @property
    def _computing(self) -> Kernel:
        """The work of a group in its loop, as a kernel."""
        fills = (Fill(t, 0.0) for t in self._roles.accumulators)
        return replace(self._roles.finishing, body=(*fills, self._roles.stepping))

    @property
    def _operands(self) -> dict[Load, str]:
        """The variables of operands in the text of a group."""
        return {load: ring.replace("_ring", "") for load, ring in self._rings.items()}

    @property
    def _own(self) -> list[str]:
        """The names in the text of a group besides those of its tiles and variables."""
        return [*OWN, *self._operands.values(), *self._rings.values(), *self._placed]

    def _call_finish(
        self, body: Sequence[RoleStatement], indexing: Indexing, protocol: Protocol, accumulators: list[str]
    ) -> None:
        """Call the epilogue, after its waits and before its releases."""
        for s in body:
            if isinstance(s, Await | Advance):
                protocol.write(s)
        variables = [indexing.variable(v) for v in (*self._variables(), *self._bound)]
        protocol.block.write(call(f"{self._name}_finish", *accumulators, *self._finish_arguments(variables)))
        for s in body:
            if isinstance(s, Release):
                protocol.block.write("hopper.fence_async_shared()")
                protocol.write(s)

    # Its epilogue

    def _finish(self) -> str:
        roles = self._roles
        printer = KernelPrinter(self._program, roles.finishing, self._moves())
        head = f"@gluon.jit\ndef {self._name}_finish"
        rest = [*self._finish_rings(), f"{HALF}: gl.constexpr"]
        given = (*roles.accumulators, *self._numbers)
        return printer.body_function(head, given, (*self._variables(), *self._bound), rest)

    # The kernel

    def _entry(self) -> str:
        roles = self._roles
        scope = Scope()
        block = Block(scope)
        rings = [(ring, self._descriptors[self._of(load)], roles.stages) for load, ring in self._rings.items()]
        stored = ["ring"] if len(self._stored) == 1 else [f"ring_{i}" for i, _ in enumerate(self._stored)]
        rings += [(ring, name, roles.groups * self._pieces) for ring, name in zip(stored, self._stored, strict=True)]
        rings += [(f"extra_{i}", name, roles.groups * n) for i, (name, n) in enumerate(self._extras.items())]
        for ring, name, slots in rings:
            shape = f"[{slots}] + {name}.block_type.shape"
            block.write(f"{ring} = gl.allocate_shared_memory({name}.dtype, {shape}, {name}.layout)")
        barriers = [("full", roles.operands.slots, 1), ("empty", roles.operands.slots, roles.operands.readers)]
        barriers += [("order", 2, 1)] if roles.alternating else []
        barriers += [("extras_full", roles.groups, 1), ("extras_empty", roles.groups, 1)] if roles.extras else []
        for name, count, _ in barriers:
            block.write(f"{name} = gl.allocate_shared_memory(gl.int64, [{count}, 1], hopper.mbarrier.MBarrierLayout())")
        for name, count, arrivals in barriers:
            block.open(f"for i in gl.static_range({count}):")
            block.write(f"hopper.mbarrier.init({name}.index(i), count={arrivals})")
            block.close()
        if len(stored) > 1:
            block.write(f"ring = ({', '.join(stored)})")
        if roles.extras:
            block.write(f"extras = ({' '.join(f'extra_{i},' for i in range(len(self._extras)))})")
        specialize(block, self._name, roles, lambda half: self._dots_arguments(str(half)), self._load_arguments())
        return "\n".join(
            [
                "@gluon.jit",
                f"def {self._name}({', '.join([*self._pointers.values(), *self._descriptors.values()])}):",
                *scope.text(1),
            ]
        )

    # Parts of them

    def _scope(self) -> tuple[Scope, Block, Indexing]:
        root = Scope()
        block = Block(root)
        digits = loop_digits(self._roles.kernel)
        return root, block, Indexing(self._extents(), python_identifiers(), block, digits)

    def _trips(self, indexing: Indexing) -> Callable[[For], tuple[str, str]]:
        return lambda loop: ("0", self._iterations(indexing))

    def _iterations(self, indexing: Indexing) -> str:
        loop = self._roles.loop
        return iterations(loop, indexing) if loop.bound else str(loop.extent)

    def _variables(self) -> tuple[str, ...]:
        return tuple(a.variable for a in self._roles.kernel.grid.axes if a.extent > 1)

    def _of(self, load: Load) -> Descriptor:
        return loading_descriptor(self._program.buffer(load.buffer), load, self._extents())

    def _extents(self) -> dict[str, int]:
        return {**loop_extents(self._roles.kernel), HALF: 2}

    def _load_arguments(self) -> list[str]:
        loads = (*self._roles.loads, *self._roles.extras)
        loaded = dict.fromkeys(self._descriptors[self._of(s)] for s in loads)
        extras = ["extras", "extras_full", "extras_empty"] if self._extras else []
        placing = self._pointers.values() if self._roles.placing else ()
        return [*placing, *loaded, *self._rings.values(), "full", "empty", *extras]

    def _dots_arguments(self, half: str) -> list[str]:
        order = ["order"] if self._roles.alternating else []
        extras = ["extras_full", "extras_empty"] if self._extras else []
        own = [*self._rings.values(), "full", "empty", *order, *extras, *self._finish_rings(), half]
        return [*self._pointers.values(), *self._finish_descriptors(), *own]

    def _finish_arguments(self, variables: list[str]) -> list[str]:
        return [
            *self._placed,
            *(self._pointers[b.name] for b in arguments(self._program, self._roles.finishing).pointers),
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
        return [self._descriptors[d] for d in arguments(self._program, self._roles.finishing).descriptors]

    def _function(self, part: str, parameters: list[str], scope: Scope) -> str:
        return "\n".join(["@gluon.jit", f"def {self._name}_{part}({', '.join(parameters)}):", *scope.text(1)])


def _bound(body: Sequence[Statement]) -> tuple[str, ...]:
    """The variables that statements bind to data."""
    return tuple(s.variable for s in body if isinstance(s, Let))


def _placed(number: Tile) -> str:
    """The name in the text of roles of a number that places a tile."""
    return f"placed_{identifier(number.name)}"


def _numbered(name: str, of: Sequence[_T]) -> dict[_T, str]:
    """A name for each: the given one, followed by numbers from the second on."""
    return {x: f"{name}{number if number > 1 else ''}" for number, x in enumerate(of, 1)}


def in_gluon(text: str) -> str:
    """Triton's names of functions that both languages have, in Gluon."""
    return re.sub(r"\btl\.(?!PropagateNan)", "gl.", text)
