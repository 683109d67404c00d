"""Exponentials beside a constant, and divisions by such sums, take fewer instructions and are as right."""

from __future__ import annotations

import numpy as np
import torch

import autosched
import best_spaces
from autosched.backends.triton.backend import TritonBackend
from search_spaces import Schedule
from search_spaces.devices.target import GPUS


def schedule_of(function, *tensors: torch.Tensor) -> Schedule:
    (workload,) = autosched.trace(function, *tensors).workloads
    return best_spaces.build(workload, GPUS["h200"]).sample(np.random.default_rng(0))


def printed(function, *tensors: torch.Tensor) -> str:
    return TritonBackend().render(schedule_of(function, *tensors).program, "", GPUS["h200"]).split("@triton.jit")[-1]


def test_a_sigmoid_has_neither_scaled_exponentials_nor_a_division() -> None:
    source = printed(torch.sigmoid, torch.empty(4096))
    assert "tl.exp2(" in source
    assert "_div_by_sum(1.0, " in source
    assert "/" not in source


def test_an_exponential_that_is_used_elsewhere_too_keeps_its_denormal_results() -> None:
    source = printed(lambda x: (torch.exp(x), 1 + torch.exp(x)), torch.empty(4096))
    assert "tl.exp(" in source
    assert "tl.exp2(" not in source


def test_what_a_denormal_number_is_added_to_is_not_taken_for_large() -> None:
    assert "tl.exp(" in printed(lambda x: torch.exp(x) + 1e-30, torch.empty(4096))
    assert "tl.exp(" in printed(lambda x, y: torch.exp(x) + y, torch.empty(4096), torch.empty(4096))


def test_sigmoids_of_all_sizes_and_special_values_are_right(triton_interpreter) -> None:
    x = torch.cat((torch.linspace(-120, 120, 4091), torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])))
    schedule = schedule_of(lambda x: torch.sigmoid(x) * 3, x)
    name = schedule.program.buffers[0].name
    source = TritonBackend().render(schedule.program, "", GPUS["h200"])
    got = torch.from_numpy(triton_interpreter.run(source, schedule.program, {name: x.numpy()}))
    # Of an exponential 60 units in the last place, as `checking.accuracy` has it.
    expected = (torch.sigmoid(x.double()) * 3).float()
    torch.testing.assert_close(got, expected, rtol=62 * 2.0**-23, atol=4e-38, equal_nan=True)
