"""A consumer group of chained dots: the dots, the pointwise work between them, and the waits for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosched.backends.gpu.warps import WARP_GROUP
from autosched.backends.printing.scope import call
from autosched.backends.triton.gluon.chains.layouts import GroupLayouts
from autosched.backends.triton.gluon.chains.marks import hold_marks
from autosched.backends.triton.gluon.chains.places import Places
from autosched.backends.triton.gluon.role_bodies import RoleBody
from autosched.backends.triton.language.loops import first_and_end
from autosched.backends.triton.printer import KernelPrinter
from search_spaces.programs.roles.chains import ChainRoles, sides
from search_spaces.programs.roles.requests import k_major
from search_spaces.programs.roles.statements import (
    Everywhere,
    Finish,
    Issue,
    Keep,
    RoleStatement,
    Settle,
)
from search_spaces.programs.statements import Dot, Statement


def group(roles: ChainRoles, places: Places, layouts: GroupLayouts, printer: KernelPrinter, finish: str) -> list[str]:
    """The lines of its function, which calls `finish` for every tile."""
    printer.root.definitions += layouts.definitions
    indexing, protocol = printer.indexing, places.protocol(printer.block, printer.indexing)
    own = _Group(roles, places, layouts, printer, finish).write
    body = RoleBody(
        roles,
        printer.root,
        indexing,
        protocol,
        own,
        lambda loop: first_and_end(loop, indexing),
        places.marks(printer),
        roles.variables,
    )
    body.write(roles.consumer.body)
    if roles.stores:
        printer.root.body.append("hopper.tma.store_wait(0)")
    return printer.root.text(1)


@dataclass(frozen=True)
class _Group:
    """Prints the role of a consumer group."""

    roles: ChainRoles
    places: Places
    layouts: GroupLayouts
    printer: KernelPrinter
    finish: str

    def write(self, s: RoleStatement) -> bool:
        """Print a statement if it concerns tiles; False for others."""
        match s:
            case Everywhere(loads):
                hold_marks(loads, self.printer, WARP_GROUP)
            case Keep(dots):
                self._keep(dots)
            case Issue(dots):
                for number, dot in enumerate(dots):
                    self._issue(number, dot, s)
            case Settle(dots, left):
                self._settle(dots, left)
            case Finish():
                self.printer.block.write(self.finish)
            case _ if isinstance(s, Statement):
                self.printer.print(s)
            case _:
                return False
        return True

    def _keep(self, dots: Sequence[Dot]) -> None:
        for number, dot in enumerate(dots):
            rows, _ = sides(dot, self.roles.tiles)
            if rows not in self.roles.shared:
                layout = self.layouts.operand(dot.dst.axes[1])
                self.printer.block.write(f"{_kept(number)} = gl.convert_layout({self._name(rows)}, {layout})")

    def _issue(self, number: int, dot: Dot, s: Issue) -> None:
        """Begin a dot, with its number among the group's."""
        rows, columns = sides(dot, self.roles.tiles)
        a = self._shared(rows, dot, s.ahead, True) if rows in self.roles.shared else _kept(number)
        b = self._shared(columns, dot, s.ahead, False)
        name = self._name(dot.dst.name)
        start = ["use_acc=False"] if dot.dst.name in s.anew else []
        self.printer.block.write(call("hopper.warpgroup_mma", a, b, name, *start, "is_async=True", before=f"{name} = "))

    def _settle(self, dots: Sequence[Dot], left: int) -> None:
        kept = [_kept(n) for n, d in enumerate(dots) if sides(d, self.roles.tiles)[0] not in self.roles.shared]
        names = ", ".join([*(self._name(d.dst.name) for d in dots), *kept])
        deps = names if ", " in names else f"{names},"
        self.printer.block.write(f"{names} = hopper.warpgroup_mma_wait({left}, deps=({deps}))")

    def _shared(self, tile: str, dot: Dot, ahead: int, of_rows: bool) -> str:
        """An operand in shared memory, in either layout; of rows, the group's part."""
        load = self.roles.shared[tile]
        text = self.places.place(load, ahead) + self.places.reshaped(load)
        if of_rows and self.roles.groups > 1:
            dimension = load.dst.axes.index(dot.dst.axes[0])
            text += f".slice(half * {self.roles.rows}, {self.roles.rows}{', 1' if dimension else ''})"
        return f"{text}.permute((1, 0))" if k_major(load, dot) != of_rows else text

    def _name(self, tile: str) -> str:
        return self.printer.tiles.name(tile)


def _kept(number: int) -> str:
    """Name of the register operand of a numbered dot."""
    return f"rows_{number}"
