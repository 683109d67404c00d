"""Chained dots as Gluon, with the roles of warps that `programs.roles.chains` makes.

A kernel is four functions: its entry; `_load`, the producer; `_finish`, the epilogue; `_dots`, a group of consumers,
whose operands computed in registers never leave them.
"""

from __future__ import annotations

from collections import Counter

from autosched.backends.gpu.arguments import descriptor
from autosched.backends.printing.scope import Block, Scope
from autosched.backends.triton.gluon.chains.group import group
from autosched.backends.triton.gluon.chains.layouts import GroupLayouts
from autosched.backends.triton.gluon.chains.places import OWN, Places
from autosched.backends.triton.gluon.chains.producer import producer
from autosched.backends.triton.gluon.epilogue_moves import GroupMoves
from autosched.backends.triton.gluon.printer import in_gluon
from autosched.backends.triton.gluon.role_bodies import specialize
from autosched.backends.triton.language.scope import python_identifiers
from autosched.backends.triton.memory import Parameters
from autosched.backends.triton.printer import KernelPrinter, function_name
from search_spaces.programs.roles.chains import ChainRoles
from search_spaces.programs.roles.halves import HALF
from search_spaces.programs.tile_program import TileProgram


def print_kernel(program: TileProgram, roles: ChainRoles) -> str:
    """The functions of a kernel of chained dots with these roles."""
    return _Printer(program, roles).text()


class _Printer:
    """Prints one kernel."""

    def __init__(self, program: TileProgram, roles: ChainRoles) -> None:
        self._program, self._roles = program, roles
        self._name = function_name(roles.kernel)
        self._parameters = Parameters.of(program, roles.moving, python_identifiers())
        self._places = Places(program, roles, self._parameters.descriptors)
        stored = {descriptor(program.buffer(s.buffer), s.slices) for s in roles.stores}
        self._stored = [text for d, text in self._parameters.descriptors.items() if d in stored]
        self._layouts = GroupLayouts(roles.rows_axis, roles.points_axis, roles.computed)

    def text(self) -> str:
        return in_gluon("\n\n\n".join([self._load(), self._finish(), self._dots(), self._entry()]))

    def _load(self) -> str:
        names = [*self._marking, *self._loading, *self._places.names]
        printer = KernelPrinter(self._program, self._roles.moving, own=OWN) if self._roles.marking else None
        return self._function("load", names, producer(self._roles, self._places, printer))

    def _finish(self) -> str:
        roles = self._roles
        moves = GroupMoves(Counter(), self._stored, pieces=1)
        # Stored tiles of rows have the accumulators' layout, so that all addresses of rows are the same.
        stored = next((t.axes[1] for t in roles.finished if len(t.axes) == 2), roles.points_axis)
        layouts = GroupLayouts(roles.rows_axis, stored, roles.computed)
        printer = KernelPrinter(self._program, roles.finishing, moves, layouts, OWN)
        printer.root.definitions += layouts.definitions
        for name in (t.name for t in roles.finished if t.axes == (roles.rows_axis,)):
            name = printer.tiles.name(name)
            printer.root.definitions.append(f"{name} = gl.convert_layout({name}, {layouts.by_rows})")
        head = f"@gluon.jit\ndef {self._name}_finish"
        return printer.body_function(
            head, roles.finished, self._variables, [*self._stored_rings, f"{HALF}: gl.constexpr"]
        )

    def _dots(self) -> str:
        roles = self._roles
        printer = KernelPrinter(self._program, roles.moving, layouts=self._layouts, own=OWN)
        finishing = Parameters.of(self._program, roles.finishing, python_identifiers())
        given = [
            *(printer.tiles.name(t.name) for t in roles.finished),
            *finishing.pointers.values(),
            *(self._parameters.descriptors[d] for d in finishing.descriptors),
            *(printer.indexing.variable(v) for v in self._variables),
            *self._stored_rings,
            HALF,
        ]
        finish = f"{self._name}_finish({', '.join(given)})"
        lines = group(roles, self._places, self._layouts, printer, finish)
        return self._function("dots", self._dots_arguments(f"{HALF}: gl.constexpr"), lines)

    def _entry(self) -> str:
        roles, places = self._roles, self._places
        block = Block(root := Scope())
        for ring in roles.rings:
            for load, place in zip(ring.loads, places.rings[ring.name].places, strict=True):
                _allocate(block, place, places.descriptor(load), ring.slots if ring.slots > 1 else None)
        for name, of in zip(self._stored_names, self._stored, strict=True):
            _allocate(block, name, of, roles.groups)
        barriers = []
        for ring in roles.rings:
            shared = places.rings[ring.name]
            barriers += [(shared.full, ring.slots, 1), (shared.empty, ring.slots, ring.readers)]
        barriers += [("order", roles.groups, 1)] if roles.alternating else []
        for name, count, arrivals in barriers:
            _allocate_barriers(block, name, count, arrivals)
        if len(self._stored) > 1:
            block.write(f"ring = ({', '.join(self._stored_names)})")
        producer = [*self._marking, *self._loading, *places.names]
        specialize(block, self._name, roles, lambda half: self._dots_arguments(str(half)), producer)
        return self._function("", self._parameters.names, root.text(1))

    # Parts of them

    @property
    def _variables(self) -> tuple[str, ...]:
        return tuple(a.variable for a in self._roles.kernel.grid.axes if a.extent > 1)

    @property
    def _loading(self) -> list[str]:
        """The descriptors of the producer's loads."""
        return list(dict.fromkeys(self._places.descriptor(load) for ring in self._roles.rings for load in ring.loads))

    @property
    def _marking(self) -> list[str]:
        """Pointers to the buffers of the marks."""
        return list(dict.fromkeys(self._parameters.pointers[s.buffer] for s in self._roles.marking))

    @property
    def _stored_names(self) -> list[str]:
        return ["ring"] if len(self._stored) == 1 else [f"ring_{i}" for i, _ in enumerate(self._stored)]

    @property
    def _stored_rings(self) -> list[str]:
        return ["ring"] if self._stored else []

    def _dots_arguments(self, half: str) -> list[str]:
        """Every pointer, and the descriptors of stores."""
        return [*self._parameters.pointers.values(), *self._stored, *self._places.names, *self._stored_rings, half]

    def _function(self, part: str, parameters: list[str], lines: list[str]) -> str:
        name = f"{self._name}_{part}" if part else self._name
        return "\n".join(["@gluon.jit", f"def {name}({', '.join(parameters)}):", *lines])


def _allocate(block: Block, name: str, of: str, slots: int | None) -> None:
    """Allocate a place for a tile of a descriptor, or `slots` places."""
    shape = f"{of}.block_type.shape" if slots is None else f"[{slots}] + {of}.block_type.shape"
    block.write(f"{name} = gl.allocate_shared_memory({of}.dtype, {shape}, {of}.layout)")


def _allocate_barriers(block: Block, name: str, count: int, arrivals: int) -> None:
    block.write(f"{name} = gl.allocate_shared_memory(gl.int64, [{count}, 1], hopper.mbarrier.MBarrierLayout())")
    block.open(f"for i in gl.static_range({count}):")
    block.write(f"hopper.mbarrier.init({name}.index(i), count={arrivals})")
    block.close()
