"""Tiles and their places: slices of buffers, bounds of their valid positions, and staging layouts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import Affine


@dataclass(frozen=True, slots=True)
class Tile:
    """Name, named axes, extents and element type of a tile. A tile without axes is a scalar."""

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str = "float32"

    @staticmethod
    def along(slices: Iterable[Slice], name: str, dtype: str = "float32") -> Tile:
        """The tile at these slices."""
        extents = sliced(slices)
        return Tile(name, tuple(extents), tuple(extents.values()), dtype)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * dtype(self.dtype).bytes

    def extent(self, axis: str) -> int:
        return self.shape[self.axes.index(axis)]

    def __str__(self) -> str:
        dims = ", ".join(f"{a} {e}" for a, e in zip(self.axes, self.shape, strict=True))
        return f"{self.name}: ({dims}) {self.dtype}"


@dataclass(frozen=True, slots=True)
class Slice:
    """One dimension of a tile's place in a buffer (or in another tile), and the axis of the tile along it.

    `extent=None`: a single index, along no axis. `clamped`: positions beyond the end of the buffer read its last one
    instead of a fill value, so that no load needs a mask; only for unused elements. `step`: distance between positions,
    possibly negative, or 0. `skew`: shifts all of them back. `before`: other positions under conditions, of which the
    first that holds applies, as for padding by reflection. `flat`: the axis runs along other dimensions as well.
    `bound`: positions outside of it count as outside of the buffer, where they are multiplied (CPU).
    """

    start: Affine
    extent: int | None = None
    axis: str = ""
    clamped: bool = False
    step: int = 1
    skew: Skew | None = None
    before: tuple[Before, ...] = ()
    flat: Flat | None = None
    bound: Bound | None = None

    def __post_init__(self) -> None:
        assert (self.extent is None) == (not self.axis), f"an extent of {self.extent} along {self.axis or 'no axis'}"

    def __str__(self) -> str:
        clamped = " clamped" if self.clamped else ""
        first = "".join(f"({b.then}) before {b.size} of ({b.at}), " for b in self.before)
        if self.extent is None:
            return f"{first}{self.start}{clamped}"
        step = "" if self.step == 1 else f" step {self.step}"
        back = f" - {self.skew}" if self.skew else ""
        flat = f" of ({self.axis} from {self.flat.start}) {self.flat.text('//')}" if self.flat else ""
        end = f" while {self.bound.start} < {self.bound.size}" if self.bound else ""
        return f"{first}{self.start}{back} : +{self.extent}{step}{flat}{clamped}{end}"

    @property
    def is_constant(self) -> bool:
        """True for one index that is known."""
        return self == Slice(Affine(offset=self.start.offset))

    @property
    def is_side(self) -> bool:
        """True for a side of a box: one of several dimensions that an axis runs along, each from a start of its own.

        The 128 pixels of 2 images, 8 rows and 8 columns, from image n, row r and column c on:

            image   n + i // 64              row   r + i // 8 % 8              column   c + i % 8
        """
        return self.flat is not None and self.flat.size > 0 and self.flat.start == Affine()

    @property
    def side(self) -> int:
        """Number of positions of the dimension in a box."""
        return self.flat.size if self.flat else self.extent or 1

    def part(self, first: Affine, size: int) -> Slice:
        """The slice at `size` positions of its axis, from `first` on, a multiple of the size.

        Of a box these are a box again, if they are within one position of every dimension or go over a part that
        divides it, and the variables of `first` move it along one dimension.
        """
        if self.flat is None:
            return replace(self, start=self.start + first * self.step, extent=size)
        whole = self.is_side and self.flat.divides(size)
        digit = self.flat.along(first, (self.extent or size) - size) if whole else None
        if digit is None:
            return replace(self, extent=size, flat=replace(self.flat, start=self.flat.start + first))
        flat = replace(self.flat, size=min(self.flat.size, max(1, size // self.flat.divisor)))
        return side(self.start + digit * self.step, size, self.axis, flat, self.step)


@dataclass(frozen=True, slots=True)
class Before:
    """The positions of `then` for which those of `at` are below `size`."""

    at: Slice
    size: int
    then: Slice


@dataclass(frozen=True, slots=True)
class Flat:
    """A digit of a number in mixed radix, by which an axis of a tile runs along several dimensions.

    For positions i of a slice, the digit is (start + i) // divisor % size, and for the outermost one, which has no
    `size`, (start + i) // divisor. Of image, row and column of 8 x 14 x 14, a tile of 128 positions has

        image   (start + i) // 196           row   (start + i) // 14 % 14           column   (start + i) % 14

    So a tile spans as many rows as it takes, with no position beyond the end of one.
    """

    start: Affine
    divisor: int = 1
    size: int = 0

    def text(self, quotient: str) -> str:
        """The operators that extract the digit from a count, with this sign of an integer division."""
        divided = [f"{quotient} {self.divisor}"] if self.divisor > 1 or not self.size else []
        return " ".join([*divided, *([f"% {self.size}"] if self.size else [])])

    def of(self, count: int) -> int:
        """The digit of a number."""
        return count // self.divisor % self.size if self.size else count // self.divisor

    def divides(self, size: int) -> bool:
        """True if pieces of so many positions have one digit each, all digits, or equal parts of them."""
        digits = size // self.divisor
        if not digits:
            return self.divisor % size == 0
        return size % self.divisor == 0 and (digits % self.size == 0 or self.size % digits == 0)

    def along(self, number: Affine, largest: int) -> Affine | None:
        """The digit of a number up to `largest`, if that is affine in the number's variables; or None."""
        if not number.terms:
            return Affine(offset=self.of(number.offset))
        moving = tuple((v, c) for v, c in number.terms if c % (self.divisor * self.size))
        wraps = moving and largest // self.divisor >= self.size
        if number.offset or wraps or any(c % self.divisor for _, c in moving):
            return None
        return Affine(tuple((v, c // self.divisor) for v, c in moving))

    def within(self, inner: Flat) -> Flat | None:
        """The two digits merged into one, if this one precedes `inner`; or None."""
        follows = self.start == inner.start and inner.size and self.divisor == inner.divisor * inner.size
        return Flat(self.start, inner.divisor, self.size * inner.size) if follows else None


@dataclass(frozen=True, slots=True)
class Digits:
    """Variables of a loop's body that are the digits of a number in mixed radix: names and extents, outermost first."""

    number: Affine
    radix: tuple[tuple[str, int], ...]

    @property
    def flats(self) -> dict[str, Flat]:
        """Each digit as a function of the number."""
        found, divisor = dict[str, Flat](), math.prod(size for _, size in self.radix)
        for name, size in self.radix:
            divisor //= size
            found[name] = Flat(self.number, divisor, size if found else 0)
        return found


@dataclass(frozen=True, slots=True)
class Skew:
    """Distance of a row's start from the vector boundary before it: the sum of `terms` modulo `vector`, in elements.

    A term is the slice of an axis and its stride. Shifted back by the skew, slices of rows with any start in memory
    begin at vectors, each with some elements of the previous row:

        rows of 5 elements, vectors of 4   |0 0 0 0|0 1 1 1|1 1 2 2|…   row 1 is moved back by 5 % 4 = 1
    """

    terms: tuple[tuple[Slice, int], ...]
    vector: int

    def __str__(self) -> str:
        return f"({' + '.join(f'{piece.axis or piece.start}*{apart}' for piece, apart in self.terms)}) % {self.vector}"

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of a tile on which it depends."""
        return tuple(piece.axis for piece, _ in self.terms if piece.axis)

    @property
    def most(self) -> int:
        """The largest possible skew."""
        return self.vector - math.gcd(self.vector, *(apart for _, apart in self.terms))


@dataclass(frozen=True, slots=True)
class Bound:
    """The condition `start < size`; for an axis of a tile, `0 <= start - skew + position < size`."""

    start: Affine
    size: int
    skew: Skew | None = None


@dataclass(frozen=True, slots=True)
class Panels:
    """Staging layout: the tile is copied so that every `width` neighbours along `axis` are contiguous.

    Before: element (i, k) of an (m 64, k 32) tile at i*32 + k.

    After `Panels("m", 8)`: at (i // 8)*(32*8) + k*8 + i % 8. Also called packing (GotoBLAS, section 4).

    With `interleaved=False` the 8 rows of a panel stay rows, one after the other with some padding: no transposition,
    but no two rows in the same cache set either.
    """

    axis: str
    width: int
    interleaved: bool = True


def side(start: Affine, extent: int, axis: str, flat: Flat, step: int = 1) -> Slice:
    """The side of a box of `extent` positions that the digit `flat` counts; of one position, or all, in plain words."""
    if flat.size == 1:
        return Slice(start)
    whole = flat.divisor == 1 and flat.size == extent
    return Slice(start, extent, axis, step=step, flat=None if whole else flat)


def sliced(slices: Iterable[Slice]) -> dict[str, int]:
    """The axes of the slices, in the order of the dimensions, and their extents."""
    return {piece.axis: piece.extent for piece in slices if piece.extent is not None}
