"""How the warps of a block go over the tiles of a program, and over the slots of the ring."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.cuda.language.scope import open_braces
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.gpu.specialized.form import DotForm
from autosched.backends.gpu.specialized.halves import HALF
from autosched.backends.printing.grid import position
from autosched.backends.printing.loops import first_and_end


@dataclass(frozen=True)
class Walk:
    """Prints what the producer and the warp groups have in common; what is between is written by them."""

    form: DotForm
    printer: KernelPrinter

    def open_tiles(self, first: str, every: int) -> None:
        """Begin the loop over the tiles of a program, `every` so many of them, and say which they are."""
        grid = self.form.kernel.grid
        header = f"for (int tile = {first}; tile < {grid.tiles}; tile += {every * grid.programs})"
        scope = open_braces(self.printer.block, header, *(a.variable for a in grid.axes))
        scope.definitions += position(grid, self.printer.indexing, "tile") if grid.tiles > 1 else []

    @property
    def first(self) -> str:
        """The first tile of a program: of a block, or of all blocks of a cluster."""
        blocks = self.form.blocks
        return "int(blockIdx.x)" if blocks == 1 else f"int(blockIdx.x) / {blocks}"

    def open_group_tiles(self) -> None:
        """The same for a warp group: every tile, or every other one."""
        grid = self.form.kernel.grid
        if self.form.alternating:
            self.open_tiles(f"{self.first} + {HALF} * {grid.programs}", 2)
        else:
            self.open_tiles(self.first, 1)

    @property
    def is_last(self) -> str:
        """The condition that a warp group has no tile behind this one."""
        grid = self.form.kernel.grid
        return f"tile + {grid.programs * (1 + self.form.alternating)} >= {grid.tiles}"

    @property
    def steps(self) -> str:
        """How many iterations the loop of dots has."""
        _, end = first_and_end(self.form.loop, self.printer.indexing)
        return end

    @property
    def step(self) -> str:
        """The variable of that loop."""
        return self.printer.indexing.variable(self.form.loop.variable)

    def open_steps(self) -> None:
        header = f"for (int {self.step} = 0; {self.step} < {self.steps}; ++{self.step})"
        open_braces(self.printer.block, f"#pragma unroll 1\n{header}")

    def advance(self) -> None:
        """To the next slot; a slot's barriers change parity with every turn of the ring."""
        self.printer.block.write(f"if (++slot == {self.form.stages}) slot = 0, parity ^= 1;")
