"""Folds that depend on each other share a walk: as right as walks of their own, whatever the values."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parent))
from dependent_workloads import (
    IN_ONE_WALK,
    IN_SEVERAL,
    correlation,
    expected_under_softmax,
    log_sum_exp,
    place_of_extreme,
    variance,
)
from schedule_checks import HERE
from structured_workloads import normalised

from autosched import Schedule, Target, Workload, ops
from autosched.backends import spaces
from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking import reference
from autosched.checking.correctness import error_ratio, expect
from search_spaces import target_named
from search_spaces.programs.interpreter import interpret
from search_spaces.sketches.rows.row_parts import RowTiles, rows_on
from search_spaces.sketches.rows.running_folds import groups

H200 = target_named("h200")


def name_of(workload: Workload) -> str:
    return f"{workload.name}-{'x'.join(map(str, workload.inputs[0].shape))}"


def walks(workload: Workload, online: bool = True) -> int:
    return len(groups(RowTiles(rows_on(workload, H200), 1), online))


def online(workload: Workload, target: Target, number: int, seed: int = 0) -> list[Schedule]:
    """So many schedules of every sketch, in which dependent folds share a walk."""
    space, rng = spaces.build(workload, target), np.random.default_rng(seed)
    found: dict[str, dict[Schedule, None]] = {}
    for _ in range(2000):
        schedule = space.sample(rng)
        if dict(schedule.values).get("online") is True:
            found.setdefault(schedule.sketch, {})[schedule] = None
        wanted = {s.name for s in space.sketches if s.name in ("row_looped", "row_split")}
        if all(len(found.get(name, ())) >= number for name in wanted):
            break
    return [s for made in found.values() for s in list(made)[:number]]


def run(schedule: Schedule, workload: Workload, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """On this machine, compiled."""
    backend, program = LlvmBackend(), schedule.program
    launcher = backend.load(backend.compile(backend.render(program, ""), program, HERE), program)
    out = [torch.full(t.shape, 77, dtype=reference.torch_dtype(t.dtype)) for t in workload.outputs]
    launcher([*inputs, *out])
    launcher.unload()
    return out


def interpreted(schedule: Schedule, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.from_numpy(np.asarray(v)) for v in interpret(schedule.program, [x.double().numpy() for x in inputs])]


@pytest.mark.parametrize("workload", IN_ONE_WALK, ids=name_of)
def test_what_a_rule_moves_shares_a_walk(workload: Workload) -> None:
    assert walks(workload) == 1
    assert walks(workload, online=False) == 2


@pytest.mark.parametrize(("workload", "expected"), IN_SEVERAL)
def test_what_no_rule_moves_waits_for_a_walk_of_its_own(workload: Workload, expected: int) -> None:
    assert walks(workload) == expected


@pytest.mark.parametrize("workload", IN_ONE_WALK, ids=name_of)
def test_programs_for_a_gpu_compute_the_reference(workload: Workload) -> None:
    inputs = reference.random_inputs(workload, seed=3)
    expected = expect(workload, inputs)
    for schedule in online(workload, H200, 4):
        for got, right in zip(interpreted(schedule, inputs), expected, strict=True):
            assert error_ratio(got, right) <= 1, str(schedule)


@pytest.mark.parametrize("workload", IN_ONE_WALK, ids=name_of)
def test_programs_for_a_cpu_compute_the_reference(workload: Workload) -> None:
    inputs = reference.random_inputs(workload, seed=3)
    expected = expect(workload, inputs)
    for schedule in online(workload, HERE, 4):
        for got, right in zip(run(schedule, workload, inputs), expected, strict=True):
            assert error_ratio(got, right) <= 1, str(schedule)
