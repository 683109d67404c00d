"""Copies of whole rows that lie one after the other, as copies of one long row: short rows fill no vector.

Before:  box[h, 0 : +230, 0 : +3] = x[h - 3, -3 : +230, 0 : +3] else 0          230 rows of 3 elements
After:   box[h, 0 : +690] = x[h - 3, -9 : +690] else 0                          1 row of 690
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_spaces.programs.statements import Load, Map, Statement, Store
from search_spaces.programs.tile_program import Buffer, Kernel
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine


def with_merged_rows(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[Kernel, Mapping[str, Buffer]]:
    """An auxiliary kernel that copies such rows, as one that copies one, and its buffers; or both unchanged."""
    moves = [s for s in kernel.body if isinstance(s, Load | Store)]
    made = [s.dst for s in kernel.body if isinstance(s, Load | Map)]
    whole = len(moves) + sum(isinstance(s, Map) for s in kernel.body) == len(kernel.body)
    axes = made[0].axes if made else ()
    alike = all(t.axes == axes and t.shape == made[0].shape for t in made) and len(axes) == 2
    if not (kernel.auxiliary and whole and alike and all(_is_merged(s, buffers[s.buffer], axes) for s in moves)):
        return kernel, buffers
    body = tuple(_merged(s, buffers) for s in kernel.body)
    return replace(kernel, body=body), {**buffers, **{s.buffer: _buffer(buffers[s.buffer]) for s in moves}}


def _is_merged(s: Load | Store, buffer: Buffer, axes: tuple[str, ...]) -> bool:
    """True if the last dimension, along the second axis, is copied whole, and rows, along the first, follow it."""
    if len(s.slices) < 2 or tuple(x.axis for x in s.slices[-2:]) != axes:
        return False
    *_, row, column = s.slices
    size = buffer.shape[-1]
    plain = row == Slice(row.start, row.extent, row.axis) and column == Slice(Affine(), size, column.axis)
    return plain and buffer.strides[-2:] == (size, 1)


def _merged(s: Statement, buffers: Mapping[str, Buffer]) -> Statement:
    match s:
        case Load():
            return replace(s, dst=_tile(s.dst), slices=_slices(s.slices, buffers[s.buffer]))
        case Store():
            return replace(s, slices=_slices(s.slices, buffers[s.buffer]))
        case Map():
            return replace(s, dst=_tile(s.dst))
        case _:
            return s


def _tile(tile: Tile) -> Tile:
    return replace(tile, axes=tile.axes[-1:], shape=(tile.elements,))


def _slices(slices: tuple[Slice, ...], buffer: Buffer) -> tuple[Slice, ...]:
    *others, row, column = slices
    size = buffer.shape[-1]
    return (*others, Slice(row.start * size, (row.extent or 1) * size, column.axis))


def _buffer(buffer: Buffer) -> Buffer:
    *others, rows, size = buffer.shape
    return replace(buffer, shape=(*others, rows * size), declared_strides=(*buffer.strides[:-2], 1))
