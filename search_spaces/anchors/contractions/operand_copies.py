"""Copies of operands by a kernel before the contraction: into rows that descriptors can address, or k-major.

Before:  b[k, n], rows of 1500 float16, 3000 bytes apart          not addressable by a descriptor
After:   grid k.0, n.0: b_copy[k, n] = b[k, n]                    rows of 1504, zeros at their ends
         the contraction reads b_copy by descriptor
Transposed:             b_copy[n, k] = b[k, n]                    if the dot units want neighbours along k

Ansor's rule "cache stage" (Zheng et al., 2020, table 1), with the cache in global memory; GotoBLAS calls it packing.
A copy costs its bytes twice over, so it pays if an operand is read more often than that, or cannot be read well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from search_spaces.devices.architectures import TMA
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import start_of, workspace_name
from search_spaces.programs.statements import Load, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.workload import Workload

# Rows and columns of a program's copy: whole lines of the caches, and eight loads a thread.
_TILE = (16, 256)
# The same for transposed copies: both sides are whole lines.
_SQUARE = (64, 64)
_WARPS = 4


@dataclass(frozen=True)
class Operand:
    """An operand as a contraction reads it: a buffer, and the axis of each of its dimensions."""

    buffer: str
    axes: tuple[str, ...]
    dtype: str


@dataclass(frozen=True)
class OperandCopy:
    """A workspace, the kernel that fills it, and the operand in it."""

    workspace: Buffer
    kernel: Kernel
    operand: Operand

    @property
    def read(self) -> Access:
        """The read of the copy that replaces the operand's."""
        return Access(self.workspace.name, tuple(axis_index(x) for x in self.operand.axes))


def operand(workload: Workload, access: Access) -> Operand:
    """An operand read in place; a dimension that is no plain axis is that of the tile that moves along it."""
    (tensor,) = (t for t in workload.inputs if t.name == access.tensor)
    return Operand(tensor.name, tuple(map(_moving, access.index)), tensor.dtype)


def _moving(index: Affine) -> str:
    """The axis of a tile along a dimension, of a contraction's; all but k that are reduced are k0, k1 …"""
    return index.axis or index.along("mnk") or index.along([x for x in index.axes if not x.startswith("k")])


@lru_cache(64)  # One per operand and way to copy it: every schedule of a workload shares it.
def operand_copy(workload: Workload, access: Access, transposed: bool) -> OperandCopy:
    """A copy of an operand with aligned rows; `transposed`: its last two axes in the other order."""
    source = operand(workload, access)
    (tensor,) = (t for t in workload.inputs if t.name == access.tensor)
    extents = dict(zip(source.axes, tensor.shape, strict=True))
    *outer, row, column = source.axes
    order = (*outer, column, row) if transposed else source.axes
    aligned = TMA.alignment_bytes // math.gcd(TMA.alignment_bytes, dtype(tensor.dtype).bytes)
    # Rows of the copy are padded to the next multiple, with zeros, which add nothing to a sum.
    length = -(-extents[order[-1]] // aligned) * aligned
    workspace = Buffer(
        workspace_name(workload, f"{tensor.name}_copy"),
        (*(extents[x] for x in order[:-1]), length),
        tensor.dtype,
        "workspace",
    )
    tile = dict(zip((row, column), _SQUARE if transposed else _TILE, strict=True))
    place = {x: Slice(start_of((f"{x}.0", 1))) for x in outer}
    place |= {x: Slice(start_of((f"{x}.0", tile[x])), tile[x], x) for x in (row, column)}
    covered = {**extents, order[-1]: length}
    grid = [GridAxis(f"{x}.0", -(-covered[x] // tile.get(x, 1))) for x in source.axes]
    piece = Tile("piece", (row, column), (tile[row], tile[column]), tensor.dtype)
    body = (
        Load(piece, tensor.name, tuple(place[x] for x in source.axes)),
        Store(workspace.name, tuple(place[x] for x in order), piece.name),
    )
    kernel = Kernel(
        f"{workload.name}_copy_{tensor.name}", Grid(tuple(grid)), body, Launch(num_warps=_WARPS), auxiliary=True
    )
    return OperandCopy(workspace, kernel, Operand(workspace.name, order, tensor.dtype))
