"""Loops of producer and consumers over the tiles of a program and the steps of a tile; slots of the ring."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.cuda.language.scope import open_braces
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.printing.grid import position
from autosched.backends.printing.loops import first_and_end
from search_spaces.programs.roles.halves import HALF
from search_spaces.programs.roles.products import ProductRoles


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
        header = f"for (int tile = {first}; tile < {grid.tiles}; tile += {every * grid.programs})"
        scope = open_braces(self.printer.block, header, *(a.variable for a in grid.axes))
        scope.definitions += position(grid, self.printer.indexing, "tile") if grid.tiles > 1 else []

    @property
    def is_last(self) -> str:
        """The condition that a warp group has no tile behind this one."""
        grid = self.roles.kernel.grid
        return f"tile + {grid.programs * (1 + self.roles.alternating)} >= {grid.tiles}"

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
