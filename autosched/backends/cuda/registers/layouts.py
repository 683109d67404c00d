"""Layouts: which thread of a block holds which positions of a tile, and in which of its registers.

The positions of every axis are taken apart into digits, least significant first; a digit is counted by registers of a
thread, by lanes of a warp, or by warps of the block:

    n of 512 = register 4, lane 32, warp 4      thread 0 holds 0 … 3, thread 1 holds 4 … 7, warp 1 begins at 128
    m of 16 = lane 8 (place 4), register 2      lanes 0 … 3 hold rows 0 and 8, lanes 4 … 7 rows 1 and 9

A thread has as many elements along an axis as the sizes of its register digits multiply to; a tile is an array of the
product over its axes, row-major in the tile's order of axes. Lanes and warps that no digit of the layout names hold
copies of the same elements.
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

    Of a lane or warp it is `(number // place) % size`; places and sizes of lanes are powers of two. Of registers it is
    the next digit, least significant first, of the number of the thread's element along the axis; `place` is 1.
    """

    kind: Literal["register", "lane", "warp"]
    size: int
    place: int = 1


# The positions of one axis, least significant digit first.
Spread = tuple[Digit, ...]
# Of every axis of a tile.
Layout = Mapping[str, Spread]


def extent(spread: Spread) -> int:
    """How many positions the axis has."""
    return math.prod(d.size for d in spread)


def registers(spread: Spread) -> int:
    """How many elements a thread has along the axis."""
    return math.prod(d.size for d in spread if d.kind == "register")


def weighted(spread: Spread) -> Iterator[tuple[Digit, int]]:
    """Every digit, and how many positions its neighbouring values are apart."""
    weight = 1
    for digit in spread:
        yield digit, weight
        weight *= digit.size


def position(spread: Spread, register: int, lane: int, warp: int) -> int:
    """Where along the axis the thread's element number `register` is."""
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
    """The same positions in as few digits as say it."""
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
    """How many neighbours along the axis a thread holds one after the other."""
    first = simplified(spread)[:1]
    return first[0].size if first and first[0].kind == "register" else 1


def copies(layout: Layout, warps: int) -> tuple[Digit, ...]:
    """The digits of lanes and warps that no axis names: threads that differ in them hold the same elements."""
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
    """How far the element number `register` of a thread is from its first, along the axis: `r % 2 + r / 2 * 8`.

    A constant expression where `register` is one. It binds as tightly as a sum. `of_vector`: of the first of the
    neighbours that the thread holds beside it: `r / 2 * 8`.
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
    """Where along the axis the first element of a thread is, by its `lane` and `warp` of so many: `lane % 4 * 2`."""
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


# Layouts by what they are for


def blocked(extents: Mapping[str, int], warps: int, vector: int = 1) -> Layout:
    """Neighbours to neighbouring threads. The axes come fastest first, as memory has them.

    Along the first, a thread has `vector` neighbours where these divide it; then lanes, then warps take what there is
    of the axes, in order, in powers of two, and registers the rest.
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


def warp_mma_rows(rows: int, warps: int = 1, place: int = 1) -> Spread:
    """Rows of the accumulators of m16n8 products (PTX ISA, mma.m16n8k16), the next 16 in the next of so many warps.

    Those of wgmma are the same with four warps (PTX ISA, wgmma.mma_async.m64nNk16).
    """
    most = rows // (16 * warps)
    digits = (Digit("lane", 8, 4), Digit("register", 2), Digit("warp", warps, place), Digit("register", most))
    return simplified(digits)


def warp_mma_columns(columns: int, warps: int = 1, place: int = 1) -> Spread:
    """Columns of the same accumulators, the next 8 in the next of so many warps."""
    most = columns // (8 * warps)
    digits = (Digit("register", 2), Digit("lane", 4), Digit("warp", warps, place), Digit("register", most))
    return simplified(digits)


def volta_rows(rows: int, quads: Spread = (), warps: int = 1, place: int = 1) -> Spread:
    """Rows of float32 accumulators of m8n8k4 products (PTX ISA, mma.m8n8k4), of which a warp makes four at once.

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
