"""Layouts of tiles in registers: every position is held, in the register that the printed offsets say."""

from __future__ import annotations

import itertools
import math

import pytest

from autosched.backends.cuda.registers.layouts import (
    Digit,
    Layout,
    Spread,
    blocked,
    copies,
    extent,
    position,
    register_offset,
    registers,
    simplified,
    thread_offset,
    vector,
    volta_columns,
    volta_rows,
    warp_mma_columns,
    warp_mma_rows,
)
from autosched.backends.gpu.warps import WARP

_QUADS = (Digit("lane", 2, 4), Digit("lane", 2, 8))
_LAYOUTS: list[tuple[Layout, int]] = [
    (blocked({"n": 512, "m": 8}, 4, 4), 4),
    (blocked({"n": 24, "m": 192}, 8, 8), 8),
    (blocked({"n": 4096}, 8, 8), 8),
    (blocked({"n": 3}, 2), 2),
    ({"m": warp_mma_rows(192, 4), "n": warp_mma_columns(24)}, 4),
    ({"m": warp_mma_rows(128, 4), "n": warp_mma_columns(128, 2, 4)}, 8),
    ({"m": volta_rows(64, _QUADS[:1], 2), "n": volta_columns(64, _QUADS[1:], 2, 2)}, 4),
    ({"m": volta_rows(128, _QUADS, 2), "n": volta_columns(32)}, 2),
]


def _held(layout: Layout, lane: int, warp: int) -> list[tuple[int, ...]]:
    along = ([position(s, r, lane, warp) for r in range(registers(s))] for s in layout.values())
    return list(itertools.product(*along))


def _number(text: str, **names: int) -> int:
    return int(eval(text.replace("/", "//"), {}, names))


@pytest.mark.parametrize(("layout", "warps"), _LAYOUTS)
def test_every_position_is_held_by_as_many_threads_as_there_are_copies(layout: Layout, warps: int) -> None:
    held: dict[tuple[int, ...], int] = {}
    for lane, warp in itertools.product(range(WARP), range(warps)):
        for at in _held(layout, lane, warp):
            held[at] = held.get(at, 0) + 1
    assert set(held) == set(itertools.product(*(range(extent(s)) for s in layout.values())))
    assert set(held.values()) == {math.prod(d.size for d in copies(layout, warps))}


@pytest.mark.parametrize(("layout", "warps"), _LAYOUTS)
def test_the_printed_offsets_add_up_to_the_position(layout: Layout, warps: int) -> None:
    for spread in layout.values():
        for lane, warp in itertools.product(range(WARP), range(warps)):
            begin = _number(thread_offset(spread, warps), lane=lane, warp=warp)
            for r in range(registers(spread)):
                assert begin + _number(register_offset(spread, "r"), r=r) == position(spread, r, lane, warp)


def test_a_blocked_layout_has_vectors_then_lanes_then_warps_along_the_fastest_axis() -> None:
    layout = blocked({"n": 1024, "m": 4}, 4, 4)
    assert layout["n"] == (Digit("register", 4), Digit("lane", 32), Digit("warp", 4), Digit("register", 2))
    assert layout["m"] == (Digit("register", 4),)
    assert vector(layout["n"]) == 4


def test_neighbouring_digits_of_one_kind_are_one() -> None:
    spread: Spread = (Digit("lane", 4), Digit("lane", 8, 4), Digit("register", 2), Digit("register", 3))
    assert simplified(spread) == (Digit("lane", 32), Digit("register", 6))


def test_accumulators_of_mma_lie_as_the_instruction_set_says() -> None:
    rows, columns = warp_mma_rows(16), warp_mma_columns(8)
    for lane, register in itertools.product(range(WARP), range(4)):
        at = position(rows, register // 2, lane, 0), position(columns, register % 2, lane, 0)
        assert at == (lane // 4 + 8 * (register >= 2), lane % 4 * 2 + register % 2)


def test_accumulators_of_volta_lie_as_the_instruction_set_says() -> None:
    rows, columns = volta_rows(8), volta_columns(8)
    for lane, row, column in itertools.product(range(WARP), range(2), range(4)):
        element = row * 2 + column % 2 + column // 2 * 4
        expected = (lane & 1) + (element & 2) + (4 if lane >= 16 else 0), (element & 4) + (lane & 2) + (element & 1)
        assert (position(rows, row, lane, 0), position(columns, column, lane, 0)) == expected
