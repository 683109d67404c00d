"""Order of tiles, such that programs that run together share operands in the cache (rasterisation order).

Before:  grid m.0, n.0                                               neighbours share rows
After (order=column_major):  grid n.0, m.0                           neighbours share columns
      (group=8):             grid m.0 // 8, n.0, m.0 % 8             eight rows of tiles interleaved, column by column
      (direction=descending): grid from the last m.0 to the first    the most work under a mask first
      (inner=ji):            within a CPU's cache tile, register tiles column by column; i_pack_j: a packed in between

Also called block swizzling or rasterisation (CUTLASS), grouped ordering (Triton's tutorial), reorder (TVM, Halide).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from search_spaces.decisions.decision import Decision, Effect, each_kernel, modulo
from search_spaces.programs.grid import Grid
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, KnobValue, Values

NAMES = ("order", "group", "direction", "inner")
WHERE_NOT = "Where the grid has one axis, or the programs on one axis are few."

ROW_MAJOR, COLUMN_MAJOR = "row_major", "column_major"
ASCENDING, DESCENDING = "ascending", "descending"
_GROUPS = (1, 2, 4, 8, 16)
# Numbers of tiles along the last two axes of a grid in row-major order.
Counts = Callable[[Values], tuple[int, int]]


def order(several: bool, tiled: Sequence[str] = (), counts: Counts | None = None) -> Decision:
    """The axis, of the last two of the grid, that varies fastest; `several`: both may have more than one tile.

    `counts`: the numbers of tiles by the decisions `tiled`. One row or column of tiles has one order.
    """
    orders = (ROW_MAJOR, COLUMN_MAJOR) if several else (ROW_MAJOR,)
    decision = _order(orders, _ordered)
    if counts is None or not several:
        return decision
    return modulo(decision, tiled, lambda values: ROW_MAJOR if 1 in counts(values) else values["order"])


def group(several: bool, tiled: Sequence[str], counts: Counts, sizes: tuple[int, ...] = _GROUPS) -> Decision:
    """Tiles along the slower of the last two axes that are interleaved.

    `counts`: the numbers of tiles by the decisions `tiled`, with `order` among these if there is one. All sizes that
    hold the whole slower axis are one, and so are those of one row or column of tiles.
    """

    def taking_turns(values: Values) -> int:
        slower, faster = counts(values) if values.get("order", ROW_MAJOR) == ROW_MAJOR else counts(values)[::-1]
        return 1 if faster == 1 else min(slower, values.integer("group"))

    decision = Decision(Choice("group", sizes if several else (1,)), _grouped, bears_on="nothing")
    return modulo(decision, tiled, taking_turns) if several else decision


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

    return replace(_order(("split_first", "split_last"), ordered), bears_on="legality")


def _order(orders: tuple[KnobValue, ...], effect: Effect | None) -> Decision:
    return Decision(Choice("order", orders), effect, bears_on="nothing")


def direction(directions: tuple[KnobValue, ...]) -> Decision:
    """From the first tile of rows to the last, or the other way round; the base program is made with it."""
    return Decision(Choice("direction", directions), bears_on="nothing")


def nesting(between: bool = True) -> Decision:
    """The order of a CPU's loops over register tiles; `between`: rows may be loaded in between, too.

    The base program is made with it.
    """
    orders = ("ij", "i_pack_j", "ji") if between else ("ij", "ji")
    return Decision(Choice("inner", orders, ordered=False), bears_on="nothing")


def order_of_blocks() -> Decision:
    """All blocks of columns at one position of the rows' axes, or all positions of these for one block.

    The base program is made with it.
    """
    return _order((ROW_MAJOR, COLUMN_MAJOR), None)


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
