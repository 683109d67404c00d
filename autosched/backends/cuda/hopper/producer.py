"""The thread that loads operands into the ring, and tiles for epilogues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.cuda.hopper.extras import Extras
from autosched.backends.cuda.hopper.instructions import load_name
from autosched.backends.cuda.hopper.loops import Loops
from autosched.backends.cuda.hopper.ring import RingPlan
from autosched.backends.cuda.language.scope import call, open_braces
from autosched.backends.gpu.kernel import TensorMap
from autosched.backends.printing.scope import Block
from search_spaces.programs.roles.products import TILE
from search_spaces.programs.roles.statements import (
    Acquire,
    Advance,
    Copy,
    Drain,
    EachGroup,
    Place,
    RoleStatement,
    Start,
    Steps,
    Tiles,
)
from search_spaces.programs.statements import Load


@dataclass(frozen=True)
class Producer:
    """Prints the role of that thread's warp group; `maps`: the names of tensor maps."""

    loops: Loops
    ring: RingPlan
    extras: Extras
    maps: Mapping[TensorMap, str]

    @property
    def block(self) -> Block:
        return self.loops.printer.block

    def write(self) -> None:
        role = self.loops.roles.producer
        if self.loops.roles.groups > 1:
            self.block.write(f"fewer_registers<{role.registers}>();")
        open_braces(self.block, "if (thread == 0)")
        self._write(role.body)
        self.block.close()

    def _write(self, body: Sequence[RoleStatement]) -> None:
        for s in body:
            match s:
                case Start(position):
                    self.block.write("int extra_tile = 0;" if position == TILE else "int slot = 0, parity = 1;")
                case Tiles(body=inner):
                    self.loops.open_tiles(1)
                    self._nested(inner)
                case Steps(body=inner):
                    self.loops.open_steps()
                    self._nested(inner)
                case Place():
                    self.loops.place(s)
                case EachGroup(body=inner, alternating=alternating):
                    self.extras.open_groups(self.loops.printer, alternating)
                    self._nested(inner)
                case Acquire(ring) if ring.apart:
                    self.extras.acquire(self.loops.printer)
                case Copy(ring, load) if ring.apart:
                    self.extras.copy(load, self.loops.printer, self.maps)
                case Acquire():
                    # A barrier that was never used counts as passed for the phase before the first.
                    self.block.write("barrier_wait(empty + 8 * slot, parity);")
                    self.block.write(f"barrier_expect(full + 8 * slot, {self.ring.expected});")
                    self.block.write(f"const uint32 here = ring + slot * {self.ring.slot_bytes};")
                case Copy(load=load):
                    self._copy(load)
                case Advance(position):
                    self.block.write("++extra_tile;") if position == TILE else self.loops.advance()
                case Drain(ring):
                    open_braces(self.block, f"for (int i = 0; i < {ring.slots}; ++i)")
                    self.block.write("barrier_wait(empty + 8 * slot, parity);")
                    self.loops.advance()
                    self.block.close()
                case _:
                    raise AssertionError(f"a producer has no {type(s).__name__}")
        self.loops.end(body)

    def _nested(self, body: Sequence[RoleStatement]) -> None:
        self._write(body)
        self.block.close()

    def _copy(self, load: Load) -> None:
        """Load an operand, or this block's share of it for all blocks of the cluster."""
        operand = self.ring.operands[load.dst.name]
        shared = operand.shares > 1
        everyone = [str(2**operand.shares - 1)] if shared else []
        name = load_name(shared, operand.map.window is not None)
        for place, starts in operand.loads(self.loops.printer.indexing):
            to = "here" if place == "0" else f"here + {place}"
            arguments = (to, self.maps[operand.map], "full + 8 * slot", *everyone, *starts)
            self.block.write(call(name, *arguments) + ";")
