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


class NeighbourProbe:
    """Tells whether something else slows this core down now: a neighbour on the same physical core, or a lower clock.

    Cores that a virtual machine is given are often threads of one physical core, shared with strangers: arithmetic
    then takes up to twice as long, for seconds at a time. A small matrix product, whose operands stay in the caches,
    is timed against the best time it ever took.
    """

    _SIZE = 128
    _SLACK = 1.15

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self._a, self._b = (torch.randn(self._SIZE, self._SIZE, generator=generator) for _ in range(2))
        self._out = torch.empty(self._SIZE, self._SIZE)
        self._best_s = min(self._seconds() for _ in range(50))

    def disturbed(self) -> bool:
        # The better of two: the first may find its operands gone from the caches.
        taken = min(self._seconds(), self._seconds())
        self._best_s = min(self._best_s, taken)
        return taken > self._SLACK * self._best_s

    def _seconds(self) -> float:
        return _seconds(lambda: torch.mm(self._a, self._b, out=self._out), 1)


class CpuTimer:
    """Wall time. A sample with hot caches is the mean of as many calls as make it 50 µs long.

    With a `probe`, a sample during which the core was disturbed is taken again. Waiting for a quiet moment may take a
    third of all time, and up to 3 s at once; when that is used up and the core is still disturbed, the smallest sample
    counts: a disturbance only slows.
    """

    _MOST_PATIENCE_S = 3.0
    _PATIENCE_PER_SECOND = 0.5

    def __init__(self, l2_bytes: int, policy: Policy, probe: NeighbourProbe | None = None) -> None:
        self._swept = torch.zeros(2 * l2_bytes // 4, dtype=torch.int32) if policy == "cold" else None
        self._probe = probe
        self._patience_s = self._MOST_PATIENCE_S
        self._patient_at = time.perf_counter()

    def sample(self, runs: Sequence[Run]) -> list[float]:
        return [self._once(run) if self._probe is None else self._undisturbed(run, self._probe) for run in runs]

    def _undisturbed(self, run: Run, probe: NeighbourProbe) -> float:
        begin = time.perf_counter()
        earned = (begin - self._patient_at) * self._PATIENCE_PER_SECOND
        self._patience_s = min(self._patience_s + earned, self._MOST_PATIENCE_S)
        taken, retried = math.inf, begin
        try:
            while True:
                quiet = not probe.disturbed()
                if quiet or retried - begin >= self._patience_s:
                    taken = min(taken, self._once(run))
                    if retried - begin >= self._patience_s or not probe.disturbed():
                        return taken
                retried = time.perf_counter()
        finally:
            self._patience_s -= retried - begin
            self._patient_at = time.perf_counter()

    def _once(self, run: Run) -> float:
        return self._hot(run) if self._swept is None else self._cold(run, self._swept)

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
    if target.kind == "gpu":
        return GpuTimer(target.l2_bytes, policy)
    # The probe tells about one core only.
    return CpuTimer(target.l2_bytes, policy, NeighbourProbe() if target.threads == 1 else None)


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
