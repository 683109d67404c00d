"""The kernels of a contraction: copies of operands, the tiles, and the sum of the parts of a shared reduction."""

from __future__ import annotations

from search_spaces.anchors.contractions.dot_tiles import DotTile
from search_spaces.anchors.contractions.operand_tiles import operands_of
from search_spaces.anchors.contractions.split_reduction import combine, partial_sums
from search_spaces.programs.lowering import buffers, start_of
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Slice
from search_spaces.schedules.knobs import Values, padded
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.workload import Workload

# Elements of partial sums that a program of the second kernel adds: all loads of four warps in flight at once.
_COMBINED = 4096


def lower(workload: Workload, form: Contraction, values: Values) -> TileProgram:
    """One kernel, with a shared reduction two; and one before them for every operand that is copied."""
    tile, operands = DotTile(workload, form, values), operands_of(workload, form, values)
    workspaces, before = [c.workspace for c in operands.copies], [c.kernel for c in operands.copies]
    once = tuple((c.workspace.name, c.constant) for c in operands.copies if c.constant)
    names = tile.names()
    grid, body = tile.grid, tile.accumulate(operands, names)
    if not tile.shared:
        kernel = Kernel(workload.name, grid, (*body, *tile.finish(names)))
        return TileProgram(workload.name, buffers(workload, *workspaces), (*before, kernel), prepared=once)
    atomic = values["partials"] == "atomic"
    partials = partial_sums(workload, form, 1 if atomic else tile.splits)
    index = Slice(start_of() if atomic else start_of(("k.split", 1)))
    held = {acc.name: partial.name for acc, partial in zip(tile.accumulators, partials, strict=True)}
    body += tile.store_partial(held, index, atomic, names)
    first = Kernel(f"{workload.name}_partial", grid, tuple(body))
    second = combine(workload, form, partials, _combine_tile(partials[0].shape[0], form))
    return TileProgram(
        workload.name,
        buffers(workload, *workspaces, *partials),
        (*before, first, second),
        zeroed=tuple(p.name for p in partials) if atomic else (),
        prepared=once,
    )


def _combine_tile(parts: int, form: Contraction) -> tuple[int, int]:
    """Rows and columns of the output in a program of the second kernel: fewer if it has more parts to add."""
    elements = max(32, _COMBINED // parts)
    columns = min(elements, 128, max(16, padded(form.n.extent)))
    return elements // columns, columns
