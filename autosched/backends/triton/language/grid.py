"""Assignment of tiles to programs, as Triton text: row-major, grouped, or persistent."""

from __future__ import annotations

from autosched.backends.printing import grid as grids
from autosched.backends.printing.scope import Block, Scope
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.words import Words
from search_spaces.programs.grid import Grid
from search_spaces.programs.statements import For, Let
from search_spaces.programs.tile_program import Kernel


def print_grid(kernel: Kernel, indexing: Indexing, root: Scope, block: Block) -> None:
    """Write the definitions of the grid variables, and open the tile loop of a persistent kernel.

        pid = tl.program_id(0)                                  pid = tl.program_id(0)
        m_0 = pid // 8                                          for tile in tl.range(pid, 64, 16):
        n_0 = pid % 8                                               m_0 = tile // 8
                                                                    n_0 = tile % 8

    `flatten` of the loops directly in a persistent kernel belongs to the tile loop, which is the outermost of the nest
    that it fuses. A number of live positions, which is known there, ends the tile loop.
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
    iterations = ", ".join(["pid", tiles_end(grid, indexing), str(grid.programs), *attributes])
    scope = block.open(f"for tile in tl.range({iterations}):", *variables)
    scope.definitions += position(grid, indexing, "tile", live(grid, indexing))


def printed_once(kernel: Kernel) -> int:
    """Number of the first statements of a kernel's body that stand before its tile loop."""
    if not kernel.grid.walked or kernel.grid.stream is not None:
        return 0
    return next((n for n, s in enumerate(kernel.body, 1) if isinstance(s, Let) and s.variable == kernel.grid.live), 0)


def live(grid: Grid, indexing: Indexing) -> str:
    """The name of the number of live positions of the first axis; "" if all are."""
    return indexing.variable(grid.live) if grid.live else ""


def tiles_end(grid: Grid, indexing: Indexing) -> str:
    """The number of tiles, as far as they are live."""
    return f"{live(grid, indexing)} * {grid.tiles // grid.axes[0].extent}" if grid.live else str(grid.tiles)


def stream_iterations(grid: Grid, variable: str) -> str | None:
    """The first and the end of a program's iterations of the loop over `variable`, if the grid streams that loop."""
    return "turn, turn_end" if grid.stream is not None and grid.stream[0] == variable else None


def _open_stream(grid: Grid, indexing: Indexing, root: Scope, block: Block) -> None:
    """Open the tile loop of a program with an equal share of all (tile, iteration) pairs (see `grid.Grid`)."""
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


def position(grid: Grid, indexing: Indexing, number: str, live: str = "") -> list[str]:
    """Definitions that compute the grid variables from a tile's number; those of extent 1 are left out.

    `live`: the name of the number of positions of the first axis that are computed, of all unless given.
    """
    return grids.position(grid, Words(indexing), number, live)
