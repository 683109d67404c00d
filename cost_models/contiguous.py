"""Elements without a gap between them in memory, of those that slices of a buffer have."""

from __future__ import annotations

from search_spaces.programs.tiles import Flat, Slice
from search_spaces.workloads.expressions.affine import Affine


def contiguous(slices: tuple[Slice, ...], shape: tuple[int, ...]) -> int:
    """Elements of one contiguous piece: the last dimension's extent, times the next one's where rows are whole.

    Rows that are shifted back to vector boundaries are pieces of their own.
    """
    if _are_two_digits(slices, shape):
        return min(slices[-1].extent or 1, shape[-1] * shape[-2])
    run = 1
    for piece, size in zip(reversed(slices), reversed(shape), strict=True):
        if piece.flat is not None:
            # At the end of a row the next one follows where nothing moves the rows: that is left out.
            return run * (min(piece.extent or 1, size) if abs(piece.step) == 1 else 1)
        extent = piece.extent if piece.extent and abs(piece.step) == 1 else 1
        extent = piece.side if piece.is_side else extent
        if extent < size or piece.skew:
            return run * extent
        run *= size
    return run


def _are_two_digits(slices: tuple[Slice, ...], shape: tuple[int, ...]) -> bool:
    """True where the last two dimensions have positions along one axis, of which the last one is a whole digit."""
    match slices[-2:]:
        case (Slice(start=a, flat=Flat() as outer), Slice(start=b, flat=Flat(size=size) as inner)):
            return a == b == Affine() and size == shape[-1] and outer.within(inner) == Flat(outer.start)
        case _:
            return False
