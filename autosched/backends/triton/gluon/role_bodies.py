"""Bodies of warp roles, as Gluon: the loops over tiles and steps; printers add the statements that are their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autosched.backends.gpu.warps import WARP_GROUP
from autosched.backends.printing.scope import Block, Scope
from autosched.backends.triton.gluon.protocol import Protocol
from autosched.backends.triton.language.grid import live, position, tiles_end
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.marked import open_marked
from search_spaces.programs.roles.statements import EachGroup, Roles, RoleStatement, Steps, Tiles
from search_spaces.programs.statements import For
from search_spaces.programs.tiles import Tile


@dataclass(frozen=True)
class RoleBody:
    """Prints the statements of a role.

    `own`: prints a statement that concerns tiles, and returns False for others; `trips`: the first iteration and the
    end of a loop; `marks`: a tile by name, and its name in the text. `variables`: of the grid, used by other text as
    well; if a program has one tile, they are defined before all else. `bound`: those bound to data, known in steps.
    """

    roles: Roles
    root: Scope
    indexing: Indexing
    protocol: Protocol
    own: Callable[[RoleStatement], bool]
    trips: Callable[[For], tuple[str, str]]
    marks: Callable[[str], tuple[Tile, str]] | None = None
    variables: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()

    @property
    def block(self) -> Block:
        return self.protocol.block

    def write(self, body: Sequence[RoleStatement]) -> None:
        for s in body:
            match s:
                case Tiles(body=inner, every=every):
                    self._open_tiles(every)
                    self.write(inner)
                case Steps(body=inner):
                    self._open_steps(s)
                    self.write(inner)
                    self.block.close()
                case EachGroup(body=inner, alternating=True):
                    self.block.write("half = count % 2")
                    self.write(inner)
                case EachGroup(body=inner):
                    self.block.open(f"for half in gl.static_range({self.roles.groups}):")
                    self.write(inner)
                    self.block.close()
                case _ if not self.own(s):
                    self.protocol.write(s)

    def _open_tiles(self, every: int) -> None:
        """Define the tile, or open the loop over a program's tiles, of which a group has every `every`-th."""
        grid = self.roles.kernel.grid
        where = position(grid, self.indexing, "tile", live(grid, self.indexing)) if grid.tiles > 1 else []
        if grid.walked:
            first = f"tl.program_id(0) + half * {grid.programs}" if every > 1 else "tl.program_id(0)"
            header = f"for tile in range({first}, {tiles_end(grid, self.indexing)}, {every * grid.programs}):"
            self.block.open(header, *self.variables).definitions += where
            return
        self.root.variables = frozenset(self.variables)
        lines = ["tile = tl.program_id(0)", *where] if where else []
        if self.variables:
            self.root.definitions += lines
        else:
            self.root.body += lines

    def _open_steps(self, s: Steps) -> None:
        loop, variable = s.loop, self.indexing.variable(s.loop.variable)
        if loop.marks and self.marks:
            open_marked(loop, *self.marks(loop.marks), self.indexing, self.block, staged=False)
            return
        first, end = self.trips(loop)
        if s.part == "first":
            self.block.open("", loop.variable).definitions.append(f"{variable} = {first}")
            return
        if s.part == "behind the first":
            first = "1" if first == "0" else f"{first} + 1"
        elif s.part == "before the last":
            end = f"{end} - 1"
        times = end if first == "0" else f"{first}, {end}"
        self.block.open(f"for {variable} in range({times}):", loop.variable, *self.bound)


def specialize(block: Block, name: str, roles: Roles, group: Callable[[int], list[str]], producer: list[str]) -> None:
    """Start the warps of all roles, given the arguments of each group and those of the producer."""
    others = roles.groups - 1
    block.open("gl.warp_specialize(")
    block.open("[")
    for half in range(roles.groups):
        block.write(f"({name}_dots, ({', '.join(group(half))})),")
    block.write(f"({name}_load, ({', '.join(producer)})),")
    block.close()
    block.write("],")
    block.write(f"{[WARP_GROUP] * others + [roles.producer.warps]},")
    block.write(f"{[roles.consumer.registers] * others + [roles.producer.registers]},")
    block.close()
    block.write(")")
