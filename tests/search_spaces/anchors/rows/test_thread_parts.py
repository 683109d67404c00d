"""Every thread folds the columns that it loads, and what threads have is joined when all are in."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import autosched
import best_spaces
from autosched import ops
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from row_kinds import of_kind
from scheduled_tensors import interpreted
from search_spaces import Schedule, Workload
from search_spaces.devices.target import GPUS


def traced(function, *tensors: torch.Tensor) -> Workload:
    (workload,) = autosched.trace(function, *tensors).workloads
    return workload


WORKLOADS = {
    "softmax": ops.softmax(3, 5000),
    "layer norm": ops.layernorm(3, 2500, dtype="float16"),
    "place of the largest": traced(lambda x: x.argmax(-1), torch.empty(5, 2100)),
    "vectors without rows": traced(lambda x, y: (x.abs() + y).sum(-1), torch.empty(3, 2100), torch.empty(2100)),
    "sums over two axes": traced(lambda x, y: (x * y).sum((1, 2)), torch.empty(2, 3, 700), torch.empty(2, 1, 700)),
}


def samples(workload: Workload, kind: str, count: int) -> list[Schedule]:
    space = of_kind(best_spaces.build(workload, GPUS["h200"]), kind, accumulate=("thread",))
    rng = np.random.default_rng(1)
    return [space.sample(rng) for _ in range(count)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_folds_by_thread_are_right(triton_interpreter, name: str) -> None:
    workload, backend = WORKLOADS[name], TritonBackend()
    inputs = random_inputs(workload, seed=3)
    schedules = [*samples(workload, "streamed", 5), *samples(workload, "shared", 2)]
    for number, schedule in enumerate(schedules):
        results = [interpreted(workload, schedule.program, [x.double() for x in inputs])]
        if number < 2:
            results.append(
                triton_interpreter.computed(
                    backend.render(schedule.program, "", GPUS["h200"]), workload, schedule.program, inputs
                )
            )
        for got in results:
            for output, expected in zip(got, expect(workload, inputs), strict=True):
                assert error_ratio(torch.from_numpy(output), expected) <= 1, str(schedule)


def test_a_thread_rescales_once_for_all_that_it_has_of_a_turn() -> None:
    space = best_spaces.build(ops.softmax(64, 50000, dtype="float16"), GPUS["h200"])
    chosen = of_kind(space, "streamed", accumulate=("thread",), columns=((13, 4096),), warps=(4,), online=(True,))
    source = TritonBackend().render(chosen.sample(np.random.default_rng(0)).program, "", GPUS["h200"])
    assert "_regrouped = tl.reshape(" in source
    assert ", 4, 128, 8])" in source
