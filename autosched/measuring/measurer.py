"""Measuring schedules on this machine: compiled in a pool of processes, run in one that may crash."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Protocol, Self

from autosched.machine.devices import environment, usable_cores
from autosched.machine.telemetry import monitor_for
from autosched.machine.timing import Policy, check_timing
from autosched.measuring.local.compile_pool import CompilePool
from autosched.measuring.local.finals import hold
from autosched.measuring.local.fork_server import shared_server
from autosched.measuring.local.jobs import Setup, Standings, Task
from autosched.measuring.local.pipeline import Pipeline
from autosched.measuring.local.trial_runner import TrialRunner, UnfitTaskError
from autosched.measuring.local.worker_process import wait_for
from search_spaces import InputError, Schedule, Target, Workload
from tuning_logs import DeviceState, Measurement, Versions

# What gives a target's backends, as a worker process imports it.
DEFAULT_BACKEND = "autosched.backends:for_target"
# Compile workers beyond this many keep a GPU no busier: it times about as many candidates a second as they compile.
_MOST_COMPILE_WORKERS = 16
# Of the winner and the library: from thirty on, an interval of the median is a matter of noise and no longer of luck.
_MATCH_ROUNDS = 30


class Measurer(Protocol):
    """What runs schedules on one target, of one workload after the other: here, elsewhere, or out of a recorded table.

    `policy` is how they are timed, and the inputs are drawn from `seed`.
    """

    @property
    def overlaps(self) -> bool:
        """Whether the next schedules may be worked out, and submitted, while earlier ones are measured."""
        ...

    @property
    def environment(self) -> Versions:
        """Versions of all that measurements depend on, on the machine that measures: they stand in every record."""
        ...

    def library_s(self, workload: Workload) -> float | None:
        """What the vendor's library takes; None while that is not known."""
        ...

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = ..., seed: int = ...
    ) -> list[Future[Measurement]]:
        """Have the schedules measured; a failure is a measurement too. A future raises what broke the measurer."""
        ...

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = ..., seed: int = ...
    ) -> list[Measurement] | None:
        """The same, timed interleaved with each other to compare them fairly, `rounds` at a time until one wins.

        None when they could not be timed together.
        """
        ...

    def cancel(self) -> None:
        """Give up what was submitted and is not being worked on yet: those futures are cancelled."""
        ...


class Monitor(Protocol):
    """What tells how a device is doing: `autosched.machine.telemetry.DeviceMonitor`."""

    def state(self) -> DeviceState | None: ...

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
    abandon_factor: float = 1.25
    compile_workers: int = 0


class LocalMeasurer:
    """Measures schedules on a device of this machine; its processes stay warm from one workload to the next.

    Candidates compile in a pool of processes, and are checked and timed, one at a time, in a process of its own: one
    that hangs or crashes costs that process, not the search. On a GPU both go on at once. On a CPU what was submitted
    together is timed after it was compiled: two "cores" may be threads of one, and then a busy compiler halves what is
    measured. The seed of a submission counts unless setting up the inputs takes longer than a tenth of the trials with
    those that are there. `monitor` tells how a GPU is doing, NVML unless another is given.

    It serves one search at a time, in the process that opened it. Use it in a `with` statement, or `close` it.
    """

    def __init__(
        self,
        target: Target,
        *,
        limits: Limits = Limits(),
        backend: str = DEFAULT_BACKEND,
        monitor: Monitor | None = None,
    ) -> None:
        bench = Setup("measure", backend, target, limits.abandon_factor, *_bench_cores(target))
        compilers = [
            dataclasses.replace(bench, role="compile", cores=cores, threads=1)
            for cores in _compile_cores(target, limits.compile_workers)
        ]
        self._target = target
        self._process = os.getpid()
        self._server = shared_server()
        self._runner = TrialRunner(self._server, bench, limits.run_timeout_s)
        self._pool = CompilePool(self._server, compilers, limits.compile_timeout_s)
        self._monitor = monitor or monitor_for(target)
        self._pipeline = Pipeline(target, self._pool, self._runner, self._monitor.state)
        self._numbers = count()
        self._trials: dict[int, Future[Measurement]] = {}
        self._contests: dict[int, Future[Standings]] = {}
        # The lock guards all of the above, which the thread works on whenever a worker replied or it is woken.
        self._lock = threading.Lock()
        self._woken: Connection[None, None]
        self._wake: Connection[None, None]
        self._woken, self._wake = multiprocessing.Pipe(duplex=False)
        self._closing = False
        self._broken: Exception | None = None
        # The thread whose search has the measurer to itself.
        self._reserved_by: int | None = None
        self._thread = threading.Thread(target=self._drive, name="autosched-measurer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def overlaps(self) -> bool:
        return self._target.kind == "gpu"

    @property
    def environment(self) -> Versions:
        return environment(self._target)

    @property
    def usable(self) -> bool:
        """Whether it can still measure: it is open, of this process, and nothing broke it."""
        return self._why_unusable() is None and self._broken is None

    def library_s(self, workload: Workload) -> float | None:
        with self._lock:
            return self._runner.library_s(workload)

    @property
    def pids(self) -> tuple[int, ...]:
        """The worker processes that are up, the measuring one first."""
        with self._lock:
            return tuple(w.pid for w in self._pipeline.workers if w.pid is not None)

    @contextmanager
    def reserved(self, target: Target) -> Iterator[None]:
        """Let no other search use it for as long as the block lasts; then the memory of its workload is given back.

        Raises:
            InputError: it cannot be used, is in use already, or measures on another target.
        """
        self._check_usable()
        if target.key != self._target.key:
            raise InputError(f"the measurer is for {self._target.key}; got a search for {target.key}")
        with self._lock:
            if self._reserved_by is not None:
                raise InputError(self._why_in_use())
            self._reserved_by = threading.get_ident()
        try:
            yield
        finally:
            self._end_search()

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        """A future for every schedule.

        Raises:
            InputError: a schedule is not bound to a search space; no such policy, or the target has none such; or the
                measurer was closed, opened by another process, or is in use by another thread's search.
            TargetUnavailableError: the worker processes do not start, or the workload does not fit on the device; the
                futures of what was submitted before raise it too.
        """
        return list(self._submit(Task(workload, policy), schedules, seed).values())

    def measure(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        """Submit the schedules and wait: one measurement each, in order.

        Raises:
            InputError, TargetUnavailableError: as `submit`.
        """
        return [future.result() for future in self.submit(workload, schedules, policy=policy, seed=seed)]

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement] | None:
        """The schedules checked once more, then timed in finals: one latency from every round that they took part in.

        The winner is then timed in turn with the library alone, and its measurement has what both took: among many
        others, a small call of the library finds its code and scratch memory gone from the caches. None when no round
        could be held.

        Raises:
            InputError, TargetUnavailableError: as `submit`.
        """
        task = Task(workload, policy)
        futures = self._submit(task, schedules, seed, again=True)
        measurements = {number: future.result() for number, future in futures.items()}
        fit = [number for number, m in measurements.items() if m.ok]
        finals = hold(fit, rounds, lambda numbers, count: self._contest(task, numbers, count).result())
        match = Standings(())
        if finals.latencies_s:
            match = self._contest(task, [finals.winner], _MATCH_ROUNDS, library=True).result()
        with self._lock:
            self._pipeline.forget_finalists()
        if fit and not finals.latencies_s:
            return None
        for number, latencies in finals.latencies_s.items():
            measurements[number] = dataclasses.replace(
                measurements[number], latencies_s=latencies, slowdown=1.0, timing="full"
            )
        if match.library_s:
            measurements[finals.winner] = dataclasses.replace(
                measurements[finals.winner], library_s=match.library_s, beside_library_s=match.latencies_s[0]
            )
        failures = {number: Measurement("run_error", detail=detail) for number, detail in finals.failures.items()}
        return list((measurements | failures).values())

    def cancel(self) -> None:
        """Give up what was submitted and is neither compiling nor running yet: those futures are cancelled."""
        with self._lock:
            given_up = [self._trials.pop(number) for number in self._pipeline.cancel_waiting()]
        for future in given_up:
            future.cancel()

    def close(self) -> None:
        """End the worker processes; futures still open are cancelled. In a forked process nothing is done."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._wake.send(None)
        self._thread.join()
        for trial in self._trials.values():
            trial.cancel()
        for contest in self._contests.values():
            contest.cancel()
        self._runner.close()
        self._pool.close()
        self._monitor.close()
        self._wake.close()
        self._woken.close()

    def _submit(
        self, task: Task, schedules: Iterable[Schedule], seed: int, again: bool = False
    ) -> dict[int, Future[Measurement]]:
        check_timing(task.policy, self._target)
        self._check_usable()
        with self._lock:
            self._check_mine()
            jobs = {next(self._numbers): s for s in schedules}
            for schedule in jobs.values():
                # Raises for one that is not bound, before any of them is under way.
                _ = schedule.program
            futures: dict[int, Future[Measurement]] = {number: Future() for number in jobs}
            self._runner.prepare(task, seed)
            for number, schedule in jobs.items():
                self._pipeline.submit(number, task, schedule, again)
            self._trials |= futures
            self._wake.send(None)
        return futures

    def _contest(self, task: Task, finalists: Sequence[int], rounds: int, library: bool = False) -> Future[Standings]:
        self._check_usable()
        with self._lock:
            self._check_mine()
            number, future = next(self._numbers), Future[Standings]()
            self._contests[number] = future
            self._pipeline.contest(number, task, finalists, rounds, library)
            self._wake.send(None)
        return future

    def _end_search(self) -> None:
        """Nothing of it is measured any more, but for what a worker has begun."""
        if self._why_unusable() is None:
            self.cancel()
        with self._lock:
            self._reserved_by = None
            if self._broken is None and not self._closing:
                self._pipeline.forget()
                self._wake.send(None)

    def _check_mine(self) -> None:
        """Raise unless this thread may use it; and what broke it, if anything did."""
        if self._broken is not None:
            raise self._broken
        if self._reserved_by not in (None, threading.get_ident()):
            raise InputError(self._why_in_use())

    def _check_usable(self) -> None:
        if reason := self._why_unusable():
            raise InputError(f"{reason}; open another one: autosched.LocalMeasurer(target)")

    def _why_unusable(self) -> str | None:
        """Why nothing can be measured any more; known without the lock, which a fork may have left locked for ever."""
        if os.getpid() != self._process:
            return (
                f"the measurer for {self._target.device} belongs to process {self._process}, from which this one "
                f"({os.getpid()}) was forked"
            )
        if self._closing or not self._server.alive:
            return f"the measurer for {self._target.device} was closed"
        return None

    def _why_in_use(self) -> str:
        whose = "this thread" if self._reserved_by == threading.get_ident() else "another thread"
        return (
            f"the measurer for {self._target.device} is in use by a search of {whose}; expected one search at a time: "
            "wait for it, or give this one a measurer of its own: with autosched.LocalMeasurer(target) as measurer"
        )

    def _drive(self) -> None:
        """What the thread does: move candidates on, hand out what comes of them, wait for the workers."""
        ready: list[object] = []
        try:
            while not self._closing:
                self._step(ready)
                ready = wait_for(self._pipeline.workers, self._woken)
                while self._woken.poll():
                    self._woken.recv()
        except Exception as error:
            # Raised again in the thread that waits for a measurement, or submits.
            with self._lock:
                self._broken = error
                self._fail(error)

    def _step(self, ready: Sequence[object]) -> None:
        done: Sequence[tuple[int, Measurement | Standings]] = ()
        with self._lock:
            try:
                done = self._pipeline.step(ready)
            except UnfitTaskError as error:
                self._pipeline.give_up()
                self._fail(error)
        for number, result in done:
            self._hand_out(number, result)

    def _fail(self, error: Exception) -> None:
        """Have everything that is open raise the error."""
        for trial in self._trials.values():
            trial.set_exception(error)
        for contest in self._contests.values():
            contest.set_exception(error)
        self._trials.clear()
        self._contests.clear()

    def _hand_out(self, number: int, result: Measurement | Standings) -> None:
        if isinstance(result, Standings):
            self._contests.pop(number).set_result(result)
        else:
            self._trials.pop(number).set_result(result)


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
