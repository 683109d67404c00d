"""Overlapping reads: the distinct positions of tiles that have some in common.

A convolution of 3 × 3 taps reads its tile of an image nine times, moved by a pixel each time. Nine tiles of 8 × 16
pixels are 10 × 18 distinct ones: the tile and its halo, of which the caches hold the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.programs.tiles import Slice
from search_spaces.workloads.expressions.affine import Affine


@dataclass(frozen=True, slots=True)
class Window:
    """The positions of a tile along a dimension of a buffer, or along all dimensions that one of its axes runs along.

    `positions` lie within a `span` from `offset` on, of `size` in the buffer. `moves`: variables of loops or of the
    grid, the number of their values, and the distance by which each moves the tile, smallest first.
    """

    positions: float
    span: float
    size: int
    moves: tuple[tuple[str, int, float], ...]
    offset: float = 0.0

    @property
    def overlaps(self) -> bool:
        """True if two values of a variable have positions in common."""
        span = self.span
        for _, times, distance in self.moves:
            if times > 1 and distance < span:
                return True
            span += distance * (times - 1)
        return False

    def visited(self, trips: Mapping[str, float]) -> float:
        """Positions of all tiles over so many trips of the variables, each time counted."""
        return self.positions * math.prod(min(times, trips[v]) for v, times, _ in self.moves if v in trips)

    def distinct(self, trips: Mapping[str, float]) -> float:
        """The same, each position counted once."""
        moved = sum(distance * (min(times, trips[v]) - 1) for v, times, distance in self.moves if v in trips)
        return min(self.visited(trips), self.span + moved, max(self.size, self.positions))


def windows_of(
    slices: Sequence[Slice], shape: Sequence[int], extents: Mapping[str, int], counted: Mapping[str, str]
) -> tuple[Window, ...]:
    """The windows of a load, one for each dimension along which it moves or has several positions.

    `shape` is the buffer's, `extents` are those of all variables; `counted`: digits of loops, with the loop's variable.
    """
    found: list[Window] = []
    flat: dict[str, list[tuple[Slice, int]]] = {}
    for piece, size in zip(slices, shape, strict=True):
        if piece.flat is not None and not piece.is_side:
            flat.setdefault(piece.axis, []).append((piece, size))
        elif piece.extent is not None or piece.start.terms:
            positions = piece.side
            moves = _moves(((piece.start, 1.0),), extents, counted)
            found.append(Window(positions, abs(piece.step) * (positions - 1) + 1, size, moves, piece.start.offset))
    return (*found, *(_along(pieces, extents, counted) for pieces in flat.values()))


def _along(pieces: Sequence[tuple[Slice, int]], extents: Mapping[str, int], counted: Mapping[str, str]) -> Window:
    """The window along several dimensions that one axis counts in mixed radix, in elements of the innermost one.

    What lies between its first and its last position counts as read, for other taps.
    """
    first, span, offset, inner = pieces[0][0], 1.0, 0.0, 1
    forms: list[tuple[Affine, float]] = []
    for piece, size in reversed(pieces):
        assert piece.flat is not None
        values = -(-(first.extent or 1) // piece.flat.divisor)
        span += inner * abs(piece.step) * (min(piece.flat.size or values, values) - 1)
        offset += inner * piece.start.offset
        forms.append((piece.start, float(inner)))
        inner *= size
    assert first.flat is not None
    apart = math.prod(max(1, abs(piece.step)) for piece, _ in pieces)
    moves = _moves(((first.flat.start, float(apart)), *forms), extents, counted)
    return Window(first.extent or 1, span, inner, moves, offset + apart * first.flat.start.offset)


def _moves(
    forms: Sequence[tuple[Affine, float]], extents: Mapping[str, int], counted: Mapping[str, str]
) -> tuple[tuple[str, int, float], ...]:
    moves = [
        (counted.get(v, v), extents[v], abs(step) * distance) for form, distance in forms for v, step in form.terms
    ]
    return tuple(sorted(moves, key=lambda move: move[2]))


def joined(loads: Sequence[tuple[Window, ...]]) -> tuple[Window, ...] | None:
    """The windows of all positions that several loads of one buffer read, where these or those of others overlap.

    None if they do not, or if the loads differ in more than their offsets.
    """
    if len(set(loads)) < 2 or len({tuple(replace(w, offset=0.0) for w in windows) for windows in loads}) > 1:
        return None
    found = []
    for own in zip(*loads, strict=True):
        offsets = sorted({w.offset for w in own})
        span = own[0].span + offsets[-1] - offsets[0]
        positions = min(len(offsets) * own[0].positions, span)
        found.append(replace(own[0], positions=positions, span=span, offset=offsets[0]))
    one, together = (math.prod(w.positions for w in windows) for windows in (loads[0], found))
    return tuple(found) if together < len(loads) * one or any(w.overlaps for w in found) else None


def may_overlap(slices: tuple[Slice, ...]) -> bool:
    """False where a tile moves along each dimension by its own extents, as nearly everywhere."""
    for piece in slices:
        terms = piece.start.terms
        ranged = piece.flat is not None and not piece.is_side
        if len(terms) > 1 or (terms and (ranged or abs(terms[0][1]) < abs(piece.step) * piece.side)):
            return True
    return False
