"""Layouts: the positions of a tile in each thread of a block, and their registers.

The positions of every axis are split into digits, least significant first; a digit is counted by registers of a thread,
by lanes of a warp, or by warps of the block:

    n of 512 = register 4, lane 32, warp 4      thread 0 has 0 … 3, thread 1 has 4 … 7, warp 1 begins at 128
    m of 16 = lane 8 (place 4), register 2      lanes 0 … 3 have rows 0 and 8, lanes 4 … 7 rows 1 and 9

The number of a thread's elements along an axis is the product of the sizes of its register digits; a tile is an array
of the product over its axes, row-major in the tile's order of axes. Lanes and warps that no digit of the layout names
have copies of the same elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from autosched.backends.gpu.warps import WARP


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of positions along an axis.

    For a lane or warp it is `(number // place) % size`; places and sizes of lanes are powers of two. For registers it
    is the next digit, least significant first, of the number of the thread's element along the axis; `place` is 1.
    """

    kind: Literal["register", "lane", "warp"]
    size: int
    place: int = 1


# Elements of four bytes in a sector, the least that memory is read in (CUDA C++ programming guide, device memory).
_SECTOR = 8


# The positions of one axis, least significant digit first.
Spread = tuple[Digit, ...]
# Of every axis of a tile.
Layout = Mapping[str, Spread]


def extent(spread: Spread) -> int:
    """Number of positions of the axis."""
    return math.prod(d.size for d in spread)


def registers(spread: Spread) -> int:
    """Number of elements of a thread along the axis."""
    return math.prod(d.size for d in spread if d.kind == "register")


def weighted(spread: Spread) -> Iterator[tuple[Digit, int]]:
    """Every digit, with the distance in positions between its neighbouring values."""
    weight = 1
    for digit in spread:
        yield digit, weight
        weight *= digit.size


def position(spread: Spread, register: int, lane: int, warp: int) -> int:
    """Position along the axis of the thread's element number `register`."""
    total = 0
    for digit, weight in weighted(spread):
        match digit.kind:
            case "register":
                register, value = divmod(register, digit.size)
            case "lane":
                value = lane // digit.place % digit.size
            case "warp":
                value = warp // digit.place % digit.size
        total += value * weight
    return total


def simplified(digits: Iterable[Digit]) -> Spread:
    """The same positions in as few digits as possible."""
    merged: list[Digit] = []
    for d in digits:
        last = merged[-1] if merged else None
        if d.size == 1:
            continue
        if last and last.kind == d.kind and (d.kind == "register" or d.place == last.place * last.size):
            merged[-1] = Digit(d.kind, last.size * d.size, last.place)
        else:
            merged.append(d)
    return tuple(merged)


def vector(spread: Spread) -> int:
    """Number of neighbours along the axis that a thread has one after the other."""
    first = simplified(spread)[:1]
    return first[0].size if first and first[0].kind == "register" else 1


def copies(layout: Layout, warps: int) -> tuple[Digit, ...]:
    """The digits of lanes and warps that no axis names: threads that differ in them have the same elements."""
    return (*_unnamed("lane", WARP, layout), *_unnamed("warp", warps, layout))


def _unnamed(kind: Literal["lane", "warp"], count: int, layout: Layout) -> Iterator[Digit]:
    named = sorted((d.place, d.size) for spread in layout.values() for d in spread if d.kind == kind and d.size > 1)
    place = 1
    for at, size in named:
        if at > place:
            yield Digit(kind, at // place, place)
        place = at * size
    if place < count:
        yield Digit(kind, count // place, place)


# Text


def register_offset(spread: Spread, register: str, of_vector: bool = False) -> str:
    """Distance along the axis of a thread's element number `register` from its first: `r % 2 + r / 2 * 8`.

    A constant expression if `register` is one. It binds as tightly as a sum. `of_vector`: of the first one of the
    element's neighbours in the thread: `r / 2 * 8`.
    """
    digits = [(d, w) for d, w in _merged_weights(spread) if d.kind == "register" and d.size > 1]
    parts = []
    below = 1
    for at, (digit, weight) in enumerate(digits):
        value = register if below == 1 else f"{register} / {below}"
        value += f" % {digit.size}" if at + 1 < len(digits) else ""
        if not of_vector or weight > 1:
            parts.append(value if weight == 1 else f"{value} * {weight}")
        below *= digit.size
    return " + ".join(parts) or "0"


def thread_offset(spread: Spread, warps: int) -> str:
    """Position along the axis of a thread's first element, by its `lane` and `warp`: `lane % 4 * 2`."""
    parts = []
    for digit, weight in _merged_weights(spread):
        if digit.kind != "register" and digit.size > 1:
            text = thread_digit(digit, warps)
            parts.append(text if weight == 1 else f"{text} * {weight}")
    return " + ".join(parts) or "0"


def thread_digit(digit: Digit, warps: int) -> str:
    """The value of a digit of a lane or warp: `lane / 4 % 8`."""
    count = WARP if digit.kind == "lane" else warps
    text = digit.kind if digit.place == 1 else f"{digit.kind} / {digit.place}"
    return text if digit.place * digit.size == count else f"{text} % {digit.size}"


def _merged_weights(spread: Spread) -> Iterator[tuple[Digit, int]]:
    return weighted(simplified(spread))


# Layouts by purpose


def blocked(extents: Mapping[str, int], warps: int, vector: int = 1) -> Layout:
    """Neighbours in neighbouring threads. The axes come fastest first, as in memory.

    Along the first, a thread has `vector` neighbours if these divide it; then lanes, then warps take the positions of
    the axes, in order, in powers of two, and registers the rest.
    """
    lanes_left, warps_left = WARP, warps
    lane_place = warp_place = 1
    layout: dict[str, Spread] = {}
    for axis, size in extents.items():
        held = math.gcd(size, vector) if not layout else 1
        rest = size // held
        lanes = math.gcd(rest, lanes_left)
        rest //= lanes
        more = math.gcd(rest, warps_left)
        rest //= more
        layout[axis] = simplified(
            (
                Digit("register", held),
                Digit("lane", lanes, lane_place),
                Digit("warp", more, warp_place),
                Digit("register", rest),
            )
        )
        lane_place, warp_place = lane_place * lanes, warp_place * more
        lanes_left, warps_left = lanes_left // lanes, warps_left // more
    return layout


def transposing(extents: Mapping[str, int], warps: int) -> Layout:
    """Elements of a tile that is transposed on its way: eight neighbours in memory, of four of the other axis, a warp.

    The axes come fastest first, as in memory. A warp reads whole sectors of 32 bytes, and stores to as many banks as
    it has lanes where rows of shared memory are an odd number of 16 bytes apart.
    """
    (fastest, near), (slower, far) = extents.items()
    beside = math.gcd(near, _SECTOR)
    lanes = math.gcd(far, WARP // beside)
    most = math.gcd(far // lanes, warps)
    more = math.gcd(near // beside, warps // most)
    return {
        fastest: simplified(
            (Digit("lane", beside), Digit("warp", more, most), Digit("register", near // (beside * more)))
        ),
        slower: simplified(
            (Digit("lane", lanes, beside), Digit("warp", most), Digit("register", far // (lanes * most)))
        ),
    }


def warp_mma_rows(rows: int, warps: int = 1, place: int = 1) -> Spread:
    """Rows of the accumulators of m16n8 products (PTX ISA, mma.m16n8k16); each of `warps` warps has the next 16.

    Those of wgmma are the same with four warps (PTX ISA, wgmma.mma_async.m64nNk16).
    """
    most = rows // (16 * warps)
    digits = (Digit("lane", 8, 4), Digit("register", 2), Digit("warp", warps, place), Digit("register", most))
    return simplified(digits)


def warp_mma_columns(columns: int, warps: int = 1, place: int = 1) -> Spread:
    """Columns of the same accumulators; each of `warps` warps has the next 8."""
    most = columns // (8 * warps)
    digits = (Digit("register", 2), Digit("lane", 4), Digit("warp", warps, place), Digit("register", most))
    return simplified(digits)


def volta_rows(rows: int, quads: Spread = (), warps: int = 1, place: int = 1) -> Spread:
    """Rows of float32 accumulators of m8n8k4 products (PTX ISA, mma.m8n8k4), of which a warp computes four at once.

    `quads`: the lane digits that count these four (places 4 and 8) along rows; the others count along columns. They
    stand within the eight rows of a product, of which each then takes every other four: neighbouring lanes read
    neighbouring rows of operands.
    """
    product = (Digit("lane", 2), Digit("register", 2), *quads, Digit("lane", 2, 16))
    most = rows // (8 * extent(quads) * warps)
    return simplified((*product, Digit("warp", warps, place), Digit("register", most)))


def volta_columns(columns: int, quads: Spread = (), warps: int = 1, place: int = 1) -> Spread:
    """Columns of the same accumulators."""
    product = (Digit("register", 2), Digit("lane", 2, 2), *quads, Digit("register", 2))
    most = columns // (8 * extent(quads) * warps)
    return simplified((*product, Digit("warp", warps, place), Digit("register", most)))
