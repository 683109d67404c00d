"""A kernel's statements for one of several warp groups or blocks, which share its tiles equally."""

from __future__ import annotations

import dataclasses

from search_spaces.programs.statements import (
    Dot,
    Fill,
    For,
    Gather,
    Interleave,
    Load,
    Map,
    Position,
    Reduce,
    Split,
    Statement,
    Store,
)
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine

# The part of a tile's rows for a warp group, and the part of a tile for a block of a cluster, as variables.
HALF = "half"
BLOCK = "block"


def halved(body: tuple[Statement, ...], axis: str, rows: int, part: str = HALF) -> tuple[Statement, ...]:
    """The statements for `rows` positions of the axis, from `part * rows` on.

    Before: store out[m.0*128 : +128, …] = acc          After: store out[half*64 + m.0*128 : +64, …] = acc
    """
    return tuple(_halved(s, axis, rows, part) for s in body)


def _halved(s: Statement, axis: str, rows: int, part: str) -> Statement:
    match s:
        case Load(dst=dst, slices=slices):
            return dataclasses.replace(s, dst=tile_part(dst, axis, rows), slices=_slices(slices, axis, rows, part))
        case Gather(dst=dst, index=index):
            looked_up = tuple(i if isinstance(i, str) else _slice(i, axis, rows, part) for i in index)
            return dataclasses.replace(s, dst=tile_part(dst, axis, rows), index=looked_up)
        case Position(dst=dst, piece=piece):
            return dataclasses.replace(s, dst=tile_part(dst, axis, rows), piece=_slice(piece, axis, rows, part))
        case Store(slices=slices):
            return dataclasses.replace(s, slices=_slices(slices, axis, rows, part))
        case For(body=body):
            return dataclasses.replace(s, body=tuple(_halved(inner, axis, rows, part) for inner in body))
        case Map(dst=dst) | Fill(dst=dst) | Dot(dst=dst) | Reduce(dst=dst) | Interleave(dst=dst):
            return dataclasses.replace(s, dst=tile_part(dst, axis, rows))
        case Split(first=first, second=second):
            return dataclasses.replace(s, first=tile_part(first, axis, rows), second=tile_part(second, axis, rows))
        case _:
            return s


def tile_part(tile: Tile, axis: str, rows: int) -> Tile:
    """The tile with `rows` positions of the axis, if it has that axis."""
    shape = tuple(rows if name == axis else extent for name, extent in zip(tile.axes, tile.shape, strict=True))
    return dataclasses.replace(tile, shape=shape)


def _slices(slices: tuple[Slice, ...], axis: str, rows: int, part: str) -> tuple[Slice, ...]:
    return tuple(_slice(p, axis, rows, part) for p in slices)


def _slice(piece: Slice, axis: str, rows: int, part: str) -> Slice:
    return piece.part(Affine.of((part, rows)), rows) if piece.axis == axis else piece
