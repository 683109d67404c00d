"""Elements of a row kernel that are not contiguous in memory: strided ones and gathers.

    table[t[r], c]    a row that is selected once, then read like any other
    x[r, t[r]]        one element per row
    x[r, t[r, c]]     another element in every lane, loaded one by one

No address outside the buffer is ever read: if an index is outside of its dimension, another element is loaded and
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autosched.backends.llvm.bodies.guards import Positions
from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.integers import constant, is_integral
from autosched.backends.llvm.ir.text import I32, I64, Builder, IRValue
from autosched.backends.llvm.ir.values import (
    both,
    broadcast,
    first_lanes,
    float_constant,
    in_order,
    index,
    int_constant,
    minus,
    plus,
    shuffle,
    vector,
)
from search_spaces.programs.statements import Gather
from search_spaces.programs.tiles import Slice


@dataclass(frozen=True)
class Lookup:
    """The part of a gather that is common to all columns of a row.

    The element of column c is at `base + c * stride`, plus the lane's own index times the stride for every (tile, size,
    stride) in `by_lane`, and for those of `positions`; it exists if `inside` (in every lane; None: always) and c is
    below `limit` (None: always). It is read as a float32, or `integral`; elements that do not exist as `fill`.
    """

    dtype: str
    integral: bool
    base: IRValue
    inside: IRValue | None
    stride: int
    limit: IRValue | None
    by_lane: tuple[tuple[str, int, int], ...]
    positions: tuple[tuple[Positions, int], ...]
    fill: float | int


def lookup(
    code: Code,
    s: Gather,
    lanes: int,
    column: str,
    start_of: Callable[[Slice], IRValue],
    row_values: Mapping[str, IRValue],
    integral: bool,
) -> Lookup:
    """Find the addresses of a gather in the row that is printed.

    `column`: the axis of the columns; `start_of`: the start of a slice in this row; `row_values`: the index tiles with
    one value per row.
    """
    b, place = code.b, code.place(s.buffer, s.index)
    offset, inside, limit, column_stride = index(0), None, None, 0
    by_lane: list[tuple[str, int, int]] = []
    positions: list[tuple[Positions, int]] = []
    for d in place.dimensions:
        at = d.index
        if isinstance(at, str) and at not in row_values:
            by_lane.append((at, d.size, d.stride))
            continue
        if isinstance(at, str):
            number, exists = _index_of(b, row_values[at], d.size, 1)
        else:
            number, exists = start_of(at), None
            if d.axis == column and (at.step != 1 or d.precedes):
                positions.append((Positions.of(d, number), d.stride))
                continue
            if d.axis == column:
                column_stride = d.stride
                limit = minus(b, index(d.size), number) if d.exceeds else None
            elif d.precedes:
                exists = b.icmp_unsigned("<", number, index(d.size))
            elif d.exceeds:
                exists = b.icmp_signed("<", number, index(d.size))
        if exists is not None:
            number = b.select(exists, number, index(0))
            inside = both(b, inside, exists)
        offset = plus(b, offset, code.scaled(number, d.stride))
    base = code.address(code.base[s.buffer], offset, place.buffer.dtype)
    everywhere = None if inside is None else broadcast(b, inside, lanes)
    fill = s.outside(place.buffer.dtype)
    ways = tuple(by_lane), tuple(positions)
    return Lookup(place.buffer.dtype, integral, base, everywhere, column_stride, limit, *ways, fill)


def looked_up(code: Code, found: Lookup, at: IRValue, values: Mapping[str, IRValue], mask: IRValue | None) -> IRValue:
    """The elements of the vector of columns that starts at `at`; `values` has the index tiles with columns."""
    b, lanes = code.b, code.lanes
    exists = None if found.limit is None else first_lanes(b, minus(b, found.limit, at), lanes)
    inside = both(b, found.inside, exists)
    if not found.by_lane and not found.positions:
        value = strided(code, found.base, found.stride, at, found.dtype, both(b, mask, exists), found.integral)
        return _or_nothing(b, inside, value, found, lanes)
    columns = b.add(broadcast(b, at, lanes), in_order(lanes, I64))
    offsets = b.mul(columns, int_constant(found.stride, lanes, I64))
    for tile, size, stride in found.by_lane:
        number, known = _index_of(b, values[tile], size, lanes)
        inside = both(b, inside, known)
        offsets = b.add(offsets, b.mul(number, int_constant(stride, lanes, I64)))
    for along, stride in found.positions:
        inside = both(b, inside, along.inside(b, at, lanes))
        offsets = b.add(offsets, b.mul(along.vector(b, at, lanes), int_constant(stride, lanes, I64)))
    readable = both(b, mask, inside)
    assert readable is not None
    offsets = b.select(readable, offsets, int_constant(0, lanes, I64))
    each = [b.extract_element(offsets, i, I64) for i in range(lanes)]
    value = code.load_each(found.base, each, found.dtype, integral=found.integral)
    return _or_nothing(b, inside, value, found, lanes)


def looked_up_once(code: Code, found: Lookup) -> IRValue:
    """The one element of a gather without columns."""
    value = code.load(found.base, found.dtype, 1, integral=found.integral)
    return _or_nothing(code.b, found.inside, value, found, 1)


def strided(
    code: Code, base: IRValue, stride: int, at: IRValue, dtype: str, mask: IRValue | None, integral: bool = False
) -> IRValue:
    """The elements of a row from column `at` on, `stride` apart in memory; masked-off lanes are arbitrary."""
    b, lanes = code.b, code.lanes
    if stride == 1:
        return code.load(code.address(base, at, dtype), dtype, lanes, mask, integral)
    if stride == 0:
        return broadcast(b, code.load(base, dtype, 1, integral=integral), lanes)
    if stride == -1 and mask is None:
        last = code.address(base, minus(b, index(1 - lanes), at), dtype)
        value = code.load(last, dtype, lanes, integral=integral)
        return shuffle(b, value, value, range(lanes - 1, -1, -1))
    if mask is None:
        first = code.address(base, code.scaled(at, stride), dtype)
        return code.load_each(first, [index(i * stride) for i in range(lanes)], dtype, integral=integral)
    offsets = b.select(mask, strided_offsets(b, stride, at, lanes), int_constant(0, lanes, I64))
    return code.load_each(base, [b.extract_element(offsets, i, I64) for i in range(lanes)], dtype, integral=integral)


def strided_offsets(b: Builder, stride: int, at: IRValue, lanes: int) -> IRValue:
    """Offsets of the columns from `at` on, in elements from the row's first."""
    columns = b.add(broadcast(b, at, lanes), in_order(lanes, I64))
    return b.mul(columns, int_constant(stride, lanes, I64))


def _index_of(b: Builder, value: IRValue, size: int, lanes: int) -> tuple[IRValue, IRValue]:
    """A float32 or an integer as an index, and True if it is inside a dimension of that size."""
    if is_integral(value):
        known = b.icmp_unsigned("<", value, int_constant(size, lanes, I64))
        return b.select(known, value, int_constant(0, lanes, I64)), known
    zero = float_constant(0.0, lanes)
    fits = b.and_(b.fcmp_ordered(">=", value, zero), b.fcmp_ordered("<", value, float_constant(float(size), lanes)))
    safe = b.select(fits, value, zero)
    number = b.fptosi(safe, vector(I32, lanes))
    whole = b.fcmp_ordered("==", b.sitofp(number, value.type), safe)
    return b.sext(number, vector(I64, lanes)), b.and_(fits, whole)


def _or_nothing(b: Builder, inside: IRValue | None, value: IRValue, found: Lookup, lanes: int) -> IRValue:
    """The value if the element exists, else the fill."""
    if inside is None:
        return value
    return b.select(inside, value, constant(found.fill, is_integral(value), lanes))
