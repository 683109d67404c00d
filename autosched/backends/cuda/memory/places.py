"""Places of a tile in a buffer: offsets of a thread's elements, guards, and the neighbours moved at once.

start    (m_0 * 16 + own_m) * 4096 + own_n        the same for all elements of a thread
offset   r_m * 8192 + r_n / 4 * 512               a constant, where loops over registers are unrolled
tests    n_0 * 64 + own_n + r_n < 1000
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.backends.cuda.language.index import Indexing, grouped, scaled, sum_of
from autosched.backends.cuda.language.types import VECTOR_BYTES, element_bytes
from autosched.backends.cuda.registers.layouts import Layout, vector
from autosched.backends.cuda.registers.positions import Positions
from autosched.backends.cuda.registers.tiles import Held
from search_spaces.programs.addressing import Address, Dimension
from search_spaces.programs.tiles import Slice
from search_spaces.workloads.expressions.affine import Affine


@dataclass(frozen=True)
class Place:
    """Places of a thread's elements: from `start`, an offset that is the same for all of them, on by `offset`.

    `tests`: the conditions under which an element exists. `vector`: number of neighbours along `axis` that are moved at
    once.
    """

    start: str
    offset: str
    tests: tuple[str, ...]
    axis: str
    vector: int


class Places:
    """Computes the places of tiles in buffers."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self.indexing = positions.indexing

    def place(
        self, address: Address, layout: Layout, stored: bool = False, looked_up: Mapping[str, Held] = {}
    ) -> Place:
        """The place of a thread's elements. `looked_up`: tiles of indices by their names."""
        if column := address.column_at_vectors(stored):
            return self._by_vectors(address, column, layout)
        wide = address.wide
        start: list[str] = []
        offset: list[str] = []
        tests: list[str] = []
        for d in address.dimensions:
            if isinstance(d.index, str):
                at = looked_up[d.index].element(self._positions.counting(layout))
                offset.append(scaled(at, d.stride))
                tests += [f"{at} {t}" for t in d.tests]
                continue
            if d.is_plain:
                start.append(scaled(self.indexing.affine(d.index.start, wide), d.stride, wide))
                if d.axis:
                    start.append(scaled(self._positions.own(d.axis, layout[d.axis]), d.between, wide))
                    offset.append(scaled(self._positions.register(d.axis, layout[d.axis]), d.between, wide))
            else:
                offset.append(scaled(self._near(d, layout), d.stride, wide))
            tests += self._tests(d, layout)
        axis, count = self._vector(address, layout, looked_up)
        return Place(sum_of(*start), sum_of(*offset), tuple(tests), axis, count)

    def _near(self, d: Dimension, layout: Layout) -> str:
        """Positions; outside a clamped dimension, its first or last."""
        text = self._positions.position(d.slice, layout)
        if d.is_clamped and d.precedes:
            text = f"max({text}, 0)"
        if d.is_clamped and d.exceeds:
            text = f"min({text}, {d.size - 1})"
        return text

    def _tests(self, d: Dimension, layout: Layout) -> list[str]:
        if d.slice.clamped or not d.tests:
            return []
        at = self._positions.position(d.slice, layout)
        return [f"{at} {t}" for t in d.tests]

    def _vector(self, address: Address, layout: Layout, looked_up: Mapping[str, Held]) -> tuple[str, int]:
        """The axis along which neighbours are moved together, and their number."""
        best = ("", 1)
        for axis, most in vectors(address, self.indexing, looked_up).items():
            count = math.gcd(vector(layout[axis]), most)
            best = (axis, count) if count > best[1] else best
        return best

    def _by_vectors(self, address: Address, column: Dimension, layout: Layout) -> Place:
        """The place of rows that begin anywhere, from the vector on in which each begins."""
        skew = column.slice.skew
        assert skew is not None
        rows: list[str] = []
        tests: list[str] = []
        for d in address.dimensions:
            if d is not column:
                rows.append(scaled(self._positions.position(d.slice, layout), d.stride, address.wide))
                tests += self._tests(d, layout)
        columns = sum_of(
            self.indexing.affine(column.slice.start), self._positions.within(column.axis, layout[column.axis])
        )
        if column.exceeds:
            # Whole vectors, or loads would not be.
            most = column.size + skew.vector - 1
            end = f"({self._positions.behind(skew, layout)} + {most}) / {skew.vector} * {skew.vector}"
            tests.append(f"{columns} < {end}")
        begin = f"{grouped(sum_of(*rows))} / {skew.vector} * {skew.vector}"
        together = VECTOR_BYTES // element_bytes(address.buffer.dtype)
        count = math.gcd(vector(layout[column.axis]), skew.vector, together)
        return Place("0", sum_of(begin if rows else "0", columns), tuple(tests), column.axis, count)


def vectors(address: Address, indexing: Indexing, looked_up: Mapping[str, Held] = {}) -> dict[str, int]:
    """The axes of a tile along which memory has neighbours, and the most of these that may be moved at once."""
    found: dict[str, int] = {}
    for d in address.dimensions:
        if d.between == 1 and (d.is_plain or _is_digit(d)):
            along = [o for o in address.dimensions if o is not d and d.axis in _axes(o, looked_up)]
            if along and not (_is_digit(d) and all(_is_digit(o) and _number(o) == _number(d) for o in along)):
                continue
            count = VECTOR_BYTES // element_bytes(address.buffer.dtype)
            while count > 1 and not all(_is_whole(other, d, count, indexing) for other in address.dimensions):
                count //= 2
            found[d.axis] = count
    return found


def _is_digit(d: Dimension) -> bool:
    """True if positions along the axis are those of a digit of a number, and nothing else."""
    piece = d.index
    if not isinstance(piece, Slice) or piece.flat is None:
        return False
    return not (piece.before or piece.skew or d.is_clamped)


def _number(d: Dimension) -> Affine | None:
    return d.slice.flat.start if d.slice.flat else None


def _axes(d: Dimension, looked_up: Mapping[str, Held]) -> tuple[str, ...]:
    """The axes that a dimension depends on, as far as its layout is known."""
    if isinstance(d.index, str):
        return looked_up[d.index].tile.axes if d.index in looked_up else ()
    return (d.axis,)


def _is_whole(d: Dimension, fastest: Dimension, count: int, indexing: Indexing) -> bool:
    """True if a dimension adds multiples of `count` elements, and if it is the fastest, no vector crosses its end."""
    if _is_digit(d) and d.axis == fastest.axis:
        return _is_whole_digit(d, d is fastest, count, indexing)
    if not d.is_plain:
        return d.stride % count == 0
    piece = d.slice
    terms = [piece.start.offset, *(c for _, c in indexing.varying(piece.start))]
    if d is not fastest and (piece.extent or 1) > 1:
        terms.append(piece.step)
    cut = d is fastest and d.exceeds and d.size % count != 0
    return not cut and all(t * d.stride % count == 0 for t in terms)


def _is_whole_digit(d: Dimension, fastest: bool, count: int, indexing: Indexing) -> bool:
    """The same of a digit: the fastest one counts a vector's elements, and all others stay as they are in it."""
    flat = d.slice.flat
    assert flat is not None
    terms = [flat.start.offset, *(c for _, c in indexing.varying(flat.start)), flat.size]
    if fastest:
        terms += [d.slice.start.offset, *(c for _, c in indexing.varying(d.slice.start))]
        return flat.divisor == 1 and not d.may_leave and all(t % count == 0 for t in terms)
    return flat.divisor % count == 0 and d.stride % count == 0 and all(t % count == 0 for t in terms[:-1])
