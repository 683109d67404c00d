"""Copies of operands by a kernel before the contraction: into rows that descriptors can address, or k-major.

Before:  b[k, n], rows of 1500 float16, 3000 bytes apart          not addressable by a descriptor
After:   grid k.0, n.0: b_copy[k, n] = b[k, n]                    rows of 1504, zeros at their ends
         the contraction reads b_copy by descriptor
Transposed:             b_copy[n, k] = b[k, n]                    if the dot units want neighbours along k

Ansor's rule "cache stage" (Zheng et al., 2020, table 1), with the cache in global memory; GotoBLAS calls it packing.
A copy costs its bytes twice over, so it pays if an operand is read more often than that, or cannot be read well. That
of a constant is made once, and costs a call nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from search_spaces.decisions.memory.transfers import is_by_pointers
from search_spaces.devices.architectures import TMA
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import slices_at, start_of, workspace_name
from search_spaces.programs.statements import Load, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, why_not_sliced
from search_spaces.workloads.workload import Tensor, Workload

# Rows and columns of a program's copy: whole lines of the caches, and eight loads a thread.
_TILE = (16, 256)
# The same for transposed copies: both sides are whole lines.
_SQUARE = (64, 64)
_WARPS = 4
# Ways to load a constant from a copy that is made once, by descriptors or by pointers: True if it runs along k.
PREPARED_WAYS = {"prepared_k": True, "prepared_k_pointer": True, "prepared_mn": False, "prepared_mn_pointer": False}
# Ways to load an operand from a copy.
COPIED = ("copied", "transposed", *PREPARED_WAYS)


@dataclass(frozen=True)
class Operand:
    """An operand as a contraction reads it: a buffer, and the axis of each of its dimensions."""

    buffer: str
    axes: tuple[str, ...]
    dtype: str


@dataclass(frozen=True)
class OperandCopy:
    """A workspace, the kernel that fills it, and the operand in it, of whose axes each dimension has an `index`.

    `constant`: the input, if it is filled once.
    """

    workspace: Buffer
    kernel: Kernel
    operand: Operand
    index: tuple[Affine, ...]
    constant: str = ""

    @property
    def read(self) -> Access:
        """The read of the copy that replaces the operand's."""
        return Access(self.workspace.name, self.index)


def operand(workload: Workload, access: Access) -> Operand:
    """An operand read in place; a dimension that is no plain axis is that of the tile that moves along it."""
    tensor = _tensor(workload, access)
    return Operand(tensor.name, tuple(map(_moving, access.index)), tensor.dtype)


def _moving(index: Affine) -> str:
    """The axis of a tile along a dimension, of a contraction's; all but k that are reduced are k0, k1 …"""
    return index.axis or index.along("mnk") or index.along([x for x in index.axes if not x.startswith("k")])


def copied_operand(form: Contraction, access: Access, way: str) -> OperandCopy:
    """The copy of an operand that a way to load it reads."""
    if way in PREPARED_WAYS:
        return prepared_operand(form, access, PREPARED_WAYS[way], is_by_pointers(way))
    return operand_copy(form.workload, access, way == "transposed")


@lru_cache(64)  # One per operand and way to copy it: every schedule of a workload shares it.
def operand_copy(workload: Workload, access: Access, transposed: bool) -> OperandCopy:
    """A copy of an operand with aligned rows; `transposed`: its last two axes in the other order."""
    *outer, row, column = axes = operand(workload, access).axes
    extents = dict(zip(axes, _tensor(workload, access).shape, strict=True))
    order = (*outer, column, row) if transposed else axes
    return _copied(workload, access, tuple(extents.items()), [(x,) for x in order], "copy")


def prepared_operand(form: Contraction, access: Access, k_major: bool, pointers: bool) -> OperandCopy:
    """A constant operand along its own axes, made once: rows along k, or along its rows or columns.

    Whatever the affine map of its read is, that of the copy is plain. `pointers`: descriptors do not read it, whose
    tensors have few dimensions: axes that are not tiled share one where there are more.
    """
    order = _layout(form, access, k_major)
    several = not pointers and len(order) > TMA.dimensions
    dimensions = _dimensions(order, {form.m.name, form.n.name, form.k.name}) if several else [(x,) for x in order]
    return _prepared(form.workload, access, tuple((x, form.extents[x]) for x in order), tuple(dimensions))


def _dimensions(order: Sequence[str], tiled: Container[str]) -> list[tuple[str, ...]]:
    """The axes of every dimension: neighbours that are not tiled share one."""
    grouped = itertools.groupby(order, lambda x: x if x in tiled else "")
    return [tuple(axes) for _, axes in grouped]


def _layout(form: Contraction, access: Access, k_major: bool) -> tuple[str, ...]:
    """The axes of an operand: of the batch, of its rows or columns, and of the reduction; or this before those."""
    read = {x for i in access.index for x in i.axes}
    own = next(form.classes[x] for x in "mn" if read & {a.name for a in form.classes[x][0]})
    sides = [[*(x.name for x in axes if x != one), one.name] for axes, one in (own, form.classes["k"])]
    found = [x for side in (sides if k_major else sides[::-1]) for x in side if x in read]
    return (*(x.name for x in form.axes if x.name in read and x.name not in found), *found)


@lru_cache(64)  # As for other copies.
def _prepared(
    workload: Workload, access: Access, extents: tuple[tuple[str, int], ...], dimensions: tuple[tuple[str, ...], ...]
) -> OperandCopy:
    made = _copied(workload, access, extents, dimensions, "prepared")
    return replace(made, constant=access.tensor)


def _copied(
    workload: Workload,
    access: Access,
    axes: tuple[tuple[str, int], ...],
    dimensions: Sequence[tuple[str, ...]],
    what: str,
) -> OperandCopy:
    """A copy of the elements that an access reads along these axes, with their extents, in dimensions of some each."""
    tensor, extents = _tensor(workload, access), dict(axes)
    aligned = TMA.vector(dtype(tensor.dtype).bytes)
    *outer, (last,) = dimensions
    # Rows of the copy are padded to the next multiple, with zeros, which add nothing to a sum.
    length = -(-extents[last] // aligned) * aligned
    workspace = Buffer(
        workspace_name(workload, f"{tensor.name}_{what}"),
        (*(math.prod(extents[x] for x in group) for group in outer), length),
        tensor.dtype,
        "workspace",
    )
    index = tuple(_in_radix(group, extents) for group in dimensions)
    kernel = copying_kernel(f"{workload.name}_{what}_{tensor.name}", access, extents, workspace, index)
    return OperandCopy(
        workspace, kernel, Operand(workspace.name, tuple(x[-1] for x in dimensions), tensor.dtype), index
    )


def _in_radix(axes: Sequence[str], extents: Mapping[str, int]) -> Affine:
    """The number of a position of several axes, row-major."""
    inner = [math.prod(extents[x] for x in axes[n + 1 :]) for n in range(len(axes))]
    return Affine.of(*zip(axes, inner, strict=True))


def copying_kernel(
    name: str, access: Access, extents: Mapping[str, int], workspace: Buffer, index: Sequence[Affine]
) -> Kernel:
    """The kernel that fills a workspace with what an access reads; `index`: of its dimensions.

    Tiles are along axes that have a dimension for themselves.
    """
    along = tuple(x for i in access.index for x in i.axes)
    order = [i.axis for i in index if i.is_axis]
    row, column = _tiled(access, order)
    tile = dict(zip((row, column), _TILE if order[-1] == column else _SQUARE, strict=True))
    place = {x: Slice(start_of((f"{x}.0", 1))) for x in extents if x not in tile}
    place |= {x: Slice(start_of((f"{x}.0", tile[x])), tile[x], x) for x in (row, column)}
    covered = {**extents, index[-1].axis: workspace.shape[-1]}
    grid = [GridAxis(f"{x}.0", -(-covered[x] // tile.get(x, 1))) for x in dict.fromkeys(along)]
    slices, fill = slices_at(access, place), access.fill
    piece = Tile("piece", (row, column), (tile[row], tile[column]), workspace.dtype)
    body = (
        Load(piece, access.tensor, slices, fill or 0.0, guarded=fill is not None),
        Store(workspace.name, slices_at(Access(workspace.name, tuple(index)), place), piece.name),
    )
    return Kernel(name, Grid(tuple(grid)), body, Launch(num_warps=_WARPS), auxiliary=True)


def _tiled(access: Access, order: Sequence[str]) -> tuple[str, str]:
    """The axes of a program's copy: that of neighbours in the tensor comes last, before it that of those in the copy.

    If that is the same one, the one before it in the tensor, or else in the copy. `order`: of the copy.
    """
    *outer, last = access.index
    column = min([x for x in last.axes if x in order] or order[-1:], key=lambda x: abs(last.step(x)))
    before = [x for i in outer for x in i.axes if x in order]
    row = next(x for x in (order[-1], *before[::-1], *order[::-1]) if x != column)
    return row, column


def is_prepared_already(form: Contraction, access: Access, k_major: bool) -> bool:
    """True if the tensor has the layout of such a copy."""
    tensor, order = _tensor(form.workload, access), _layout(form, access, k_major)
    same = form.is_plain(access) and operand(form.workload, access).axes == order and tensor.strides is None
    return same and tensor.shape[-1] * dtype(tensor.dtype).bytes % TMA.alignment_bytes == 0


def why_not_prepared(form: Contraction, access: Access) -> str | None:
    """Reason that a constant operand has no copy along its own axes, or None."""
    tensor, read = _tensor(form.workload, access), {x for i in access.index for x in i.axes}
    if form.place_of(access):
        return f"tiles of {tensor.name} are looked up"
    if math.prod(form.extents[x] for x in read) > tensor.elements:
        return f"{tensor.name} is read more often than it has elements"
    tiles = (_tiled(access, _layout(form, access, k_major)) for k_major in (True, False))
    return next((why for tile in tiles if (why := why_not_sliced(access, tile))), None)


def _tensor(workload: Workload, access: Access) -> Tensor:
    return next(t for t in workload.inputs if t.name == access.tensor)
