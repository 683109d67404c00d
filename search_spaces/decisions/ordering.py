"""Order of tiles: it is chosen so that programs that run together share operands in the cache (rasterisation).

Before:  grid m.0, n.0                                               neighbours share rows
After (order=column_major):  grid n.0, m.0                           neighbours share columns
      (group=8):             grid m.0 // 8, n.0, m.0 % 8             eight rows of tiles interleaved, column by column

Also called block swizzling or rasterisation (CUTLASS), grouped ordering (Triton's tutorial), reorder (TVM, Halide).
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_kernel
from search_spaces.programs.grid import Grid
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("order", "group")
WHERE_NOT = "Where the grid has one axis, or the programs on one axis are few."

ROW_MAJOR, COLUMN_MAJOR = "row_major", "column_major"
_GROUPS = (1, 2, 4, 8, 16)


def order(several: bool) -> Decision:
    """Order of the last two axes of the grid: the one that varies fastest; `several`: both have more than one tile."""
    # With a single row or column of tiles all orders are one.
    values = (ROW_MAJOR, COLUMN_MAJOR) if several else (ROW_MAJOR,)
    return Decision(Choice("order", values), _ordered, bears_on="nothing")


def group(several: bool, sizes: tuple[int, ...] = _GROUPS) -> Decision:
    """Group size: tiles along the slower of the last two axes that are interleaved."""
    return Decision(Choice("group", sizes if several else (1,)), _grouped, bears_on="nothing")


def order_of_parts(part: str) -> Decision:
    """Order of the parts of a split reduction, the grid's axis `part`: slower or faster than the tiles after them."""

    def after(grid: Grid) -> Grid:
        at = next((n for n, axis in enumerate(grid.axes) if axis.variable == part), None)
        if at is None:
            return grid
        before, own, following, *rest = grid.axes[:at], *grid.axes[at:]
        return replace(grid, axes=(*before, following, own, *rest))

    def ordered(program: TileProgram, values: Values) -> TileProgram:
        if values["order"] == "split_first":
            return program
        return each_kernel(program, lambda kernel: replace(kernel, grid=after(kernel.grid)))

    return Decision(Choice("order", ("split_first", "split_last")), ordered, bears_on="legality")


def _ordered(program: TileProgram, values: Values) -> TileProgram:
    if values["order"] == ROW_MAJOR:
        return program
    return each_kernel(program, lambda kernel: replace(kernel, grid=_turned(kernel.grid)))


def _turned(grid: Grid) -> Grid:
    return replace(grid, axes=(*grid.axes[:-2], *grid.axes[:-3:-1]))


def _grouped(program: TileProgram, values: Values) -> TileProgram:
    size = values.integer("group")
    if size == 1:
        return program
    return each_kernel(program, lambda k: replace(k, grid=replace(k.grid, group=(k.grid.axes[-2].variable, size))))
