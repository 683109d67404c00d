"""Timing: order, repeats and caches."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from autosched.devices import cpu_target
from autosched.timing import CpuTimer, Run, interleaved, timer_for
from search_spaces import InputError


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
def test_a_sleep_takes_as_long_as_it_sleeps(policy: str) -> None:
    timer = timer_for(cpu_target(), policy)  # type: ignore[arg-type]
    found = timer.sample([lambda: time.sleep(2e-3), lambda: time.sleep(5e-3)])
    assert found[0] >= 2e-3
    assert 5e-3 <= found[1] < 0.1


def test_a_hot_sample_of_a_tiny_call_is_the_mean_of_many() -> None:
    calls = []
    (found,) = CpuTimer(2**20, "hot").sample([lambda: calls.append(1)])
    assert len(calls) > 20
    assert found < 20e-6


def test_a_cold_sample_is_a_single_call() -> None:
    calls = []
    CpuTimer(2**20, "cold").sample([lambda: calls.append(1)])
    assert len(calls) == 1


def test_an_unknown_policy_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(InputError, match=r"unknown timing policy 'cool'; did you mean 'cold'\? \(allowed: cold, hot\)"):
        timer_for(cpu_target(), "cool")  # type: ignore[arg-type]
