"""Products of few rows with operands that are computed of narrow elements: right, and loaded once in whole vectors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import best_spaces
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from machine_code import machine_code
from scheduled_tensors import interpreted, taken_by_name
from search_spaces import SearchSpace, Workload, ops, target_named
from search_spaces.anchors.contractions.thin_form import thin_form
from search_spaces.programs.statements import Load, Map, Reduce, statements

BACKEND, H200 = TritonBackend(), target_named("h200")


def product(m: int = 3, n: int = 64, k: int = 256, **options: Any) -> Workload:
    return ops.matmul(m, n, k, **{"dtype": "bfloat16", "layout": "nt", "constant": "b", **options})


NARROW = {
    "int8": product(b_dtype="int8"),
    "int8, along n": product(b_dtype="int8", layout="nn"),
    "odd groups": product(k=288, b_dtype="int8", group=96, dtype="float16"),
    "zero points": product(b_dtype="int8", group=32, zero_points=True),
    "float8": product(b_dtype="float8_e4m3fn", group=128),
    "scales that leave the sum": product(b_dtype="int8", dtype="float32"),
    "scales of groups that leave sums": product(b_dtype="int8", group=64, dtype="float32"),
    "int4": product(b_dtype="int4", group=128),
    "int4, along n": product(b_dtype="int4", group=32, layout="nn", zero_points=True),
    "rows of float8": product(5, dtype="float8_e5m2", group=32, constant=""),
}


def space_of(workload: Workload, **allowed: Any) -> SearchSpace:
    return best_spaces.build(workload, H200).restricted("thin_contraction", **allowed)


@pytest.mark.parametrize("workload", NARROW.values(), ids=NARROW)
def test_schedules_are_right_whatever_the_scales(workload: Workload) -> None:
    space, given = space_of(workload), random_inputs(workload, seed=3)
    for number, factor in enumerate((1e-4, 1.0, 1e4, 1.0)):
        by = 1.0 if workload.inputs[0].dtype == "float16" else factor
        inputs = [x * by if "scale" in t.name else x for t, x in zip(workload.inputs, given, strict=True)]
        schedule = space.sample(np.random.default_rng(number))
        (result,) = interpreted(workload, schedule.program, [x.double() for x in inputs])
        ratio = error_ratio(torch.from_numpy(np.ascontiguousarray(result)), expect(workload, inputs)[0])
        assert ratio <= 1, schedule.one_line


def test_a_byte_is_loaded_once_for_the_products_of_both_its_values() -> None:
    space = space_of(NARROW["int4"], unroll=[1], thin=[(3, 1)], accumulate=["row"])
    body = [*statements(space.sample(np.random.default_rng(0)).program.kernels[0].body)]
    loads = [s for s in body if isinstance(s, Load) and s.dst.dtype == "uint8"]
    assert (len(loads), sum(isinstance(s, Reduce) for s in body)) == (1, 2)


def test_scales_of_groups_multiply_the_sum_of_a_tile_unless_they_are_rounded_with_the_weights() -> None:
    for name, two in (("scales of groups that leave sums", False), ("int8", True)):
        program = space_of(NARROW[name], accumulate=["row"]).sample(np.random.default_rng(0)).program
        maps = [s for s in statements(program.kernels[0].body) if isinstance(s, Map) and s.operator == "mul"]
        assert [len(s.dst.axes) == 2 for s in maps[:2]] == [True, two]


def test_tiles_end_where_groups_do() -> None:
    for name in ("odd groups", "zero points"):
        form = thin_form(best_spaces.build(NARROW[name], H200).workload.scheduled, H200)
        sizes = {s.knobs["k"][1] for s in (space_of(NARROW[name]).sample(np.random.default_rng(n)) for n in range(9))}
        assert form is not None
        assert all(form.k.extent % size == 0 for size in sizes)


def test_a_group_that_no_tile_divides_is_left_to_dots() -> None:
    space = best_spaces.build(product(k=198, b_dtype="int8", group=99), H200)
    assert "thin_contraction" not in {s.name for s in space.sketches}


def test_triton_computes_the_same(triton_interpreter: Any) -> None:
    workload = product(2, 64, 128, b_dtype="int8", group=64, dtype="float16")
    program = space_of(workload).sample(np.random.default_rng(2)).program
    inputs = [x.numpy() for x in random_inputs(workload, seed=1)]
    got = triton_interpreter.run(BACKEND.render(program, "", H200), program, taken_by_name(workload, program, inputs))
    (wanted,) = interpreted(workload, program, inputs)
    # Sums differ in order alone, and the result is rounded to float16.
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=2 * 2.0**-10, atol=1e-2 * np.abs(wanted).max())


def test_a_start_loads_vectors_and_converts_no_integer(tmp_path: Path) -> None:
    workload = product(1, 8192, 8192, b_dtype="int4", group=128)
    schedule = next(s for s in space_of(workload).seeds() if s.knobs["stages"] == 1)
    artefact = BACKEND.compile(BACKEND.render(schedule.program, "", H200), schedule.program, H200)
    code, values = machine_code(artefact.binaries[0], tmp_path), schedule.knobs
    bytes_loaded = values["wide"][1] * values["k"][1] * values["unroll"] // (32 * values["warps"])
    assert sum("LDG.E.EF.128" in line for line in code) * 16 == bytes_loaded
    assert not any(re.search(r"\bI2F", line) for line in code)
    # Conversions alone would be four instructions for each value.
    assert len(code) < 16 * bytes_loaded
