"""Windows of halos in a slot as operands of dots: their lines, and the order in which a descriptor copies a halo.

halo: (h 10, w 10, k 64), a = halo[r + m // 8, s + m % 8]     lines r * 10 + s + (0 … 7, 10 … 17, 20 … 27, …)
all taps of filters: (f 64, r 3, s 3, k 64)                   copied as (r, s, f, k), so that a tap's are neighbours

A matrix descriptor has eight neighbouring lines, and any distance from these to the next eight; it begins at any line,
since the permutation of banks follows the address (measured on an H200).
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.backend import CompileError
from search_spaces.programs.statements import Load, View
from search_spaces.programs.tiles import Slice
from search_spaces.workloads.expressions.affine import Affine

# Neighbouring lines that matrix descriptors read.
NEIGHBOURS = 8


@dataclass(frozen=True)
class Window:
    """Lines of the positions of a window, from line `start` of a tile of `count` lines on."""

    count: int
    lines: tuple[int, ...]
    start: Affine

    @property
    def apart(self) -> int:
        """Lines between the first ones of neighbouring groups."""
        return self.lines[NEIGHBOURS] - self.lines[0] if len(self.lines) > NEIGHBOURS else NEIGHBOURS

    def is_read(self, positions: int) -> bool:
        """True if dot instructions of so many positions can read it."""
        each = [self.lines[at : at + positions] for at in range(0, len(self.lines), positions)]
        groups = range(0, positions, NEIGHBOURS)
        same = tuple(g // NEIGHBOURS * self.apart + i for g in groups for i in range(NEIGHBOURS))
        return all(tuple(x - part[0] for x in part) == same for part in each)


def copied_order(load: Load, view: View) -> tuple[int, ...]:
    """The dimensions of the buffer as a descriptor copies them: those of which a window has one position first."""
    pieces = iter(view.slices)
    moved = [bool(next(pieces).axis) if s.axis else False for s in load.slices[:-1]]
    return (*sorted(range(len(moved)), key=lambda d: moved[d]), len(moved))


def window(load: Load, view: View) -> Window:
    """The lines of a window of the tile that a load brings.

    Raises:
        CompileError: its lines are parts of those.
    """
    if view.slices[-1].axis != view.dst.axes[-1] or len(view.dst.axes) != 2:
        raise CompileError(f"{view.dst} is no window of lines of {load.dst}")
    sizes = dict(zip((d for d, s in enumerate(load.slices) if s.axis), load.dst.shape, strict=True))
    pieces = dict(zip(sizes, view.slices, strict=True))
    *order, _ = copied_order(load, view)
    start, count, apart = Affine(), 1, dict[int, int]()
    for d in (d for d in reversed(order) if d in sizes):
        start, apart[d] = start + pieces[d].start * count, count
        count *= sizes[d]
    moved = [(pieces[d], n) for d, n in apart.items() if pieces[d].axis]
    lines = (sum(n * p.step * _digit(p, at) for p, n in moved) for at in range(view.dst.shape[0]))
    return Window(count, tuple(lines), start)


def _digit(piece: Slice, position: int) -> int:
    return piece.flat.of(position) if piece.flat else position
