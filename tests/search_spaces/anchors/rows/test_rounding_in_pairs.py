"""What is rounded to bfloat16 and computed with again is rounded in pairs where the GPU can."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import autosched
from autosched import backends
from autosched.backends.build import build as build_kernel
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from best_spaces import build
from scheduled_tensors import interpreted
from search_spaces import Schedule, Workload
from search_spaces.devices.target import GPUS

H200 = GPUS["h200"]


def traced(function, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Workload:
    (workload,) = autosched.trace(function, torch.empty(shape, dtype=dtype)).workloads
    return workload


def schedules(workload: Workload, count: int) -> list[Schedule]:
    space, rng = build(workload, H200), np.random.default_rng(0)
    return [space.sample(rng) for _ in range(count)]


def printed(workload: Workload) -> str:
    return TritonBackend().render(schedules(workload, 1)[0].program, "", H200).split("@triton.jit")[-1]


@pytest.mark.parametrize(
    "function", [lambda x: torch.tanh(x * 1.7) * x, lambda x: (x * torch.sigmoid(x * 1.7)).sum(-1)]
)
def test_values_rounded_in_pairs_are_right(function) -> None:
    workload = traced(function, 24, 520)
    inputs = random_inputs(workload, seed=2)
    for schedule in schedules(workload, 8):
        (got,) = interpreted(workload, schedule.program, [x.double() for x in inputs])
        (expected,) = expect(workload, inputs)
        assert error_ratio(torch.from_numpy(got), expected) <= 1, str(schedule)


def test_what_a_function_is_computed_of_is_rounded_in_pairs_and_what_is_stored_is_not() -> None:
    source = printed(traced(lambda x: torch.tanh(x * 1.7), 4096))
    assert source.count("_round_bfloat16(") == 1
    assert source.count(".to(tl.bfloat16)") == 1


@pytest.mark.parametrize("shape", [(1, 169), (1, 4096)])
def test_one_element_makes_no_pair(shape: tuple[int, int]) -> None:
    workload = traced(lambda x: x.mean(-1).log2(), *shape)
    for schedule in schedules(workload, 4):
        build_kernel(schedule.program, schedule.one_line, H200, backends.named(schedule.backend))


def test_float16_is_rounded_as_the_compiler_does() -> None:
    assert "_round_" not in printed(traced(lambda x: torch.tanh(x * 1.7) * x, 4096, dtype=torch.float16))


def test_kernels_with_these_roundings_compile() -> None:
    (schedule,) = schedules(traced(lambda x: torch.tanh(x * 1.7) * x, 4096), 1)
    backend, program = TritonBackend(), schedule.program
    for name in ("a100", "h200"):
        assert backend.compile(backend.render(program, "", GPUS[name]), program, GPUS[name]).binaries


def test_older_gpus_round_one_by_one() -> None:
    workload = traced(lambda x: torch.tanh(x * 1.7) * x, 4096)
    old = dataclasses.replace(GPUS["a100"], capability=75)
    program = build(workload, old).sample(np.random.default_rng(0)).program
    assert "_round_" not in TritonBackend().render(program, "", H200)


def test_products_and_sums_of_bfloat16_stay_narrow() -> None:
    """Their roundings cost nothing: two are computed and rounded by one instruction."""
    assert "_round_" not in printed(traced(lambda x: (x * x + x) * x, 4096))


def test_cuda_says_them_too() -> None:
    (schedule,) = schedules(traced(lambda x: torch.tanh(x * 1.7), 4096), 1)
    assert "rounded<bfloat16>(" in CudaBackend().render(schedule.program, "", H200)
