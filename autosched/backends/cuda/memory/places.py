"""Where a tile lies in a buffer: offsets of a thread's elements, conditions, and which neighbours are moved at once.

start    (m_0 * 16 + own_m) * 4096 + own_n        the same for all elements of a thread
offset   r_m * 8192 + r_n / 4 * 512               a constant, where loops over registers are unrolled
tests    n_0 * 64 + own_n + r_n < 1000
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.backends.cuda.language.index import Indexing, grouped, scaled, sum_of
from autosched.backends.cuda.language.types import VECTOR_BYTES, element_bytes
from autosched.backends.cuda.registers.layouts import Layout, vector
from autosched.backends.cuda.registers.positions import Positions
from autosched.backends.cuda.registers.tiles import Held
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Slice, reach

# Offsets up to here fit the integers of 32 bits that indices are computed with.
_MAX_OFFSET = 2**31 - 1


@dataclass(frozen=True)
class Along:
    """A dimension of a buffer as a tile goes along it: by a slice, or a tile of indices, which is a name before it has
    a layout."""

    stride: int
    size: int
    piece: Slice | Held | str

    @property
    def axis(self) -> str:
        """The axis of the tile, "" for one position and for looked up ones."""
        return self.piece.axis if isinstance(self.piece, Slice) else ""


@dataclass(frozen=True)
class Place:
    """Where a thread's elements are: from `start`, a number of elements that is the same for all of them, on by
    `offset`; and the conditions under which an element is there. `vector`: how many neighbours along `axis` are moved
    at once."""

    start: str
    offset: str
    tests: tuple[str, ...]
    axis: str
    vector: int


class Places:
    """Finds out where tiles lie in buffers."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self.indexing = positions.indexing

    def place(self, buffer: Buffer, along: Sequence[Along], layout: Layout, stored: bool) -> Place:
        wide = self._reach(along) > _MAX_OFFSET
        skewed = next((d for d in along if isinstance(d.piece, Slice) and d.piece.skew), None)
        if skewed and self._begins_at_vectors(buffer, along, skewed, stored):
            return self._by_vectors(buffer, along, skewed, layout, wide)
        start: list[str] = []
        offset: list[str] = []
        tests: list[str] = []
        for d in along:
            if isinstance(d.piece, Held):
                at = d.piece.element(self._positions.counting(layout))
                offset.append(scaled(at, d.stride))
                tests += [f"{at} >= 0", f"{at} < {d.size}"]
            elif _is_plain(d):
                assert isinstance(d.piece, Slice)
                start.append(scaled(self.indexing.affine(d.piece.start, wide), d.stride, wide))
                if d.piece.extent is not None:
                    step = d.stride * d.piece.step
                    start.append(scaled(self._positions.own(d.axis, layout[d.axis]), step, wide))
                    offset.append(scaled(self._positions.register(d.axis, layout[d.axis]), step, wide))
                tests += self._tests(d, layout)
            else:
                offset.append(scaled(self._near(d, layout), d.stride, wide))
                tests += self._tests(d, layout)
        axis, count = self._vector(buffer, along, layout)
        return Place(sum_of(*start), sum_of(*offset), tuple(tests), axis, count)

    def _near(self, d: Along, layout: Layout) -> str:
        """Positions, those outside a clamped dimension being its first or last."""
        assert isinstance(d.piece, Slice)
        text = self._positions.position(d.axis, d.piece, layout)
        if d.piece.clamped and self.indexing.precedes(d.piece):
            text = f"max({text}, 0)"
        if d.piece.clamped and self.indexing.exceeds(d.piece, d.size):
            text = f"min({text}, {d.size - 1})"
        return text

    def _tests(self, d: Along, layout: Layout) -> list[str]:
        assert isinstance(d.piece, Slice)
        if d.piece.clamped:
            return []
        at = self._positions.position(d.axis, d.piece, layout)
        tests = [f"{at} < {d.size}"] if self.indexing.exceeds(d.piece, d.size) else []
        # What is too large for 32 bits is negative in them.
        wraps = reach(d.piece, self.indexing.extents)[1] > _MAX_OFFSET
        return tests + ([f"{at} >= 0"] if self.indexing.precedes(d.piece) or wraps else [])

    def _vector(self, buffer: Buffer, along: Sequence[Along], layout: Layout) -> tuple[str, int]:
        """The axis along which neighbours are moved together, and how many."""
        best = ("", 1)
        for axis, most in vectors(buffer, along, self.indexing).items():
            count = math.gcd(vector(layout[axis]), most)
            best = (axis, count) if count > best[1] else best
        return best

    def _begins_at_vectors(self, buffer: Buffer, along: Sequence[Along], column: Along, stored: bool) -> bool:
        """Whether all rows of the slice that is moved back begin at whole vectors of the buffer, so moved.

        A whole vector is read wherever one of its elements is needed, so the buffer must end with one; and is stored
        only where all of them are.
        """
        assert isinstance(column.piece, Slice)
        assert column.piece.skew is not None
        vector = column.piece.skew.vector
        apart = {piece: between % vector for piece, between in column.piece.skew.terms}
        for d in along:
            if not isinstance(d.piece, Slice) or d.piece.before or d.piece.flat:
                return False
            if d is column:
                before, beyond = self.indexing.precedes(d.piece), self.indexing.exceeds(d.piece, d.size)
                cut = (before or beyond) if stored else (beyond and buffer.span % vector)
                start = d.piece.start
                whole = not any(c % vector for c in (start.offset, *(c for _, c in start.terms)))
                if d.stride != 1 or d.piece.step != 1 or not whole or cut:
                    return False
            elif d.stride % vector != apart.pop(d.piece, 0):
                return False
        return not any(apart.values())

    def _by_vectors(self, buffer: Buffer, along: Sequence[Along], column: Along, layout: Layout, wide: bool) -> Place:
        """The place of rows that begin anywhere, from the vector on that each begins in."""
        assert isinstance(column.piece, Slice)
        assert column.piece.skew is not None
        size, skew = column.size, column.piece.skew
        rows: list[str] = []
        tests: list[str] = []
        for d in along:
            if d is not column:
                assert isinstance(d.piece, Slice)
                rows.append(scaled(self._positions.position(d.axis, d.piece, layout), d.stride, wide))
                tests += self._tests(d, layout)
        columns = sum_of(
            self.indexing.affine(column.piece.start), self._positions.within(column.axis, layout[column.axis])
        )
        if self.indexing.exceeds(column.piece, size):
            # Whole vectors, or loads would not be.
            end = f"({self._positions.behind(skew, layout)} + {size + skew.vector - 1}) / {skew.vector} * {skew.vector}"
            tests.append(f"{columns} < {end}")
        begin = f"{grouped(sum_of(*rows))} / {skew.vector} * {skew.vector}"
        most = VECTOR_BYTES // element_bytes(buffer.dtype)
        count = math.gcd(vector(layout[column.axis]), skew.vector, most)
        return Place("0", sum_of(begin if rows else "0", columns), tuple(tests), column.axis, count)

    def _reach(self, along: Sequence[Along]) -> int:
        """The largest offset that is computed, below 0 or above, masked ones included."""
        first = last = 0
        for d in along:
            if not isinstance(d.piece, Slice):
                continue
            least, most = reach(d.piece, self.indexing.extents)
            first, last = first + least * d.stride, last + most * d.stride
        return max(-first, last)


def along_slices(buffer: Buffer, index: Sequence[Slice | Held | str]) -> list[Along]:
    """The dimensions of a buffer as a tile goes along them."""
    return [Along(*of) for of in zip(buffer.strides, buffer.shape, index, strict=True)]


def vectors(buffer: Buffer, along: Sequence[Along], indexing: Indexing) -> dict[str, int]:
    """The axes of a tile along which memory has neighbours, and how many of these at most may be moved at once."""
    found: dict[str, int] = {}
    for d in along:
        if isinstance(d.piece, Slice) and _is_plain(d) and d.piece.extent is not None and d.stride * d.piece.step == 1:
            if any(other is not d and _moves(other, d.axis) for other in along):
                continue
            count = VECTOR_BYTES // element_bytes(buffer.dtype)
            while count > 1 and not all(_is_whole(other, other is d, count, indexing) for other in along):
                count //= 2
            found[d.axis] = count
    return found


def _moves(d: Along, axis: str) -> bool:
    """Whether another dimension moves along an axis as well."""
    if isinstance(d.piece, Held):
        return axis in d.piece.tile.axes
    return axis == d.axis


def _is_whole(d: Along, fastest: bool, count: int, indexing: Indexing) -> bool:
    """Whether a dimension adds multiples of so many elements; and of the fastest one, whether none is cut in two."""
    if isinstance(d.piece, Held | str) or not _is_plain(d):
        return d.stride % count == 0
    piece = d.piece
    terms = [piece.start.offset, *(c for _, c in indexing.varying(piece.start))]
    if not fastest and (piece.extent or 1) > 1:
        terms.append(piece.step)
    cut = fastest and indexing.exceeds(piece, d.size) and d.size % count != 0
    return not cut and all(t * d.stride % count == 0 for t in terms)


def _is_plain(d: Along) -> bool:
    """Whether positions are a sum of the thread's part and that of its registers."""
    piece = d.piece
    return isinstance(piece, Slice) and not (piece.before or piece.flat or piece.skew or piece.clamped)
