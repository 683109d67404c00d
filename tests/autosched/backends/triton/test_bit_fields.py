"""Fields of bytes as bfloat16, without conversions from integers; and what Triton computes of packed operands."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np
import pytest

import best_spaces
from autosched.backends.triton.backend import TritonBackend
from autosched.backends.triton.language.bit_fields import field_function
from autosched.checking.random_inputs import random_inputs
from scheduled_tensors import interpreted, taken_by_name
from search_spaces import Workload, ops, target_named
from search_spaces.programs.tile_program import TileProgram

BACKEND, H200 = TritonBackend(), target_named("h200")


def product(dtype: str, b_dtype: str = "int4", **options: Any) -> Workload:
    """A small product of narrow weights, which Triton's interpreter computes soon."""
    return ops.matmul(16, 64, 128, dtype=dtype, layout="nt", b_dtype=b_dtype, group=64, constant="b", **options)


def start(workload: Workload) -> TileProgram:
    """The program of its first start."""
    return best_spaces.build(workload, H200).restricted("contraction").seeds()[0].program


def bfloat16(bits: int) -> float:
    (value,) = struct.unpack("<f", struct.pack("<I", bits << 16))
    return float(value)


def computed(text: str, word: int) -> list[float]:
    """The four numbers that the instructions of a field make of four bytes."""
    (shift,) = re.findall(r"shr\.u32 t, \$2, (\d+)", text)
    (mask,) = re.findall(r"and\.b32 t, t, (0x[0-9a-f]+)", text)
    (minus,) = re.findall(r"mov\.b32 minus, (0x[0-9a-f]+)", text)
    taken, found = (word >> int(shift)) & int(mask, 16), list[float]()
    for upper, selected in re.findall(r"prmt\.b32 u, t, (0x[0-9a-f]+), 0x([0-9a-f]{4})", text):
        source = [*taken.to_bytes(4, "little"), *int(upper, 16).to_bytes(4, "little")]
        low, high, low2, high2 = (source[int(digit, 16)] for digit in reversed(selected))
        found += [bfloat16(low | high << 8), bfloat16(low2 | high2 << 8)]
    return [x + bfloat16(int(minus, 16) & 0xFFFF) for x in found]


@pytest.mark.parametrize(("shift", "mask", "offset"), [(0, 15, 8), (4, 15, 0), (6, 3, 2), (0, 127, 127), (1, 127, 0)])
def test_every_byte_gives_its_field(shift: int, mask: int, offset: int) -> None:
    text = field_function(f"field_{shift}_{mask}_{offset}")
    for byte in range(256):
        word = int.from_bytes(bytes((byte, 255 - byte, 0, 255)), "little")
        wanted = [((b >> shift) & mask) - offset for b in (byte, 255 - byte, 0, 255)]
        assert computed(text, word) == wanted


def test_every_int8_gives_its_number() -> None:
    """128 and the lower bits, less 128 or 256."""
    text = field_function("field_int8")
    taken = [int(x, 16) for x in re.findall(r"and\.b32 [ts], \$2, (0x[0-9a-f]+)", text)]
    assert re.findall(r"fma\.rn\.bf16x2 \$., (\w, \w+, \w);", text) == ["v, minus_one, u"] * 2
    for byte in range(256):
        number, subtracted = (bfloat16((byte & mask & 0xFF) | 0x4300) for mask in taken)
        assert number - subtracted == byte - 256 * (byte > 127)


def test_whole_bytes_are_numbers_without_conversion_unless_dots_take_them() -> None:
    workload = ops.matmul(1, 64, 128, dtype="bfloat16", layout="nt", b_dtype="int8", constant="b")
    space = best_spaces.build(workload, H200)
    for sketch, there in (("thin_contraction", True), ("contraction", False)):
        program = space.restricted(sketch).sample(np.random.default_rng(0)).program
        assert ("_field_int8" in BACKEND.render(program, "", H200)) == there


def test_packed_weights_are_fields_in_dots_of_bfloat16_alone() -> None:
    source = BACKEND.render(start(product("bfloat16")), "", H200)
    assert re.findall(r"= \((_field_\w+)\(", source) == ["_field_0_15_8", "_field_4_15_8"]
    assert "_shift_right(t" not in source
    assert "_field" not in BACKEND.render(start(product("float16")), "", H200)


def test_numbers_with_zero_points_are_fields_before_these_are_subtracted() -> None:
    source = BACKEND.render(start(product("bfloat16", zero_points=True)), "", H200)
    assert {"_field_0_15_0", "_field_4_15_0"} <= {*re.findall(r"_field_\w+", source)}


@pytest.mark.parametrize("b_dtype", ["int4", "int8"])
def test_triton_computes_packed_operands_of_float16(triton_interpreter: Any, b_dtype: str) -> None:
    workload = product("float16", b_dtype)
    program = start(workload)
    inputs = [x.numpy() for x in random_inputs(workload, seed=1)]
    got = triton_interpreter.run(BACKEND.render(program, "", H200), program, taken_by_name(workload, program, inputs))
    (wanted,) = interpreted(workload, program, inputs)
    # Sums differ in order alone, and the result is rounded to float16.
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=2 * 2.0**-10, atol=1e-2 * np.abs(wanted).max())
