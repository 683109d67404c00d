"""Products with operands of another type than the dot's, packed or scaled: right in every schedule that is tried."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import best_spaces
from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from schedule_checks import faults
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Workload, ops, target_named
from search_spaces.programs.statements import Dot, Load, statements

H200 = target_named("h200")


def product(m: int = 16, n: int = 64, k: int = 256, **options: Any) -> Workload:
    return ops.matmul(m, n, k, **{"dtype": "bfloat16", "layout": "nt", "constant": "b", **options})


NARROW = {
    "int8": product(b_dtype="int8"),
    "int8, groups": product(b_dtype="int8", group=64, dtype="float16"),
    "int8, odd groups": product(k=288, b_dtype="int8", group=96, layout="nn"),
    "zero points": product(b_dtype="int8", group=32, zero_points=True),
    "float8": product(b_dtype="float8_e4m3fn", group=128),
    "float32 activations": product(b_dtype="int8", group=64, dtype="float32"),
    "int4": product(b_dtype="int4", group=128),
    "int4, along n": product(n=128, b_dtype="int4", group=32, layout="nn", zero_points=True),
    "blocks of float8": product(48, 128, dtype="float8_e4m3fn", group=128, block=64, constant=""),
    "rows of float8": product(48, 64, dtype="float8_e5m2", group=32, constant=""),
}


def space_of(workload: Workload, **allowed: Any) -> SearchSpace:
    return best_spaces.build(workload, H200).restricted("contraction", **allowed)


def drawn(space: SearchSpace, count: int) -> list[Schedule]:
    return [*space.seeds()[:2], *(space.sample(np.random.default_rng(n)) for n in range(count))]


def scaled_by(inputs: list[torch.Tensor], workload: Workload, factor: float) -> list[torch.Tensor]:
    """The inputs with scales that many times as large."""
    named = zip(workload.inputs, inputs, strict=True)
    return [x * factor if "scale" in t.name else x for t, x in named]


def ratio(workload: Workload, inputs: list[torch.Tensor], schedule: Schedule) -> float:
    (result,) = interpreted(workload, schedule.program, [x.double() for x in inputs])
    return error_ratio(torch.from_numpy(np.ascontiguousarray(result)), expect(workload, inputs)[0])


@pytest.mark.parametrize("workload", NARROW.values(), ids=NARROW)
def test_schedules_on_dot_units_are_right_whatever_the_scales(workload: Workload) -> None:
    given, space = random_inputs(workload, seed=3), space_of(workload)
    for factor in (1e-4, 1.0, 1e4):
        inputs = scaled_by(given, workload, 1.0 if workload.inputs[0].dtype == "float16" else factor)
        for schedule in drawn(space, 2):
            assert ratio(workload, inputs, schedule) <= 1, schedule.one_line


@pytest.mark.parametrize("name", ["int8", "int4", "blocks of float8"])
def test_a_cpu_is_right(name: str) -> None:
    assert not faults(NARROW[name], samples=1)


def test_a_byte_is_loaded_once_for_the_dots_of_all_its_values() -> None:
    space = space_of(NARROW["int4"], k_axes=["unrolled"])
    for schedule in drawn(space, 3):
        main = next(k for k in schedule.program.kernels if any(isinstance(s, Dot) for s in statements(k.body)))
        body = [*statements(main.body)]
        bytes_read = [s for s in body if isinstance(s, Load) and s.dst.dtype == "uint8"]
        assert (len(bytes_read), sum(isinstance(s, Dot) for s in body)) == (1, 2)


def test_starts_of_few_rows_convert_the_rows_of_dots() -> None:
    first, *_ = space_of(NARROW["int4"]).seeds()
    values = first.knobs
    assert (values["k_axes"], values["swap"]) == ("unrolled", True)


def test_weights_are_read_from_a_copy_along_k_where_they_run_along_n() -> None:
    space = space_of(product(64, 128, layout="nn", b_dtype="int8"), b_load=["prepared_k"])
    workload, schedule = space.workload, space.sample(np.random.default_rng(0))
    assert [constant for _, constant in schedule.program.prepared] == [workload.scheduled.inputs[1].name]
    assert ratio(workload, random_inputs(workload, seed=5), schedule) <= 1


@pytest.mark.parametrize("name", ["int8, groups", "int4", "blocks of float8"])
def test_a_start_compiles_for_a_gpu(name: str) -> None:
    schedule = space_of(NARROW[name]).seeds()[0]
    assert build(schedule.program, "", H200, backends.named(schedule.backend)).facts.seconds > 0


def test_a_gpu_without_bfloat16_multiplies_in_float16() -> None:
    workload, v100 = product(b_dtype="int4", group=128, dtype="float16"), target_named("v100")
    space = best_spaces.build(workload, v100).restricted("contraction")
    schedule = space.seeds()[0]
    assert ratio(workload, random_inputs(workload, seed=5), schedule) <= 1
    assert build(schedule.program, "", v100, backends.named(schedule.backend)).facts.seconds > 0


def test_sums_of_scaled_dots_hide_no_name_of_the_text_around_them() -> None:
    """C++ sums the products of an instruction in `part`, which no tile of these kernels may be called."""
    space = spaces.build(NARROW["blocks of float8"], H200, [backends.named("cuda")])
    schedule = space.restricted("contraction", specialize=["none"]).seeds()[0]
    source = backends.named("cuda").render(schedule.program, "", H200)
    assert {*re.findall(r"float part\[(\d+)\]", source)} == {"4"}
