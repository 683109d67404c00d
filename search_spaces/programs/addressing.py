"""Where a tile lies in memory: the one pass from slices to base, strides and guards, whose terms printers only spell.

x: 1000 matrices of 8 rows of 512 columns
load x[m.0*64 : +64, r.0, k.0*64 : +32 step 2] else 0

base     r.0*512                         what single positions add up to
m        (m.0*64 + m) * 4096             a term for every dimension that an axis runs along
k        (k.0*64 + 2*k) * 1              so that neighbours along k are 2 elements apart
guards   m.0*64 + m < 1000               where positions may be outside; there the load reads its fill
wide     no                              whether an offset may be too large for 32 bits
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.programs.grid import Grid
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Before, Slice
from search_spaces.workloads.expressions.affine import Affine

# The largest integer of 32 bits, which GPUs count positions and offsets in.
LARGEST_OFFSET = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension of a buffer as a tile runs along it: where a slice is, or where the tile of this name says.

    The buffer has `size` positions, `stride` elements apart. Those of the slice are from `least` to `most`.
    """

    index: Slice | str
    size: int
    stride: int
    least: int
    most: int

    @staticmethod
    def of(index: Slice | str, size: int, extents: Mapping[str, int], stride: int = 1) -> Dimension:
        """`extents`: of the variables that slices begin at."""
        return Dimension(index, size, stride, *((0, 0) if isinstance(index, str) else reach(index, extents)))

    @property
    def slice(self) -> Slice:
        """The slice, of a dimension that is not looked up."""
        assert isinstance(self.index, Slice)
        return self.index

    @property
    def axis(self) -> str:
        """The axis of the tile, "" for a single position and for looked up ones."""
        return self.index.axis if isinstance(self.index, Slice) else ""

    @property
    def exceeds(self) -> bool:
        """Whether some position of a slice is behind the last one."""
        return self.most >= self.size

    @property
    def precedes(self) -> bool:
        """Whether some position of a slice is before the first one."""
        return self.least < 0

    @property
    def may_leave(self) -> bool:
        """Whether some position of a slice is outside."""
        return self.precedes or self.exceeds

    @property
    def tests(self) -> tuple[str, ...]:
        """What must hold of a position for there to be an element: `< size` or `>= 0`, as far as it may not."""
        if isinstance(self.index, str):
            return (">= 0", f"< {self.size}")
        # What is too large for 32 bits is negative in them.
        wraps = self.most > LARGEST_OFFSET
        return (f"< {self.size}",) * self.exceeds + (">= 0",) * (self.precedes or wraps)

    @property
    def is_plain(self) -> bool:
        """Whether positions are the slice's start and a multiple of the place along its axis."""
        return isinstance(self.index, Slice) and not (
            self.index.before or self.index.flat or self.index.skew or self.index.clamped
        )

    @property
    def is_chosen(self) -> bool:
        """Whether positions are some of several, as a condition says."""
        return isinstance(self.index, Slice) and bool(self.index.before)

    @property
    def is_clamped(self) -> bool:
        """Whether positions outside are the first or the last one instead."""
        return isinstance(self.index, Slice) and self.index.clamped and self.may_leave

    @property
    def between(self) -> int:
        """How many elements neighbours along the axis are apart."""
        return self.stride * self.index.step if isinstance(self.index, Slice) and self.axis else 0


@dataclass(frozen=True)
class Address:
    """The dimensions of a buffer as a tile runs along them."""

    buffer: Buffer
    dimensions: tuple[Dimension, ...]

    @property
    def wide(self) -> bool:
        """Whether an offset may be too large for 32 bits, of elements that are masked off included."""
        first = sum(d.least * d.stride for d in self.dimensions)
        return max(-first, sum(d.most * d.stride for d in self.dimensions)) > LARGEST_OFFSET

    @property
    def base(self) -> Affine:
        """What positions that are picked one by one add up to, in elements."""
        picked = [d for d in self.dimensions if isinstance(d.index, Slice) and not (d.axis or d.is_chosen)]
        return sum((d.slice.start * d.stride for d in picked), Affine())

    def between(self, axis: str) -> int:
        """How many elements neighbours along the axis are apart; 0 where it has none."""
        return sum(d.between for d in self.dimensions if d.axis == axis)

    def column_at_vectors(self, stored: bool) -> Dimension | None:
        """The dimension that is moved back, if so all rows of it begin at whole vectors of the buffer.

        A whole vector is read wherever one of its elements is needed, so the buffer must end with one; and is stored
        only where all of them are.
        """
        column = next((d for d in self.dimensions if isinstance(d.index, Slice) and d.index.skew), None)
        if column is None or not isinstance(column.index, Slice) or column.index.skew is None:
            return None
        vector, start = column.index.skew.vector, column.index.start
        cut = (column.precedes or column.exceeds) if stored else (column.exceeds and self.buffer.span % vector)
        whole = not any(c % vector for c in (start.offset, *(c for _, c in start.terms)))
        if column.between != 1 or not whole or cut:
            return None
        behind = {piece: -between for piece, between in column.index.skew.terms}
        for d in self.dimensions:
            if not isinstance(d.index, Slice) or d.index.before or d.index.flat:
                return None
            if d is not column:
                behind[d.index] = behind.get(d.index, 0) + d.stride
        return None if any(apart % vector for apart in behind.values()) else column


def why_uncounted(grid: Grid) -> str | None:
    """Why a GPU does not count the pieces of work of a grid in integers of 32 bits; None where it does."""
    # A persistent program counts to the end in steps of as many programs as there are.
    counted = grid.pieces if grid.persistent is None else grid.pieces + grid.programs
    return f"a grid of {grid.pieces} tiles; GPUs count at most {LARGEST_OFFSET}" if counted > LARGEST_OFFSET else None


def dimensions(buffer: Buffer, index: Sequence[Slice | str], extents: Mapping[str, int]) -> tuple[Dimension, ...]:
    """Where a load, a store or a look-up is in every dimension of its buffer."""
    indexed = zip(index, buffer.shape, buffer.strides, strict=True)
    return tuple([Dimension.of(at, size, extents, stride) for at, size, stride in indexed])


def address(buffer: Buffer, index: Sequence[Slice | str], extents: Mapping[str, int]) -> Address:
    """The same as an address, digits whose strides are in radix as one; the variables of its kernel have these extents.

    Before:  out[(m.0*64 + m) // 14, (m.0*64 + m) % 14] of 14 rows of 14       After:  out[m.0*64 + m] of 196
    """
    found = dimensions(buffer, index, extents)
    if sum(isinstance(d.index, Slice) and d.index.flat is not None for d in found) > 1:
        found = _joined(found, extents)
    return Address(buffer, found)


def _joined(found: tuple[Dimension, ...], extents: Mapping[str, int]) -> tuple[Dimension, ...]:
    """The dimensions, those that are neighbouring digits of one number and in memory as one."""
    for outer in found:
        for inner in found:
            if outer is not inner and (whole := _one(outer, inner, extents)):
                rest = tuple(whole if d is inner else d for d in found if d is not outer)
                return _joined(rest, extents)
    return found


def _one(outer: Dimension, inner: Dimension, extents: Mapping[str, int]) -> Dimension | None:
    """The two dimensions as one, where the second one's digit goes on in the first one's, in memory too."""
    if not (isinstance(outer.index, Slice) and isinstance(inner.index, Slice)):
        return None
    a, b = outer.index, inner.index
    if not (a.flat and b.flat) or (a.axis, a.extent) != (b.axis, b.extent) or inner.may_leave:
        return None
    flat = a.flat.within(b.flat)
    if flat is None or outer.stride != b.flat.size * inner.stride * b.step:
        return None
    if a.step != 1 or a.start != Affine() or b.start != Affine() or a.before or b.before or a.skew or b.skew:
        return None
    size = outer.size * b.flat.size * b.step
    if flat.divisor == 1 and not flat.size:
        piece = Slice(flat.start * b.step, b.extent, b.axis, a.clamped, b.step)
    else:
        piece = replace(b, flat=flat, clamped=a.clamped)
    return Dimension.of(piece, size, extents, inner.stride)


def _last(piece: Slice, extents: Mapping[str, int]) -> int:
    """The greatest position that a slice counts."""
    last = (piece.extent or 1) - 1
    if piece.flat is None:
        return last
    return piece.flat.size - 1 if piece.flat.size else piece.flat.of(piece.flat.start.maximum(extents) + last)


def reach(piece: Slice, extents: Mapping[str, int]) -> tuple[int, int]:
    """The smallest and the largest index that the slice can have."""
    if piece.before and not _depends(piece):
        ends = list(_ends(piece, range(_last(piece, extents) + 1)))
        return min(ends), max(ends)
    along = piece.step * _last(piece, extents)
    back = piece.skew.most if piece.skew else 0
    least, most = piece.start.minimum(extents) + min(0, along) - back, piece.start.maximum(extents) + max(0, along)
    others = [reach(b.then, extents) for b in piece.before]
    return min([least, *(first for first, _ in others)]), max([most, *(last for _, last in others)])


def _depends(piece: Slice) -> bool:
    """Whether a variable decides which of several positions are taken."""
    return bool(piece.start.terms) or any(_depends(s) for b in piece.before for s in (b.at, b.then))


def _ends(piece: Slice, counted: range) -> Iterator[int]:
    """The first and the last position of everything that is taken, where the slice counts these."""
    for b in piece.before:
        held, counted = _divided(b, counted)
        yield from _ends(b.then, held)
    if counted:
        yield from (piece.start.offset + piece.step * n for n in (counted[0], counted[-1]))


def _divided(before: Before, counted: range) -> tuple[range, range]:
    """The positions that are below the size, and the others."""
    step, room = before.at.step, before.size - 1 - before.at.start.offset
    if step == 0:
        return (counted, range(0)) if room >= 0 else (range(0), counted)
    place = room // step + 1 if step > 0 else -(room // -step)
    at = min(max(place - counted.start, 0), len(counted))
    return (counted[:at], counted[at:]) if step > 0 else (counted[at:], counted[:at])
