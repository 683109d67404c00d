"""Measuring schedules on this machine: compiled in a pool of processes, run in one that may crash."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from autosched.devices import usable_cores
from autosched.measuring.compile_pool import CompilePool
from autosched.measuring.fork_server import ForkServer
from autosched.measuring.jobs import Candidate, Setup
from autosched.measuring.trial_runner import TrialRunner
from autosched.measuring.worker_process import wait_for
from autosched.timing import POLICIES, Policy
from search_spaces import Schedule, Target, Workload
from search_spaces.errors import unknown_name
from tuning_logs import Measurement, Status

OnDone = Callable[[int, Measurement], None]

# What gives a target's backend, as a worker process imports it.
DEFAULT_BACKEND = "autosched.backends:for_target"
# A trial is a load, a check and a handful of repeats. One that takes as long as this many perfect runs is hopeless.
_PERFECT_RUNS_PER_TRIAL = 100
# Compile workers beyond this many keep a GPU no busier: it times about as many candidates a second as they compile.
_MOST_COMPILE_WORKERS = 16


class Measurer(Protocol):
    """What runs schedules of one workload on one target: here, elsewhere, or out of a recorded table."""

    def measure(self, schedules: Sequence[Schedule], on_done: OnDone | None = None) -> list[Measurement]:
        """One measurement per schedule, in order; failures are measurements too.

        `on_done` is called with the number of a schedule in the batch and its measurement, as they come.
        """
        ...

    def remeasure(self, schedules: Sequence[Schedule], rounds: int) -> list[Measurement]:
        """The same, timed interleaved with each other over so many rounds, to compare them fairly."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Limits:
    """When a candidate is given up.

    `run_timeout_s` is for a whole trial, and more is allowed where a hundred perfect runs take longer. A candidate is
    abandoned after two repeats when they are `abandon_factor` times slower than the best so far. `compile_workers` is
    how many processes compile; 0: one for every core of a CPU, and for all but one (at most 16) beside a GPU.
    """

    compile_timeout_s: float = 30.0
    run_timeout_s: float = 10.0
    abandon_factor: float = 3.0
    compile_workers: int = 0


@dataclass(frozen=True)
class MeasurerStatistics:
    """Where a measurer's time went. `wall_s` is that of its calls; `compile_s` is summed over the compile workers.

    `check_s` (which includes loading), `timing_s` and `idle_s` (waiting for the compilers, starting) are the measuring
    worker's. `statuses` counts the trials by status.
    """

    wall_s: float = 0.0
    compile_s: float = 0.0
    check_s: float = 0.0
    timing_s: float = 0.0
    statuses: tuple[tuple[Status, int], ...] = ()

    @property
    def idle_s(self) -> float:
        return max(0.0, self.wall_s - self.check_s - self.timing_s)

    @property
    def trials(self) -> int:
        return sum(count for _, count in self.statuses)


class LocalMeasurer:
    """Measures schedules of one workload on a device of this machine.

    Candidates compile in a pool of processes, and are checked and timed, one at a time, in a process of its own: one
    that hangs or crashes costs that process, not the search. On a GPU both go on at once. On a CPU a batch is timed
    after it was compiled: two "cores" may be threads of one, and then a busy compiler halves what is measured. Every
    batch gets fresh inputs, drawn from `seed` and its number, unless setting them up takes longer than a tenth of the
    trials with them. Use it in a `with` statement, or `close` it.

    Raises:
        InputError: no such policy.
    """

    def __init__(
        self,
        workload: Workload,
        target: Target,
        *,
        policy: Policy = "cold",
        seed: int = 0,
        limits: Limits = Limits(),
        backend: str = DEFAULT_BACKEND,
    ) -> None:
        if policy not in POLICIES:
            raise unknown_name("timing policy", policy, POLICIES)
        bench = Setup("measure", backend, workload, target, policy, limits.abandon_factor, *_bench_cores(target))
        compilers = [
            dataclasses.replace(bench, role="compile", cores=cores, threads=1)
            for cores in _compile_cores(target, limits.compile_workers)
        ]
        self._server = ForkServer([backend.partition(":")[0]])
        patience_s = _PERFECT_RUNS_PER_TRIAL * _perfect_s(workload, target)
        self._runner = TrialRunner(self._server, bench, max(limits.run_timeout_s, patience_s))
        self._pool = CompilePool(self._server, compilers, limits.compile_timeout_s)
        self._time_alone = target.kind == "cpu"
        self._seed = seed
        self._batches = 0
        self._wall_s = 0.0
        self._statuses: Counter[Status] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def statistics(self) -> MeasurerStatistics:
        """Where the time of all calls so far went."""
        return MeasurerStatistics(
            wall_s=self._wall_s,
            compile_s=self._pool.seconds,
            check_s=self._runner.check_s,
            timing_s=self._runner.timing_s,
            statuses=tuple(self._statuses.most_common()),
        )

    @property
    def pids(self) -> tuple[int, ...]:
        """The worker processes that are up, the measuring one first."""
        return tuple(w.pid for w in (self._runner.worker, *self._pool.workers) if w.pid is not None)

    def measure(self, schedules: Sequence[Schedule], on_done: OnDone | None = None) -> list[Measurement]:
        """One measurement per schedule, in order; failures are measurements too.

        Raises:
            InputError: a schedule is not bound to a search space.
            TargetUnavailableError: the worker processes do not start, or the workload does not fit on the device.
        """
        measurements, _ = self._batch(schedules, on_done)
        return measurements

    def remeasure(self, schedules: Sequence[Schedule], rounds: int) -> list[Measurement]:
        """The schedules checked once more, then timed interleaved: the latencies are one from every round.

        Should a candidate fail only now, the latencies are those of its trial.

        Raises:
            InputError, TargetUnavailableError: as `measure`.
        """
        measurements, candidates = self._batch(schedules, None)
        fit = [number for number, m in enumerate(measurements) if m.ok]
        begin = time.perf_counter()
        standings = self._runner.contest([candidates[number] for number in fit], rounds)
        self._wall_s += time.perf_counter() - begin
        for number, latencies in zip(fit, standings.latencies_s, strict=False):
            measurements[number] = dataclasses.replace(measurements[number], latencies_s=latencies, slowdown=1.0)
        return measurements

    def close(self) -> None:
        """End the worker processes."""
        self._runner.close()
        self._pool.close()
        self._server.close()

    def _batch(
        self, schedules: Sequence[Schedule], on_done: OnDone | None
    ) -> tuple[list[Measurement], dict[int, Candidate]]:
        begin = time.perf_counter()
        self._runner.prepare(seed=self._seed + self._batches)
        self._batches += 1
        try:
            for number, schedule in enumerate(schedules):
                self._pool.submit(number, schedule)
            return self._finish(len(schedules), on_done)
        except BaseException:
            self._pool.cancel()
            self._runner.cancel()
            raise
        finally:
            self._wall_s += time.perf_counter() - begin

    def _finish(self, count: int, on_done: OnDone | None) -> tuple[list[Measurement], dict[int, Candidate]]:
        """Compile and run everything submitted."""
        measurements: dict[int, Measurement] = {}
        candidates: dict[int, Candidate] = {}
        held: list[int] = []
        ready: list[object] = []
        while len(measurements) < count:
            done = []
            for compiled in self._pool.step(ready):
                if isinstance(compiled.result, Candidate):
                    candidates[compiled.number] = compiled.result
                    held.append(compiled.number)
                else:
                    done.append((compiled.number, compiled.result))
            if not (self._time_alone and self._pool.busy):
                for number in held:
                    self._runner.submit(number, candidates[number])
                held.clear()
            done += self._runner.step(ready)
            for number, measurement in done:
                measurements[number] = measurement
                self._statuses[measurement.status] += 1
                if on_done is not None:
                    on_done(number, measurement)
            if len(measurements) < count:
                ready = wait_for([*self._pool.workers, self._runner.worker])
        return [measurements[number] for number in range(count)], candidates


def _bench_cores(target: Target) -> tuple[tuple[int, ...], int]:
    """The cores of the measuring worker, and its threads: on a CPU those that are measured, at the end of the list."""
    if target.kind == "gpu":
        return (), 1
    return tuple(usable_cores()[-target.threads :]), target.threads


def _compile_cores(target: Target, workers: int) -> list[tuple[int, ...]]:
    """The cores that each compile worker may use: one worker fewer than cores beside a GPU."""
    cores = usable_cores()
    count = len(cores) if target.kind == "cpu" else max(1, len(cores) - 1)
    return [tuple(cores)] * (workers or min(count, _MOST_COMPILE_WORKERS))


def _perfect_s(workload: Workload, target: Target) -> float:
    """The latency of a kernel at the peak rate of the device or of its memory, whichever is longer."""
    peak = target.flops_per_s(workload.inputs[0].dtype if workload.inputs else "float32", workload.precision)
    return max(workload.flops / peak, workload.min_bytes / target.memory_bytes_per_s)
