"""Which program of a kernel does which tile, as Triton text: row-major, grouped, or persistent."""

from __future__ import annotations

from autosched.backends.printing.scope import Block, Scope
from autosched.backends.triton.language.index import Indexing
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.statements import For
from search_spaces.programs.tile_program import Kernel


def print_grid(kernel: Kernel, indexing: Indexing, root: Scope, block: Block) -> None:
    """Write the definitions of the grid variables, and open the tile loop of a persistent kernel.

        pid = tl.program_id(0)                                  pid = tl.program_id(0)
        m_0 = pid // 8                                          for tile in tl.range(pid, 64, 16):
        n_0 = pid % 8                                               m_0 = tile // 8
                                                                    n_0 = tile % 8

    `flatten` of the loops directly in a persistent kernel belongs to the tile loop, which is the outermost of the nest
    that it fuses.
    """
    grid = kernel.grid
    variables = frozenset(a.variable for a in grid.axes)
    if grid.tiles == 1 and grid.stream is None:
        root.variables = variables
        return
    root.definitions.append("pid = tl.program_id(0)")
    if not grid.walked:
        root.variables = variables
        root.definitions += position(grid, indexing, "pid")
        return
    if grid.stream is not None:
        _open_stream(grid, indexing, root, block)
        return
    loops = [s for s in kernel.body if isinstance(s, For)]
    attributes = ["flatten=True"] if any(s.flatten for s in loops) else []
    iterations = ", ".join(["pid", str(grid.tiles), str(grid.programs), *attributes])
    scope = block.open(f"for tile in tl.range({iterations}):", *variables)
    scope.definitions += position(grid, indexing, "tile")


def stream_iterations(grid: Grid, variable: str) -> str | None:
    """The first and the end of a program's iterations of the loop over `variable`, where the grid streams that loop."""
    return "turn, turn_end" if grid.stream is not None and grid.stream[0] == variable else None


def _open_stream(grid: Grid, indexing: Indexing, root: Scope, block: Block) -> None:
    """Open the tile loop of a program that does an equal share of all (tile, turn) pairs (see `grid.Grid`)."""
    assert grid.stream is not None
    iterations = grid.stream[1]
    share, longer = divmod(grid.pieces, grid.programs)
    first = f"pid * {share} + tl.minimum(pid, {longer})" if longer else f"pid * {share}"
    root.definitions.append(f"pair = {first}")
    root.definitions.append(f"pair_end = pair + {share}" + (f" + (pid < {longer}).to(tl.int32)" if longer else ""))
    scope = block.open(
        f"for tile in tl.range(pair // {iterations}, tl.cdiv(pair_end, {iterations})):",
        *(a.variable for a in grid.axes),
    )
    scope.definitions += position(grid, indexing, "tile")
    scope.definitions.append(f"turn = tl.maximum(pair - tile * {iterations}, 0)")
    scope.definitions.append(f"turn_end = tl.minimum(pair_end - tile * {iterations}, {iterations})")


def position(grid: Grid, indexing: Indexing, number: str) -> list[str]:
    """Assignments that take a tile's number apart into the grid variables; those of extent 1 are left out."""
    axes = [a for a in grid.axes if a.extent > 1]
    if grid.group is None or len(grid.axes) < 2 or min(a.extent for a in grid.axes[-2:]) == 1:
        # With one of the two grouped axes trivial, grouping does not change the order.
        return _row_major(axes, indexing, number)
    slow, fast = grid.axes[-2:]
    plane = slow.extent * fast.extent
    outer = [a for a in grid.axes[:-2] if a.extent > 1]
    lines = _row_major(outer, indexing, f"({number} // {plane})") if outer else []
    within = f"({number} % {plane})" if outer else number
    return lines + _grouped(slow, fast, grid.group[1], indexing, within)


def _row_major(axes: list[GridAxis], indexing: Indexing, number: str) -> list[str]:
    lines = []
    inner = 1
    for at in reversed(range(len(axes))):
        text = number if inner == 1 else f"{number} // {inner}"
        if at > 0:
            text = f"{text} % {axes[at].extent}"
        lines.append(f"{indexing.variable(axes[at].variable)} = {text}")
        inner *= axes[at].extent
    return lines[::-1]


def _grouped(slow: GridAxis, fast: GridAxis, size: int, indexing: Indexing, number: str) -> list[str]:
    size = min(size, slow.extent)
    turn = size * fast.extent
    even = slow.extent % size == 0
    height = str(size) if even else "height"
    last_group = [] if even else [f"height = tl.minimum({slow.extent} - first, {size})"]
    return [
        f"first = {number} // {turn} * {size}",
        *last_group,
        f"{indexing.variable(slow.variable)} = first + {number} % {turn} % {height}",
        f"{indexing.variable(fast.variable)} = {number} % {turn} // {height}",
    ]
