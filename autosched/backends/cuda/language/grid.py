"""Which block of a kernel does which tile, as C++ text: row-major, grouped, persistent, or a share of a stream."""

from __future__ import annotations

from autosched.backends.cuda.language.index import Indexing
from autosched.backends.cuda.language.scope import open_braces
from autosched.backends.printing.scope import Block, Scope
from search_spaces.programs.grid import Grid, GridAxis


def print_grid(grid: Grid, indexing: Indexing, root: Scope, block: Block) -> None:
    """Write the definitions of the grid variables, and open the tile loop of a persistent kernel.

    const int block = blockIdx.x;                   const int block = blockIdx.x;
    const int m_0 = block / 8;                      for (int tile = block; tile < 64; tile += 16) {
    const int n_0 = block % 8;                          const int m_0 = tile / 8;
                                                        const int n_0 = tile % 8;
    """
    variables = frozenset(a.variable for a in grid.axes)
    if grid.tiles == 1 and grid.stream is None:
        root.variables = variables
        return
    root.definitions.append("const int block = blockIdx.x;")
    if not grid.walked:
        root.variables = variables
        root.definitions += position(grid, indexing, "block")
        return
    if grid.stream is not None:
        _open_stream(grid, indexing, root, block)
        return
    step = f"tile < {grid.tiles}; tile += {grid.programs}"
    scope = open_braces(block, f"for (int tile = block; {step})", *variables)
    scope.definitions += position(grid, indexing, "tile")


def stream_iterations(grid: Grid, variable: str) -> tuple[str, str] | None:
    """The first and the end of a block's iterations of the loop over `variable`, where the grid streams that loop."""
    return ("turn", "turn_end") if grid.stream is not None and grid.stream[0] == variable else None


def _open_stream(grid: Grid, indexing: Indexing, root: Scope, block: Block) -> None:
    """Open the tile loop of a block that does an equal share of all (tile, turn) pairs (see `grid.Grid`)."""
    assert grid.stream is not None
    iterations = grid.stream[1]
    share, longer = divmod(grid.pieces, grid.programs)
    first = f"block * {share} + min(block, {longer})" if longer else f"block * {share}"
    root.definitions.append(f"const int pair = {first};")
    more = f" + (block < {longer} ? 1 : 0)" if longer else ""
    root.definitions.append(f"const int pair_end = pair + {share}{more};")
    last = f"(pair_end + {iterations - 1}) / {iterations}"
    variables = (a.variable for a in grid.axes)
    scope = open_braces(block, f"for (int tile = pair / {iterations}; tile < {last}; ++tile)", *variables)
    scope.definitions += position(grid, indexing, "tile")
    scope.definitions.append(f"const int turn = max(pair - tile * {iterations}, 0);")
    scope.definitions.append(f"const int turn_end = min(pair_end - tile * {iterations}, {iterations});")


def position(grid: Grid, indexing: Indexing, number: str) -> list[str]:
    """Definitions that take a tile's number apart into the grid variables; those of extent 1 are left out."""
    axes = [a for a in grid.axes if a.extent > 1]
    if grid.group is None or len(grid.axes) < 2 or min(a.extent for a in grid.axes[-2:]) == 1:
        # With one of the two grouped axes trivial, grouping does not change the order.
        return _row_major(axes, indexing, number)
    slow, fast = grid.axes[-2:]
    plane = slow.extent * fast.extent
    outer = [a for a in grid.axes[:-2] if a.extent > 1]
    lines = _row_major(outer, indexing, f"({number} / {plane})") if outer else []
    within = f"({number} % {plane})" if outer else number
    return lines + _grouped(slow, fast, grid.group[1], indexing, within)


def _row_major(axes: list[GridAxis], indexing: Indexing, number: str) -> list[str]:
    lines = []
    inner = 1
    for at in reversed(range(len(axes))):
        text = number if inner == 1 else f"{number} / {inner}"
        if at > 0:
            text = f"{text} % {axes[at].extent}"
        lines.append(f"const int {indexing.variable(axes[at].variable)} = {text};")
        inner *= axes[at].extent
    return lines[::-1]


def _grouped(slow: GridAxis, fast: GridAxis, size: int, indexing: Indexing, number: str) -> list[str]:
    size = min(size, slow.extent)
    turn = size * fast.extent
    even = slow.extent % size == 0
    height = str(size) if even else "height"
    last_group = [] if even else [f"const int height = min({slow.extent} - first, {size});"]
    return [
        f"const int first = {number} / {turn} * {size};",
        *last_group,
        f"const int {indexing.variable(slow.variable)} = first + {number} % {turn} % {height};",
        f"const int {indexing.variable(fast.variable)} = {number} % {turn} / {height};",
    ]
