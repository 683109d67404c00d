"""The dots of a warp group over the steps of a tile, as Gluon, with operands in rings of slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.printing.scope import Block, call
from autosched.backends.triton.gluon.protocol import SharedRing
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.requests import k_major
from search_spaces.programs.roles.statements import Fetch, Issue, Next, Partial, Promote, RoleStatement, Settle
from search_spaces.programs.statements import Dot, Fill, Load


@dataclass(frozen=True)
class GroupDots:
    """Prints a group's work on accumulators and operands.

    `names`: the variables of operands, `blocks`: the shapes of their slots.
    """

    roles: ProductRoles
    ring: SharedRing
    names: Mapping[Load, str]
    blocks: Mapping[Load, tuple[int, ...]]
    accumulators: Sequence[str]

    def write(self, s: RoleStatement, block: Block) -> None:
        match s:
            case Fill(dst=dst):
                acc = self.accumulators[[t.name for t in self.roles.accumulators].index(dst.name)]
                zero = "0" if dst.dtype == "int32" else "0.0"
                block.write(f"{acc} = gl.full({list(dst.shape)}, {zero}, gl.{dst.dtype}, layout)")
            case Fetch(load=load, ahead=ahead):
                name = f"next_{self.names[load]}" if ahead else self.names[load]
                block.write(f"{name} = {self._operand(load, self.roles.dot, ahead)}.load(operand)")
            case Next(load):
                block.write(f"{self.names[load]} = next_{self.names[load]}")
            case Partial():
                block.write("sums = acc")
            case Promote():
                block.write("acc += sums")
            case Issue():
                self._issue(s, block)
            case Settle(left=left):
                sums = ["sums"] if self.roles.promotes else [*self.accumulators]
                sums += [self.names[self.roles.a]] if self.roles.a_through_registers else []
                names = ", ".join(sums)
                deps = names if len(sums) > 1 else f"{names},"
                block.write(f"{names} = hopper.warpgroup_mma_wait({left}, deps=({deps}))")
            case _:
                raise AssertionError(f"{type(s).__name__} is printed elsewhere")

    def _issue(self, s: Issue, block: Block) -> None:
        if s.partial:
            a, b = (self._operand(self._load(x), self.roles.dot) for x in self.roles.sides(self.roles.dot))
            block.write(call("hopper.warpgroup_mma", a, b, "sums", "use_acc=False", "is_async=True", before="sums = "))
            return
        if self.roles.a_through_registers:
            b = self._operand(self.roles.b, self.roles.dot)
            block.write(f"acc = hopper.warpgroup_mma({self.names[self.roles.a]}, {b}, acc, is_async=True)")
            return
        for load, name in self.names.items():
            block.write(f"{name} = {self._operand(load, self.roles.dot)}")
        for dot, acc in zip(s.dots, self.accumulators, strict=True):
            a, b = (self.names[self._load(x)] for x in self.roles.sides(dot))
            block.write(f"{acc} = hopper.warpgroup_mma({a}, {b}, {acc}, is_async=True)")

    def _operand(self, load: Load, dot: Dot, ahead: int = 0) -> str:
        """An operand in its slot, in either layout; of rows, the group's part."""
        of_rows = load in self.roles.rows_read
        text = self.ring.place(load, ahead)
        text += "" if self.blocks[load] == load.dst.shape else f".reshape({list(load.dst.shape)})"
        if of_rows and self.roles.shares_tile:
            dimension = load.dst.axes.index(dot.dst.axes[0])
            text += f".slice(half * {self.roles.rows}, {self.roles.rows}{', 1' if dimension else ''})"
        return f"{text}.permute((1, 0))" if k_major(load, dot) != of_rows else text

    def _load(self, tile: str) -> Load:
        return next(load for load in self.roles.loads if load.dst.name == tile)
