"""Trials of work on segments: checked on ends of every kind, timed with those of every histogram."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from autosched.backends import for_target, spaces
from autosched.backends.build import build
from autosched.checking import reference
from autosched.checking.trial_data import TrialData
from autosched.machine import devices
from autosched.machine.deadline import NEVER
from autosched.measuring import TrialLimits
from autosched.measuring.local.jobs import Contest, Task, Trial
from autosched.measuring.local.kernel_check import KernelCheck
from autosched.measuring.local.trial_server import Workbench
from autosched.measuring.worker_setups import DEFAULT_BACKEND, measuring_setup
from search_spaces import Workload, ops
from search_spaces.workloads.stages import HISTOGRAMS

CPU = devices.cpu_target(1)
BACKENDS = {backend.name: backend for backend in for_target(CPU)}


def trial_of(op: Workload) -> Trial:
    schedule = spaces.build(op, CPU).sample(np.random.default_rng(0))
    made = build(schedule.program, "", CPU, BACKENDS["llvm"])
    return Trial(Task(op, "hot"), schedule, schedule.program, artefact=made)


def workbench(trial: Trial) -> Workbench:
    bench = Workbench(BACKENDS, measuring_setup(CPU, TrialLimits(), DEFAULT_BACKEND), trial.task)
    bench.prepare(0)
    return bench


def test_a_record_has_the_latency_of_every_histogram_and_their_mean() -> None:
    trial = trial_of(ops.grouped_matmul(4, 64, 32, 16, "float32"))
    found = workbench(trial).trial(trial).measurement
    assert found.ok, found.detail
    assert tuple(name for name, _ in found.by_histogram) == HISTOGRAMS
    mean = math.prod(seconds for _, seconds in found.by_histogram) ** (1 / 3)
    assert found.latency_s == pytest.approx(mean, rel=0.5)


@pytest.mark.parametrize("op", [ops.grouped_matmul(4, 64, 32, 16, "float32", histogram="skewed"), ops.softmax(8, 64)])
def test_one_histogram_and_none_need_no_latencies_of_their_own(op: Workload) -> None:
    trial = trial_of(op)
    found = workbench(trial).trial(trial).measurement
    assert found.ok, found.detail
    assert found.by_histogram == ()
    assert "by_histogram" not in found.to_json()


def test_contests_are_checked_and_timed_over_all_ends_at_every_placement() -> None:
    trial = trial_of(ops.grouped_matmul(4, 64, 32, 16, "float32"))
    bench = workbench(trial)
    found = bench.contest(Contest(trial.task, [trial, replace(trial)], 6, library=True))
    assert [len(taken) for taken in (*found.latencies_s, found.library_s)] == [6, 6, 6]
    # The next trial is checked on its own ends again.
    assert bench.trial(trial).measurement.ok


@pytest.mark.parametrize("damaged", [False, True])
def test_a_trial_leaves_divisions_out_where_they_take_long_and_an_examination_none(damaged: bool) -> None:
    op = ops.grouped_matmul(4, 64, 32, 16, "float32")
    check, tried = KernelCheck(op, torch.device("cpu")), list[list[int]]()

    def run() -> None:
        inputs = check.data.inputs.tensors
        tried.append(inputs[2].tolist())
        check.data.outputs[0].tensor.copy_(
            reference.evaluate(op, [t.double() if t.is_floating_point() else t for t in inputs])[0]
        )

    check.prepare(0, limit_s=0.0)
    assert not check.data.complete
    if damaged:
        check.data.inputs.originals[0][0] += 1
        assert check.examine(run, 2, NEVER).max_error < 1
        return
    check.first(run)
    assert len(tried) == 1
    results = check.examine(run, 2, NEVER)
    assert check.data.complete
    # What is judged and compared is of one division, and right.
    assert results.max_error < 1
    assert results.repeatable
    assert len({*map(tuple, tried)}) == 4
    for found, drawn in zip(check.data.divisions, TrialData.drawn(op, 0, torch.device("cpu")).divisions, strict=True):
        assert torch.equal(found.ends[2], drawn.ends[2])
        assert torch.equal(found.expectations[0].values, drawn.expectations[0].values)
    tried.clear()
    check.first(run, limit_s=0.0)
    assert len(tried) == 1
