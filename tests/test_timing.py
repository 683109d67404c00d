"""Timing: order, repeats and caches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import pytest
import torch

from autosched.devices import cpu_target, gpu_target
from autosched.timing import CpuTimer, Policy, Run, interleaved, timer_for
from search_spaces import InputError, ops


class FakeTimer:
    """Calls everything and says that every call took as long as it is late in the sequence."""

    def __init__(self) -> None:
        self.calls = 0

    def sample(self, runs: Sequence[Run]) -> list[float]:
        found = []
        for run in runs:
            run()
            self.calls += 1
            found.append(float(self.calls))
        return found


def test_interleaving_calls_each_once_before_and_starts_every_round_with_another() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    found = interleaved(calls, 4, FakeTimer())
    assert "".join(order) == "abc" + "abc" + "bca" + "cab" + "abc"
    assert found == {"a": [1.0, 6.0, 8.0, 10.0], "b": [2.0, 4.0, 9.0, 11.0], "c": [3.0, 5.0, 7.0, 12.0]}


def test_interleaving_nothing_gives_nothing() -> None:
    assert interleaved({}, 3, FakeTimer()) == {}


@pytest.mark.parametrize("policy", ["cold", "hot"])
def test_a_sleep_takes_as_long_as_it_sleeps(policy: Policy) -> None:
    timer = timer_for(ops.gelu_scale(64), cpu_target(), policy)
    found = timer.sample([lambda: time.sleep(2e-3), lambda: time.sleep(5e-3)])
    assert found[0] >= 2e-3
    assert 5e-3 <= found[1] < 1.0


def test_a_hot_sample_of_a_tiny_call_is_the_mean_of_many() -> None:
    calls = []
    (found,) = CpuTimer(2**20, "hot").sample([lambda: calls.append(1)])
    assert len(calls) > 20
    assert found < 20e-6


def test_a_cold_sample_is_a_single_call() -> None:
    calls = []
    CpuTimer(2**20, "cold").sample([lambda: calls.append(1)])
    assert len(calls) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("policy", ["cold", "hot"])
def test_the_time_of_a_copy_on_a_gpu_is_that_of_its_bytes_and_of_nothing_else(policy: Policy) -> None:
    """Launches from Python take longer than these 4 MiB take to copy; the device must not be seen waiting for them."""
    target = gpu_target()
    source = torch.ones(2**20, device="cuda")
    copy = torch.empty_like(source)
    copy.copy_(source)
    found = statistics.median(timer_for(ops.gelu_scale(64), target, policy).sample([lambda: copy.copy_(source)] * 50))
    least_s = 2 * source.nbytes / target.memory_bytes_per_s
    assert (0.9 * least_s if policy == "cold" else 0) < found < least_s + 8e-6


def test_an_unknown_policy_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(InputError, match=r"unknown timing policy 'cool'; did you mean 'cold'\? \(allowed: cold, hot\)"):
        timer_for(ops.gelu_scale(64), cpu_target(), "cool")  # type: ignore[arg-type]
