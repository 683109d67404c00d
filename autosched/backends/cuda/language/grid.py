"""Assignment of tiles to blocks, as C++ text: row-major, grouped, persistent, or a share of a stream (stream-K)."""

from __future__ import annotations

from autosched.backends.cuda.language.index import Indexing
from autosched.backends.cuda.language.scope import open_braces
from autosched.backends.printing.grid import position
from autosched.backends.printing.scope import Block, Scope
from search_spaces.programs.grid import Grid


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
    """The first and the end of a block's iterations of the loop over `variable`, if the grid streams that loop."""
    return ("turn", "turn_end") if grid.stream is not None and grid.stream[0] == variable else None


def _open_stream(grid: Grid, indexing: Indexing, root: Scope, block: Block) -> None:
    """Open the tile loop of a block that computes an equal share of all (tile, iteration) pairs (see `grid.Grid`)."""
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
