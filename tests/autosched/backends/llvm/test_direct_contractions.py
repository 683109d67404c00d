"""Convolutions of every kind by direct register tiles, as LLVM compiles them, against float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import best_spaces
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import TrialData
from convolutions import block, convolution, weights_gradient
from schedule_checks import HERE, fault
from scheduled_tensors import interpreted
from search_spaces import SearchSpace, Workload

# Ranks by number of dimensions: sizes, and taps of each.
RANKS: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {
    1: ((23,), (5,)),
    2: ((9, 7), (3, 3)),
    3: ((4, 5, 6), (3, 2, 3)),
}


def conv(size: tuple[int, ...], kernel: tuple[int, ...], **given: Any) -> Workload:
    return convolution(size, kernel, **{"dtype": "float32", **given})


EVERY = {
    f"{rank}-D {layout} stride {stride} dilation {dilation} padding {padding} groups {groups}": conv(
        *RANKS[rank],
        channels=8,
        filters=12,
        stride=stride,
        dilation=dilation,
        padding=padding,
        groups=groups,
        layout=layout,
    )
    for rank, layout, (stride, dilation), padding, groups in itertools.product(
        RANKS, ("nhwc", "nchw"), ((1, 1), (2, 1), (1, 2)), (0, 2), (1, 2)
    )
    if padding or dilation == 1 or rank < 3
}
SPECIAL = {
    "odd channels": conv((9, 7), (3, 3), channels=19, filters=33, padding=1),
    "odd channels, first": conv((9, 7), (3, 3), channels=19, filters=33, padding=1, layout="nchw"),
    "stem": conv((17, 19), (7, 7), channels=3, filters=32, stride=2, padding=3),
    "one channel": conv((17, 19), (3, 3), channels=1, filters=20, padding=1),
    "kernel larger than the image": conv((2, 3), (5, 5), padding=2),
    "one pixel": conv((1, 1), (3, 3), padding=1, batch=2),
    "several images": conv((5, 5), (3, 3), padding=1, batch=3),
    "strided, one tap": conv((9, 8), (1, 1), channels=24, filters=40, stride=2),
    "patches": conv((12, 8), (4, 4), channels=4, stride=4),
    "float16": convolution((9, 7), (3, 3), padding=1),
    "bfloat16": convolution((9, 7), (3, 3), padding=1, dtype="bfloat16", layout="nchw"),
    "block": block(conv((9, 7), (3, 3), channels=20, filters=20, padding=1)),
    "block, channels first": block(conv((9, 7), (3, 3), channels=20, filters=20, padding=1, layout="nchw")),
    "block of activated": block(conv((9, 7), (3, 3), padding=1), activated=True),
    "block of filled": block(conv((9, 7), (3, 3), padding=1), fill=2.0),
    "weights": weights_gradient(2, 9, 24, 40),
}


def direct(workload: Workload) -> SearchSpace:
    return best_spaces.build(workload, HERE).restricted("direct_contraction")


def drawn(space: SearchSpace, count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return list(dict.fromkeys([*itertools.islice(space.seeds(), 2), *(space.sample(rng) for _ in range(count))]))


@pytest.mark.parametrize("name", [*EVERY, *SPECIAL])
def test_kernels_compute_convolutions(name: str) -> None:
    workload = {**EVERY, **SPECIAL}[name]
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    for schedule in drawn(direct(workload), 3 if name in SPECIAL else 1):
        assert not fault(schedule, data)


@pytest.mark.parametrize("name", SPECIAL)
def test_programs_compute_convolutions(name: str) -> None:
    workload = SPECIAL[name]
    inputs = random_inputs(workload, seed=3)
    from autosched.checking.correctness import error_ratio, expect

    for schedule in drawn(direct(workload), 1):
        result = interpreted(workload, schedule.program, [x.double() for x in inputs])
        for value, expected in zip(result, expect(workload, inputs), strict=True):
            assert error_ratio(torch.from_numpy(value), expected) <= 1, str(schedule)
