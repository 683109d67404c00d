"""Measuring schedules on this machine: compiled in a pool of processes, run in one that may crash."""

from __future__ import annotations

import dataclasses
import multiprocessing
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Protocol, Self

from autosched.backends.environment import environment
from autosched.machine.devices import resolve
from autosched.machine.policies import Policy, check_timing
from autosched.machine.telemetry import monitor_for
from autosched.measuring.local.compile_pool import CompilePool
from autosched.measuring.local.finals import hold
from autosched.measuring.local.fork_server import shared_server
from autosched.measuring.local.jobs import Standings, Task
from autosched.measuring.local.pipeline import Result, TrialPipeline
from autosched.measuring.local.trial_runner import TrialRunner
from autosched.measuring.local.worker_process import wait_for
from autosched.measuring.measurer import UnfitWorkloadError
from autosched.measuring.reservation import Reservation
from autosched.measuring.worker_setups import (
    DEFAULT_BACKEND,
    DEFAULT_LIMITS,
    TrialLimits,
    compile_setups,
    measuring_setup,
)
from search_spaces import InputError, Schedule, Target, Workload
from tuning_logs import DeviceState, Measurement, Versions

# Of the winner and the library: from thirty on, an interval of the median is a matter of noise and no longer of luck.
_MATCH_ROUNDS = 30


class Monitor(Protocol):
    """What tells how a device is doing: `autosched.machine.telemetry.DeviceMonitor`."""

    def state(self) -> DeviceState | None: ...

    def close(self) -> None: ...


class LocalMeasurer:
    """Measures schedules on a device of this machine; its processes stay warm from one workload to the next.

    Candidates compile in a pool of processes, and are checked and timed, one at a time, in a process of its own: one
    that hangs or crashes costs that process, not the search. On a GPU both go on at once. On a CPU what was submitted
    together is timed after it was compiled: two "cores" may be threads of one, and then a busy compiler halves what is
    measured. The seed of a submission counts unless setting up the inputs takes longer than a tenth of the trials with
    those that are there. `target` is as for `tune`; `monitor` tells how a GPU is doing, NVML unless another is given.

    It serves one search at a time, in the process that opened it. Use it in a `with` statement, or `close` it.

    Raises:
        InputError: there is no such target.
        TargetUnavailableError: it is not on this machine.
    """

    def __init__(
        self,
        target: str | Target | None = None,
        *,
        limits: TrialLimits = DEFAULT_LIMITS,
        backend: str = DEFAULT_BACKEND,
        monitor: Monitor | None = None,
    ) -> None:
        self._target = target = resolve(target)
        self._reservation = Reservation(target.device)
        self._server = shared_server()
        self._runner = TrialRunner(self._server, measuring_setup(target, limits, backend), limits.run_timeout_s)
        self._pool = CompilePool(self._server, compile_setups(target, limits, backend), limits.compile_timeout_s)
        self._monitor = monitor or monitor_for(target)
        self._pipeline = TrialPipeline(target, self._pool, self._runner, self._monitor.state)
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
        return self._reservation.here and self._open and self._broken is None

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
            raise InputError(
                f"the measurer is for {self._target.key}; got a search for {target.key}: open another one, "
                "autosched.LocalMeasurer(target)"
            )
        with self._lock:
            self._reservation.take()
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
        if not self._reservation.here:
            return
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._wake.send(None)
        self._thread.join()
        self._cancel_open()
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
            self._trials |= futures
            self._runner.prepare(task, seed)
            for number, schedule in jobs.items():
                self._pipeline.submit(number, task, schedule, again)
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
        """Nothing of it is measured any more: what it left open, since it broke down, is given up."""
        if not self._reservation.here:
            return
        with self._lock:
            self._reservation.end()
            if self._broken is None and not self._closing:
                if self._trials or self._contests:
                    self._pipeline.give_up()
                    self._cancel_open()
                self._pipeline.forget()
                self._wake.send(None)

    def _cancel_open(self) -> None:
        for trial in self._trials.values():
            trial.cancel()
        for contest in self._contests.values():
            contest.cancel()
        self._trials.clear()
        self._contests.clear()

    @property
    def _open(self) -> bool:
        return not self._closing and self._server.alive

    def _check_usable(self) -> None:
        self._reservation.check_process()
        if not self._open:
            reason = f"the measurer for {self._target.device} was closed"
            raise InputError(f"{reason}; open another one: autosched.LocalMeasurer(target)")

    def _check_mine(self) -> None:
        """Raise unless this thread may use it; and what broke it, if anything did."""
        if self._broken is not None:
            raise self._broken
        self._reservation.check_thread()

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
        with self._lock:
            answers = [self._answer(number, result) for number, result in self._pipeline.step(ready)]
        # Without the lock: who waits may submit more at once.
        for answer in answers:
            answer()

    def _fail(self, error: Exception) -> None:
        """Have everything that is open raise the error."""
        for trial in self._trials.values():
            trial.set_exception(error)
        for contest in self._contests.values():
            contest.set_exception(error)
        self._trials.clear()
        self._contests.clear()

    def _answer(self, number: int, result: Result) -> Callable[[], None]:
        """What hands a result to who waits for it."""
        if isinstance(result, UnfitWorkloadError):
            return partial((self._trials.pop(number, None) or self._contests.pop(number)).set_exception, result)
        if isinstance(result, Standings):
            return partial(self._contests.pop(number).set_result, result)
        return partial(self._trials.pop(number).set_result, result)
