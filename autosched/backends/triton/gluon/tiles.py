"""The tiles of a program: one, or one after the other."""

from __future__ import annotations

from autosched.backends.printing.scope import Block, Scope
from autosched.backends.triton.language.grid import position
from autosched.backends.triton.language.index import Indexing
from search_spaces.programs.grid import Grid


def open_tiles(grid: Grid, every: int, indexing: Indexing, root: Scope, block: Block, *variables: str) -> None:
    """Say which tile it is, or begin the loop over those of a program, of which a group has one of so many.

    `variables`: those of the grid where more is defined by them, before all else where a program has one tile.
    """
    where = position(grid, indexing, "tile") if grid.tiles > 1 else []
    if grid.walked:
        first = f"tl.program_id(0) + half * {grid.programs}" if every > 1 else "tl.program_id(0)"
        scope = block.open(f"for tile in range({first}, {grid.tiles}, {every * grid.programs}):", *variables)
        scope.definitions += where
        return
    root.variables = frozenset(variables)
    lines = ["tile = tl.program_id(0)", *where] if where else []
    if variables:
        root.definitions += lines
    else:
        root.body += lines
