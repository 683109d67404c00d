"""Addresses of tiles: the one pass from slices to base, strides and guards, whose terms printers only spell.

x: 1000 matrices of 8 rows of 512 columns
load x[m.0*64 : +64, r.0, k.0*64 : +32 step 2] else 0

base     r.0*512                         the sum of single positions
m        (m.0*64 + m) * 4096             a term for every dimension that an axis runs along
k        (k.0*64 + 2*k) * 1              so that neighbours along k are 2 elements apart
guards   m.0*64 + m < 1000               for positions that may be outside; there the load reads its fill
wide     no                              an offset may be too large for 32 bits
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
    """A dimension of a buffer, indexed by a slice or by the elements of the tile of this name.

    The buffer has `size` positions, `stride` elements apart. The slice's are from `least` to `most`.
    """

    index: Slice | str
    size: int
    stride: int
    least: int
    most: int

    @staticmethod
    def of(index: Slice | str, size: int, extents: Mapping[str, int], stride: int = 1) -> Dimension:
        """Compute the range of a slice; `extents`: of the variables in its start."""
        return Dimension(index, size, stride, *((0, 0) if isinstance(index, str) else reach(index, extents)))

    @property
    def slice(self) -> Slice:
        """The slice; not for a gathered dimension."""
        assert isinstance(self.index, Slice)
        return self.index

    @property
    def axis(self) -> str:
        """The axis of the tile, "" for a single position and for gathered ones."""
        return self.index.axis if isinstance(self.index, Slice) else ""

    @property
    def exceeds(self) -> bool:
        """True if some position of a slice is behind the last one."""
        return self.most >= self.size

    @property
    def precedes(self) -> bool:
        """True if some position of a slice is before the first one."""
        return self.least < 0

    @property
    def may_leave(self) -> bool:
        """True if some position of a slice is outside."""
        return self.precedes or self.exceeds

    @property
    def tests(self) -> tuple[str, ...]:
        """Conditions of a guard, `< size` or `>= 0`, without those that always hold."""
        if isinstance(self.index, str):
            return (">= 0", f"< {self.size}")
        # Integers too large for 32 bits are negative in them.
        wraps = self.most > LARGEST_OFFSET
        return (f"< {self.size}",) * self.exceeds + (">= 0",) * (self.precedes or wraps)

    @property
    def is_plain(self) -> bool:
        """True if positions are an affine function of the place along the axis."""
        return isinstance(self.index, Slice) and not (
            self.index.before or self.index.flat or self.index.skew or self.index.clamped
        )

    @property
    def is_chosen(self) -> bool:
        """True if conditions choose between several positions."""
        return isinstance(self.index, Slice) and bool(self.index.before)

    @property
    def is_clamped(self) -> bool:
        """True if positions outside become the first or the last one."""
        return isinstance(self.index, Slice) and self.index.clamped and self.may_leave

    @property
    def between(self) -> int:
        """Distance in elements between neighbours along the axis."""
        return self.stride * self.index.step if isinstance(self.index, Slice) and self.axis else 0


@dataclass(frozen=True)
class Address:
    """The dimensions of a buffer as a tile indexes them."""

    buffer: Buffer
    dimensions: tuple[Dimension, ...]

    @property
    def wide(self) -> bool:
        """True if an offset may be too large for 32 bits, including those of masked elements."""
        first = sum(d.least * d.stride for d in self.dimensions)
        return max(-first, sum(d.most * d.stride for d in self.dimensions)) > LARGEST_OFFSET

    @property
    def axes(self) -> frozenset[str]:
        """The axes along which elements differ; those of gathered dimensions are not known here."""
        slices = [d.index for d in self.dimensions if isinstance(d.index, Slice)]
        return frozenset(a for s in slices for a in (s.axis, *(s.skew.axes if s.skew else ())))

    @property
    def base(self) -> Affine:
        """The sum of single positions, in elements."""
        picked = [d for d in self.dimensions if isinstance(d.index, Slice) and not (d.axis or d.is_chosen)]
        return sum((d.slice.start * d.stride for d in picked), Affine())

    def between(self, axis: str) -> int:
        """Distance in elements between neighbours along the axis; 0 if the address has no such axis."""
        return sum(d.between for d in self.dimensions if d.axis == axis)

    def column_at_vectors(self, stored: bool) -> Dimension | None:
        """The skewed dimension, if all its rows begin at whole vectors of the buffer.

        A load reads a whole vector if it needs one of its elements, so the buffer has to end with a vector; a store
        writes only whole vectors of the slice.
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
    """Reason that a GPU cannot count a grid's pieces of work in 32-bit integers, or None."""
    # A persistent program counts to the end in steps of as many programs as there are.
    counted = grid.pieces if grid.persistent is None else grid.pieces + grid.programs
    return f"a grid of {grid.pieces} tiles; GPUs count at most {LARGEST_OFFSET}" if counted > LARGEST_OFFSET else None


def dimensions(buffer: Buffer, index: Sequence[Slice | str], extents: Mapping[str, int]) -> tuple[Dimension, ...]:
    """The dimensions of a buffer, each with its index in a load, store or gather."""
    indexed = zip(index, buffer.shape, buffer.strides, strict=True)
    return tuple([Dimension.of(at, size, extents, stride) for at, size, stride in indexed])


def address(buffer: Buffer, index: Sequence[Slice | str], extents: Mapping[str, int]) -> Address:
    """The address of a load, store or gather, with contiguous digits of one number merged into one dimension.

    `extents`: of the variables of the kernel.

    Before:  out[(m.0*64 + m) // 14, (m.0*64 + m) % 14] of 14 rows of 14       After:  out[m.0*64 + m] of 196
    """
    found = dimensions(buffer, index, extents)
    if sum(isinstance(d.index, Slice) and d.index.flat is not None for d in found) > 1:
        found = _joined(found, extents)
    return Address(buffer, found)


def joined(buffer: Buffer, slices: Sequence[Slice], extents: Mapping[str, int]) -> tuple[Buffer, tuple[Slice, ...]]:
    """The buffer with contiguous digits of one number as one dimension, and the slices in that; for descriptors."""
    if not any(piece.flat for piece in slices):
        return buffer, tuple(slices)
    found = address(buffer, slices, extents).dimensions
    shape, strides = tuple(d.size for d in found), tuple(d.stride for d in found)
    return replace(buffer, shape=shape, declared_strides=strides), tuple(d.slice for d in found)


def _joined(found: tuple[Dimension, ...], extents: Mapping[str, int]) -> tuple[Dimension, ...]:
    """The dimensions, with neighbouring digits of one number merged if they are contiguous."""
    for outer in found:
        for inner in found:
            if outer is not inner and (whole := _one(outer, inner, extents)):
                rest = tuple(whole if d is inner else d for d in found if d is not outer)
                return _joined(rest, extents)
    return found


def _one(outer: Dimension, inner: Dimension, extents: Mapping[str, int]) -> Dimension | None:
    """The two dimensions merged, or None unless the inner digit follows the outer one in the number and in memory."""
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
    if size > LARGEST_OFFSET:
        return None
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
    """The smallest and the largest index of the slice."""
    if piece.before and not _depends(piece):
        ends = list(_ends(piece, range(_last(piece, extents) + 1)))
        return min(ends), max(ends)
    along = piece.step * _last(piece, extents)
    back = piece.skew.most if piece.skew else 0
    least, most = piece.start.minimum(extents) + min(0, along) - back, piece.start.maximum(extents) + max(0, along)
    others = [reach(b.then, extents) for b in piece.before]
    return min([least, *(first for first, _ in others)]), max([most, *(last for _, last in others)])


def _depends(piece: Slice) -> bool:
    """True if a variable decides which of several positions are taken."""
    return bool(piece.start.terms) or any(_depends(s) for b in piece.before for s in (b.at, b.then))


def _ends(piece: Slice, counted: range) -> Iterator[int]:
    """The first and the last position of every piece that is taken, for these counted places."""
    for b in piece.before:
        held, counted = _divided(b, counted)
        yield from _ends(b.then, held)
    if counted:
        yield from (piece.start.offset + piece.step * n for n in (counted[0], counted[-1]))


def _divided(before: Before, counted: range) -> tuple[range, range]:
    """The places before the condition's limit, and the others."""
    step, room = before.at.step, before.size - 1 - before.at.start.offset
    if step == 0:
        return (counted, range(0)) if room >= 0 else (range(0), counted)
    place = room // step + 1 if step > 0 else -(room // -step)
    at = min(max(place - counted.start, 0), len(counted))
    return (counted[:at], counted[at:]) if step > 0 else (counted[at:], counted[:at])
