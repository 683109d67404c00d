"""Pieces of memory without a gap that slices of a buffer have."""

from __future__ import annotations

from cost_models.contiguous import contiguous
from search_spaces.programs.tiles import Flat, Slice
from search_spaces.workloads.expressions.affine import Affine

ROW, ROWS = Slice(Affine(), 64, "n"), Slice(Affine(), 8, "m")


def digits(*flats: Flat, moved: int = 0) -> tuple[Slice, ...]:
    return tuple(Slice(Affine(offset=moved), 64, "k", flat=flat) for flat in flats)


def test_rows_follow_each_other_where_they_are_whole() -> None:
    assert contiguous((ROWS, ROW), (32, 64)) == 8 * 64
    assert contiguous((ROWS, ROW), (32, 128)) == 64


def test_positions_in_two_digits_are_neighbours_if_the_last_digit_is_whole_and_nothing_moves_it() -> None:
    number = Affine((("k.0", 64),))
    both = Flat(number, 2), Flat(number, 1, 2)
    assert contiguous((ROWS, *digits(*both)), (32, 128, 2)) == 64
    assert contiguous((ROWS, *digits(*both)), (32, 128, 4)) == 4
    assert contiguous((ROWS, *digits(*both, moved=1)), (32, 128, 2)) == 2
    assert contiguous((ROWS, *digits(Flat(number, 3), Flat(number, 1, 2))), (32, 128, 2)) == 2
