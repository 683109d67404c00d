"""Loops of producer and consumers over the tiles of a program and the steps of a tile; slots of the ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosched.backends.cuda.language.scope import open_braces
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.printing.grid import position
from autosched.backends.printing.loops import first_and_end
from search_spaces.programs.roles.halves import HALF
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.statements import Place, RoleStatement
from search_spaces.programs.statements import Let


@dataclass(frozen=True)
class Loops:
    """Prints loops that the producer and the warp groups have in common; these print the bodies."""

    roles: ProductRoles
    printer: KernelPrinter

    def open_tiles(self, every: int) -> None:
        """Open the loop over a program's tiles, of which a group has every `every`-th, and define their positions."""
        grid, blocks = self.roles.kernel.grid, self.roles.blocks
        # The first tile is that of a block, or of all blocks of a cluster.
        first = "int(blockIdx.x)" if blocks == 1 else f"int(blockIdx.x) / {blocks}"
        first += f" + {HALF} * {grid.programs}" if every > 1 else ""
        header = f"for (int tile = {first}; tile < {self._end}; tile += {every * grid.programs})"
        scope = open_braces(self.printer.block, header, *(a.variable for a in grid.axes))
        scope.definitions += position(grid, self.printer.indexing, "tile", self._live) if grid.tiles > 1 else []

    @property
    def _live(self) -> str:
        live = self.roles.kernel.grid.live
        return self.printer.indexing.variable(live) if live else ""

    @property
    def _end(self) -> str:
        grid = self.roles.kernel.grid
        return f"{self._live} * {grid.tiles // grid.axes[0].extent}" if self._live else str(grid.tiles)

    def place(self, s: Place) -> None:
        """Print what places a tile, or counts tiles; its variables are known until `end` of the body that it is in."""
        for statement in s.body:
            self.printer.print(statement)

    def end(self, body: Sequence[RoleStatement]) -> None:
        for _ in (x for s in body if isinstance(s, Place) for x in s.body if isinstance(x, Let)):
            self.printer.block.close()

    @property
    def is_last(self) -> str:
        """The condition that a warp group has no tile behind this one."""
        grid = self.roles.kernel.grid
        return f"tile + {grid.programs * (1 + self.roles.alternating)} >= {self._end}"

    @property
    def steps(self) -> str:
        """Trip count of the main loop."""
        _, end = first_and_end(self.roles.loop, self.printer.indexing)
        return end

    @property
    def step(self) -> str:
        """The variable of the main loop."""
        return self.printer.indexing.variable(self.roles.loop.variable)

    def open_steps(self) -> None:
        header = f"for (int {self.step} = 0; {self.step} < {self.steps}; ++{self.step})"
        open_braces(self.printer.block, f"#pragma unroll 1\n{header}")

    def advance(self) -> None:
        """Advance to the next slot; the barriers' parity changes with every rotation of the ring."""
        self.printer.block.write(f"if (++slot == {self.roles.stages}) slot = 0, parity ^= 1;")
