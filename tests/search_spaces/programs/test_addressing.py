"""The pass from slices to base, strides and guards, which all printers spell."""

from __future__ import annotations

import math
from dataclasses import replace

from search_spaces.programs.addressing import address
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Flat, Skew, Slice
from search_spaces.workloads.expressions.affine import Affine

EXTENTS = {"m.0": 16, "r.0": 8, "k.0": 4}
ROWS = Slice(Affine.of(("m.0", 64)), 64, "m")


def buffer(*shape: int, strides: tuple[int, ...] | None = None) -> Buffer:
    return Buffer("x", shape, "float32", "input", strides)


def test_single_positions_are_the_base_and_axes_have_strides() -> None:
    columns = Slice(Affine.of(("k.0", 64)), 32, "k", step=2)
    found = address(buffer(1000, 8, 512), (ROWS, Slice(Affine.of(("r.0", 1))), columns), EXTENTS)
    assert found.base == Affine.of(("r.0", 512))
    assert (found.between("m"), found.between("k"), found.between("n")) == (4096, 2, 0)
    assert [d.axis for d in found.dimensions] == ["m", "", "k"]


def test_only_what_may_be_outside_is_tested() -> None:
    def tests(piece: Slice, size: int) -> tuple[str, ...]:
        return address(buffer(size), (piece,), EXTENTS).dimensions[0].tests

    assert tests(ROWS, 1024) == ()
    assert tests(ROWS, 1000) == ("< 1000",)
    assert tests(Slice(Affine.of(("m.0", 64), offset=-1), 64, "m"), 1024) == (">= 0",)
    assert address(buffer(9), ("at",), EXTENTS).dimensions[0].tests == (">= 0", "< 9")


def test_positions_that_32_bits_do_not_count_are_tested_on_both_sides() -> None:
    far = Slice(Affine.of(("m.0", 2**27)), 64, "m", step=3)
    assert address(buffer(2**31 - 1), (far,), EXTENTS).dimensions[0].tests == ()
    beyond = Slice(Affine.of(("m.0", 2**28)), 64, "m")
    assert address(buffer(2**31 - 1), (beyond,), EXTENTS).dimensions[0].tests == ("< 2147483647", ">= 0")


def test_offsets_are_wide_as_far_as_they_are_computed_and_not_only_where_there_is_memory() -> None:
    def wide(rows: int, apart: int) -> bool:
        return address(buffer(rows, 1, strides=(apart, 1)), (ROWS, Slice(Affine())), EXTENTS).wide

    assert not wide(1024, (2**31 - 1) // 1023)
    assert wide(1024, 2**31 // 1023 + 1)
    # Rows that are masked off count as well.
    assert wide(1000, 2**31 // 1023 + 1)


def test_rows_that_are_moved_back_begin_at_vectors_where_the_buffer_ends_with_one() -> None:
    skew = Skew(((ROWS, 3),), 4)
    columns = Slice(Affine(), 64, "c", skew=skew)
    whole, cut = buffer(1024, 63), buffer(1023, 63)
    assert address(whole, (ROWS, columns), EXTENTS).column_at_vectors(stored=False) is not None
    assert address(whole, (ROWS, columns), EXTENTS).column_at_vectors(stored=True) is None
    assert address(cut, (ROWS, columns), EXTENTS).column_at_vectors(stored=False) is None
    assert address(buffer(1024, 62), (ROWS, columns), EXTENTS).column_at_vectors(stored=False) is None


def digits(start: Affine, *sizes: int) -> tuple[Slice, ...]:
    """64 positions of a number of these sizes from there on, the outermost digit first."""
    divisors = [math.prod(sizes[n + 1 :]) for n in range(len(sizes))]
    flats = (Flat(start, d, size if n else 0) for n, (d, size) in enumerate(zip(divisors, sizes, strict=True)))
    return tuple(Slice(Affine(), 64, "m", flat=flat) for flat in flats)


def test_digits_that_are_in_radix_in_memory_are_one_position() -> None:
    pieces = digits(ROWS.start, 5, 14, 14)
    (found,) = address(buffer(5, 14, 14), pieces, EXTENTS).dimensions
    assert (found.index, found.size, found.stride, found.tests) == (ROWS, 980, 1, ("< 980",))
    apart = address(buffer(5, 14, 14, strides=(512, 28, 2)), pieces, EXTENTS).dimensions
    assert [(d.stride, d.tests) for d in apart] == [(512, ("< 5",)), (2, ())]
    assert [str(d.index) for d in apart] == [
        "0 : +64 of (m from m.0*64) // 196",
        "0 : +64 of (m from m.0*64) % 196",
    ]


def test_digits_that_are_shifted_or_change_places_stay_apart() -> None:
    image, row, column = digits(ROWS.start, 5, 14, 14)
    shifted = replace(row, start=Affine(offset=-1))
    assert len(address(buffer(5, 14, 14), (image, shifted, column), EXTENTS).dimensions) == 3
    assert len(address(buffer(5, 14, 14), (image, column, row), EXTENTS).dimensions) == 3
