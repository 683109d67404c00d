"""Timing calls on a device, with cold or hot caches.

Cold: before every timed call a buffer twice as large as the L2 is overwritten, so that operands come from memory (from
the shared L3 on a CPU that has one). Hot: the call is repeated on whatever the caches hold.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import torch

from search_spaces import Target
from search_spaces.errors import unknown_name

Policy = Literal["cold", "hot"]
POLICIES: tuple[Policy, ...] = ("cold", "hot")
Run = Callable[[], object]

# A hot sample is at least this long: the clock and the call from Python take about 0.2 µs.
_SHORTEST_SAMPLE_S = 50e-6
# Flushes queued before the first timed launch of a GPU, about 0.5 ms of work: the processor gets ahead of the device,
# so that it is not the gaps between launches that are measured. With hot caches, where no flush holds the device up
# between launches, one more for every launch.
_LEAD = 16


class Timer(Protocol):
    """Times calls one after the other on one device."""

    def sample(self, runs: Sequence[Run]) -> list[float]:
        """Seconds of each call, in the order given. The calls must have been made before, so that nothing is set up."""
        ...


class CpuTimer:
    """Wall time. A sample with hot caches is the mean of as many calls as make it 50 µs long."""

    def __init__(self, l2_bytes: int, policy: Policy) -> None:
        self._swept = torch.zeros(2 * l2_bytes // 4, dtype=torch.int32) if policy == "cold" else None

    def sample(self, runs: Sequence[Run]) -> list[float]:
        return [self._hot(run) if self._swept is None else self._cold(run, self._swept) for run in runs]

    @staticmethod
    def _cold(run: Run, swept: torch.Tensor) -> float:
        swept.add_(1)
        return _seconds(run, 1)

    @staticmethod
    def _hot(run: Run) -> float:
        calls = 1
        while (taken := _seconds(run, calls)) < _SHORTEST_SAMPLE_S:
            # A fifth more than seem needed: the calls before also warmed the caches.
            calls = max(2 * calls, math.ceil(1.2 * calls * _SHORTEST_SAMPLE_S / max(taken, 1e-7)))
        return taken / calls


class GpuTimer:
    """Time between two CUDA events around each call; all calls are queued, then the device is waited for once."""

    def __init__(self, l2_bytes: int, policy: Policy) -> None:
        self._swept = torch.zeros(2 * l2_bytes // 4, dtype=torch.int32, device="cuda")
        self._policy = policy

    def sample(self, runs: Sequence[Run]) -> list[float]:
        pairs = [(_event(), _event()) for _ in runs]
        for _ in range(_LEAD if self._policy == "cold" else _LEAD + len(runs)):
            self._swept.zero_()
        for run, (start, end) in zip(runs, pairs, strict=True):
            if self._policy == "cold":
                self._swept.zero_()
            else:
                run()
            start.record()
            run()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e-3 for start, end in pairs]


def timer_for(target: Target, policy: Policy) -> Timer:
    """The timer of a target's device, which must be on this machine.

    Raises:
        InputError: no such policy.
    """
    if policy not in POLICIES:
        raise unknown_name("timing policy", policy, POLICIES)
    return CpuTimer(target.l2_bytes, policy) if target.kind == "cpu" else GpuTimer(target.l2_bytes, policy)


def interleaved(callables: Mapping[str, Run], rounds: int, timer: Timer) -> dict[str, list[float]]:
    """Seconds of every call in each of `rounds` rounds, by name.

    Every round times each of them once, starting with another one each time, so that slow drifts (clocks, power,
    neighbours) fall on all alike. Each is called once before, untimed.
    """
    names = list(callables)
    for run in callables.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % max(1, len(names))
        order = names[first:] + names[:first]
        for name, taken in zip(order, timer.sample([callables[n] for n in order]), strict=True):
            seconds[name].append(taken)
    return seconds


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _seconds(run: Run, calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        run()
    return (time.perf_counter_ns() - start) * 1e-9
