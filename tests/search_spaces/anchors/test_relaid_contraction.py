"""Contractions of images with channels first, which are copied with channels last beforehand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import best_spaces
from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import TrialData
from autosched.machine import devices
from convolutions import convolution
from needed import needs_gpu
from schedule_checks import fault, tried
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Target, Workload, target_named

H200, A100 = target_named("h200"), target_named("a100")
FIRST = {
    "3x3": convolution((9, 7), (3, 3), 32, 24, padding=1, layout="nchw", batch=2),
    "three channels": convolution((12, 12), (3, 3), 3, 16, padding=1, stride=2, layout="nchw"),
    "volumes": convolution((5, 4, 6), (3, 3, 3), padding=1, layout="nchw"),
    "groups": convolution((9, 7), (3, 3), 32, 32, padding=1, stride=2, groups=2, batch=2, layout="nchw"),
    "three channels last": convolution((12, 12), (3, 3), 3, 16, padding=1, stride=2),
    "a stem": convolution((20, 18), (7, 7), 3, 24, padding=3, stride=2, batch=2),
    "a line of pairs": convolution((40,), (9,), 2, 16, padding=4),
    "bytes": convolution((12, 12), (3, 3), 3, 16, padding=1, dtype="int8"),
    "float32": convolution((12, 12), (3, 3), 3, 16, padding=1, dtype="float32", precision="tf32"),
    "six channels": convolution((9, 10), (3, 3), 6, 16, padding=1),
}


def relaid(space: SearchSpace, most: int) -> list[Schedule]:
    """Some schedules with such copies."""
    return [s for s in tried(space, 12 * most, 0) if s.sketch == "relaid_contraction"][:most]


def names(workload: Workload, target: Target) -> set[str]:
    return {s.name for s in best_spaces.build(workload, target).sketches}


@pytest.mark.parametrize(
    ("workload", "target"), zip(FIRST.values(), itertools.cycle([H200, A100]), strict=False), ids=FIRST
)
def test_a_contraction_of_a_copy_gives_the_same_result(workload: Workload, target: Target) -> None:
    inputs = random_inputs(workload, 0, torch.device("cpu"))
    expected = expect(workload, inputs)
    schedules = relaid(best_spaces.build(workload, target), 5)
    assert schedules
    for schedule in schedules:
        (out,) = interpreted(workload, schedule.program, [t.numpy() for t in inputs])
        error = error_ratio(torch.from_numpy(np.ascontiguousarray(out)), expected[0])
        assert error <= 1, schedule.one_line


@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_kernels_compile(backend: str) -> None:
    workload = replace(FIRST["3x3"], inputs=tuple(replace(t, constant=t.name == "w") for t in FIRST["3x3"].inputs))
    for schedule in relaid(spaces.build(workload, H200, [backends.named(backend)]), 2):
        assert build(schedule.program, schedule.one_line, H200, backends.named(schedule.backend)).binaries


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_rows_of_a_window_are_those_of_padded_pixels(precision: str) -> None:
    """A pixel of tf32 is a whole vector, and shorter than any dot."""
    dtype = "float32" if precision == "tf32" else "float16"
    stem = convolution((20, 18), (7, 7), 3, 24, padding=3, stride=2, batch=2, dtype=dtype, precision=precision)
    constant = replace(stem, inputs=tuple(replace(t, constant=t.name == "w") for t in stem.inputs))
    (schedule, *_) = relaid(best_spaces.build(constant, H200), 1)
    buffers = {b.name: b for b in schedule.program.buffers if b.role == "workspace"}
    image, weights = (next(b for name, b in buffers.items() if name.endswith(f"{x}_rows")) for x in ("in0", "in1"))
    assert image.shape == (2, 20, 18 * 4), "a pixel of 3 channels takes 4"
    assert weights.shape[-1] == 7 * 4, "pixels around the window may be infinite, and 0 times that is NaN"
    assert schedule.program.prepared == ((weights.name, "in1"),)


def test_there_is_no_copy_where_channels_are_neighbours_or_nothing_is_shifted() -> None:
    assert "relaid_contraction" not in names(convolution((9, 7), (3, 3), 32, 24, padding=1), H200)
    assert "relaid_contraction" not in names(convolution((9, 7), (1, 1), 32, 24, layout="nchw"), H200)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("workload", FIRST.values(), ids=FIRST)
def test_kernels_are_right_on_a_gpu(workload: Workload) -> None:
    target = devices.gpu_target()
    data = TrialData.drawn(workload, 0, torch.device("cuda"))
    schedules = relaid(best_spaces.build(workload, target), 6)
    assert [found for s in schedules if (found := fault(s, data, target))] == []


def test_groups_of_few_channels_are_next_to_each_other_in_a_copy() -> None:
    """x[image, group, channel, row, column] becomes [image, row, column, group, channel]."""
    (schedule,) = relaid(best_spaces.build(FIRST["groups"], H200), 1)
    (copy,) = (b for b in schedule.program.buffers if b.name == "in0_relaid")
    assert copy.shape == (2, 9, 7, 2, 16)
