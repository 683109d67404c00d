"""Fields of bytes: recognised by their values, however they are written, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.programs.bit_fields import BitField, FieldOperand, field_operand
from search_spaces.programs.statements import Load, Map, Statement
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine

SLICE = Slice(Affine(), 16, "k")
ROW = Slice(Affine(), 8, "n")


def byte(dtype: str = "uint8") -> Load:
    return Load(Tile("q", ("n", "k"), (8, 16), dtype), "b", (ROW, SLICE))


ZERO = Load(Tile("z", ("n",), (8,), "uint8"), "zero", (ROW,))


def maps(*steps: tuple[str, Sequence[str | int | float], str]) -> list[Map]:
    """Maps that follow one another: the operator, its arguments, and the type of the result; "" is the one before."""
    found, last = list[Map](), "q"
    for number, (operator, arguments, dtype) in enumerate(steps):
        tile = Tile(f"t{number}", ("n", "k"), (8, 16), dtype)
        found.append(Map(tile, operator, tuple(last if a == "" else a for a in arguments)))
        last = tile.name
    return found


def found(load: Load, *made: Map, others: Sequence[Load] = ()) -> FieldOperand | None:
    body: list[Statement] = [load, *others, *made]
    return field_operand(body, made[-1].dst.name)


@given(st.integers(0, 7), st.integers(1, 7), st.integers(-60, 60), st.booleans(), st.sampled_from(["int8", "uint8"]))
def test_bits_of_a_byte_less_a_constant_are_a_field(
    first: int, width: int, less: int, signed: bool, dtype: str
) -> None:
    width = min(width, 8 - first)
    sign = 1 << width - 1 if signed else 0
    made = maps(
        ("cast", [""], "int32"),
        ("shift_right", ["", first], "int32"),
        ("bitwise_and", ["", (1 << width) - 1], "int32"),
        ("bitwise_xor", ["", sign], "int32"),
        ("cast", [""], "float32"),
        ("sub", ["", float(less + sign)], "float32"),
        ("cast", [""], "float16"),
    )
    assert found(byte(dtype), *made) == FieldOperand(byte(dtype), BitField(first, width, less, signed))


def test_a_signed_byte_is_a_field() -> None:
    assert found(byte("int8"), *maps(("cast", [""], "bfloat16"))) == FieldOperand(
        byte("int8"), BitField(0, 8, signed=True)
    )


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_a_float_of_eight_bits_is_its_byte(dtype: str) -> None:
    assert found(byte(dtype), *maps(("cast", [""], "float32"), ("cast", [""], "bfloat16"))) == FieldOperand(
        byte(dtype), None
    )


def test_a_field_may_be_written_otherwise() -> None:
    by_doubling = maps(("cast", [""], "int32"), ("bitwise_and", ["", 15], "int32"), ("sub", ["", 8], "int32"))
    assert found(byte(), *by_doubling) == FieldOperand(byte(), BitField(0, 4, 8))


def test_another_tile_with_fewer_axes_is_a_zero_point() -> None:
    steps = maps(("bitwise_and", ["", 15], "int32"), ("sub", ["", "z"], "float32"), ("cast", [""], "float16"))
    assert found(byte(), *steps, others=[ZERO]) == FieldOperand(byte(), BitField(0, 4), ZERO)
    signed = replace(ZERO, dst=replace(ZERO.dst, dtype="int8"))
    assert found(byte(), *steps, others=[signed]) == FieldOperand(byte(), BitField(0, 4), signed)
    scaled = maps(("bitwise_and", ["", 15], "int32"), ("mul", ["", "z"], "float32"))
    assert found(byte(), *scaled, others=[ZERO]) is None


@pytest.mark.parametrize(
    ("dtype", "steps"),
    [
        ("uint8", [("mul", ["", 2.0], "float32")]),
        ("int8", [("div", [1.0, ""], "float32")]),
        ("int8", [("div", ["", ""], "float32")]),
        ("uint8", [("cast", [""], "float32")]),
        ("uint8", [("bitwise_and", ["", 5], "int32")]),
        ("uint8", [("bitwise_xor", ["", 128], "int32")]),
        ("int8", [("mul", ["", ""], "float32")]),
        ("int8", [("add", ["", 0.5], "float32")]),
        ("float8_e4m3fn", [("mul", ["", 2.0], "float16")]),
    ],
    ids=[
        "doubled",
        "infinite at 0",
        "not a number at 0",
        "eight bits without a sign",
        "bits apart",
        "a bit turned",
        "squared",
        "a half",
        "a float doubled",
    ],
)
def test_other_functions_are_none(dtype: str, steps: list[tuple[str, list[str | float | int], str]]) -> None:
    assert found(byte(dtype), *maps(*steps)) is None


def test_a_tile_as_loaded_is_none() -> None:
    assert field_operand([byte()], "q") is None
