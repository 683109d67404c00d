"""The dots of a warp group over the steps of a tile, as Gluon, with operands in rings of slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autosched.backends.printing.scope import Block, call
from autosched.backends.triton.gluon.protocol import SharedRing
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.requests import k_major
from search_spaces.programs.roles.statements import Fetch, Issue, Next, RoleStatement, Settle
from search_spaces.programs.statements import Dot, Load
from search_spaces.programs.tiles import Tile


class GroupLayout:
    """The layout of a group's accumulators; all that is computed from them has what follows from it."""

    def of(self, tile: Tile) -> str:
        return "layout" if len(tile.axes) > 1 else ""

    def moved(self, text: str, tile: Tile, axes: tuple[str, ...]) -> str:
        return text


@dataclass(frozen=True)
class GroupDots:
    """Prints a group's dots and the moves of their operands.

    `names`: the variables of operands, `blocks`: the shapes of their slots; `sums`: the variables of accumulators.
    """

    roles: ProductRoles
    ring: SharedRing
    names: Mapping[Load, str]
    blocks: Mapping[Load, tuple[int, ...]]
    sums: Mapping[str, str]

    def write(self, s: RoleStatement, block: Block) -> None:
        match s:
            case Fetch(load=load, ahead=ahead):
                name = f"next_{self.names[load]}" if ahead else self.names[load]
                block.write(f"{name} = {self._operand(load, self.roles.dot, ahead)}.load(operand)")
            case Next(load):
                block.write(f"{self.names[load]} = next_{self.names[load]}")
            case Issue():
                self._issue(s, block)
            case Settle(dots, left):
                sums = [self.sums[d.dst.name] for d in dots]
                sums += [self.names[self.roles.a]] if self.roles.a_through_registers else []
                names = ", ".join(sums)
                deps = names if len(sums) > 1 else f"{names},"
                block.write(f"{names} = hopper.warpgroup_mma_wait({left}, deps=({deps}))")
            case _:
                raise AssertionError(f"{type(s).__name__} is printed elsewhere")

    def _issue(self, s: Issue, block: Block) -> None:
        given = dict(self.names)
        if self.roles.a_through_registers:
            given[self.roles.b] = self._operand(self.roles.b, self.roles.dot)
        else:
            for load, name in self.names.items():
                block.write(f"{name} = {self._operand(load, self.roles.dot)}")
        for dot in s.dots:
            a, b = (given[self._load(x)] for x in self.roles.sides(dot))
            acc = self.sums[dot.dst.name]
            start = ["use_acc=False"] if dot.dst.name in s.anew else []
            block.write(call("hopper.warpgroup_mma", a, b, acc, *start, "is_async=True", before=f"{acc} = "))

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
