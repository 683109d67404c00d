"""The tiles of a program of a walk: one, or one after the other."""

from __future__ import annotations

from autosched.backends.printing.scope import Block, Scope
from autosched.backends.triton.gluon.walks.form import WalkForm
from autosched.backends.triton.language.grid import position
from autosched.backends.triton.language.index import Indexing


def open_tiles(form: WalkForm, indexing: Indexing, root: Scope, block: Block) -> None:
    """Say which tile it is, or begin the loop over those of a program."""
    grid = form.kernel.grid
    variables = frozenset(a.variable for a in form.moving.grid.axes)
    if grid.walked:
        scope = block.open(f"for tile in range(tl.program_id(0), {grid.tiles}, {grid.programs}):", *variables)
        scope.definitions += position(grid, indexing, "tile")
        return
    root.variables = variables
    if grid.tiles > 1:
        root.definitions += ["tile = tl.program_id(0)", *position(grid, indexing, "tile")]
