"""Measurement of schedules on this machine: compiled in a pool of processes, run in one that may crash."""

from __future__ import annotations

import dataclasses
import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from autosched.backends.backend import Artefact
from autosched.backends.calibration import CALIBRATION, calibration_schedule
from autosched.backends.environment import environment
from autosched.machine.devices import resolve
from autosched.machine.policies import Policy, check_timing
from autosched.machine.telemetry import device_uuid, monitor_for
from autosched.measuring.local.certifying import Session, certified
from autosched.measuring.local.compile_pool import CompilePool
from autosched.measuring.local.finals import hold
from autosched.measuring.local.fork_server import shared_server
from autosched.measuring.local.jobs import Contest, Examination, Standings, Task, Trial
from autosched.measuring.local.pipeline import TrialPipeline
from autosched.measuring.local.trial_runner import TrialRunner
from autosched.measuring.local.worker_process import wait_for
from autosched.measuring.measurer import BATCH, UnfitWorkloadError
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
from tuning_logs.certificate import Results

J = TypeVar("J")
R = TypeVar("R")


class Monitor(Protocol):
    """Source of a device's state: `autosched.machine.telemetry.DeviceMonitor`."""

    def state(self) -> DeviceState | None: ...

    def close(self) -> None: ...


class LocalMeasurer:
    """Measures schedules on a device of this machine; its processes stay warm from one workload to the next.

    Candidates compile in a pool of processes, and are checked and timed, one at a time, in a process of its own: one
    that hangs or crashes costs that process, not the search. On a GPU both go on at once. On a CPU schedules submitted
    together are timed after all of them were compiled: two "cores" may be threads of one, and then a busy compiler
    halves a kernel's speed. A submission's seed is used unless preparing new inputs would take longer than a tenth of
    the trials with the present ones. `target` is as for `tune`; `monitor` reads the state of a GPU, by default through
    NVML.

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
        setup = measuring_setup(target, limits, backend)
        self._cores = setup.cores
        self._runner = TrialRunner(self._server, setup, limits.run_timeout_s)
        self._pool = CompilePool(self._server, compile_setups(target, limits, backend), limits.compile_timeout_s)
        self._monitor = monitor or monitor_for(target)
        self._pipeline = TrialPipeline(target, self._pool, self._runner, self._monitor.state)
        # The lock guards all of the above, which the thread works on when a worker replied or it is woken.
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
    def capacity(self) -> int:
        """Schedules in flight: on a GPU three batches, one measured, one compiled, one proposed, of up to three
        searches.
        """
        return 3 * BATCH if self._target.kind == "gpu" else BATCH

    @property
    def environment(self) -> Versions:
        return environment(self._target)

    @property
    def usable(self) -> bool:
        """True while it can measure: it is open, belongs to this process, and is not broken."""
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
        """Reserve it for one search while the block lasts; then free the memory of its workload.

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
        self,
        workload: Workload,
        schedules: Sequence[Schedule],
        *,
        policy: Policy = "cold",
        seed: int = 0,
        artefact: Artefact | None = None,
    ) -> list[Future[Measurement]]:
        """A future for every schedule; with an `artefact`, theirs, nothing is compiled.

        Raises:
            InputError: a schedule is not bound to a search space; no such policy, or the target lacks it; or the
                measurer was closed, opened by another process, or is in use by another thread's search.
            TargetUnavailableError: the worker processes do not start, or the workload does not fit on the device; the
                futures of earlier submissions raise it, too.
        """
        return self._submit(self._trials(Task(workload, policy), schedules, artefact=artefact), seed)

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

        The winner is then timed in interleaved rounds with the library alone, and its measurement has the latencies of
        both, and a certificate. None if no round was possible.

        Raises:
            InputError, TargetUnavailableError: as `submit`.
        """
        trials = self._trials(Task(workload, policy), schedules, afresh=True)
        measurements = [future.result() for future in self._submit(trials, seed)]
        fit = [number for number, m in enumerate(measurements) if m.ok]
        task = Task(workload, policy)
        finals = hold(
            fit, rounds, lambda numbers, count: self._contest(Contest(task, [trials[n] for n in numbers], count))
        )
        if fit and not finals.latencies_s:
            return None
        for number, latencies in finals.latencies_s.items():
            measurements[number] = dataclasses.replace(
                measurements[number], latencies_s=latencies, slowdown=1.0, timing="full"
            )
        for number, detail in finals.failures.items():
            measurements[number] = Measurement("run_error", detail=detail)
        if finals.latencies_s:
            won = measurements[finals.winner]
            measurements[finals.winner] = certified(finals, trials, won, rounds, self._session())
        return measurements

    def _session(self) -> Session:
        uuid = device_uuid() if self._target.kind == "gpu" else None
        return Session(
            target=self._target,
            versions=self.environment,
            cores=self._cores,
            uuid=uuid,
            contest=self._contest,
            examine=self._examine,
            state=self._monitor.state,
            calibration=lambda: self._calibration,
        )

    @cached_property
    def _calibration(self) -> Trial | None:
        """The device's calibration kernel, compiled for the first certificate; None where that does not work."""
        schedule = calibration_schedule(self._target)
        if schedule is None:
            return None
        trial = Trial(Task(CALIBRATION, "cold"), schedule, schedule.program)
        return trial if isinstance(self._run(trial, self._pipeline.compile), Artefact) else None

    def cancel(self) -> None:
        """Cancel the futures of schedules that are neither compiling nor running yet."""
        with self._lock:
            given_up = self._pipeline.cancel_waiting()
        _cancel(given_up)

    def close(self) -> None:
        """End the worker processes; open futures are cancelled. In a forked process nothing is done."""
        if not self._reservation.here:
            return
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._wake.send(None)
        self._thread.join()
        _cancel(self._pipeline.drop())
        self._runner.close()
        self._pool.close()
        self._monitor.close()
        self._wake.close()
        self._woken.close()

    def _trials(
        self, task: Task, schedules: Sequence[Schedule], afresh: bool = False, artefact: Artefact | None = None
    ) -> list[Trial]:
        """A trial for each; InputError for a schedule that is not bound, before any of them starts."""
        check_timing(task.policy, self._target)
        self._check_usable()
        return [Trial(task, schedule, schedule.program, afresh, artefact) for schedule in schedules]

    def _submit(self, trials: Sequence[Trial], seed: int) -> list[Future[Measurement]]:
        with self._lock:
            self._check_mine()
            for task in {trial.task for trial in trials}:
                self._runner.prepare(task, seed)
            futures = [self._pipeline.submit(trial) for trial in trials]
            self._wake.send(None)
        return futures

    def _contest(self, contest: Contest) -> Standings:
        return self._run(contest, self._pipeline.contest)

    def _examine(self, examination: Examination) -> Results | Measurement:
        return self._run(examination, self._pipeline.examine)

    def _run(self, job: J, submit: Callable[[J], Future[R]]) -> R:
        """Have the measuring worker do a job, and wait."""
        self._check_usable()
        with self._lock:
            self._check_mine()
            future = submit(job)
            self._wake.send(None)
        return future.result()

    def _end_search(self) -> None:
        """Drop open jobs of the search, which it leaves if it broke down."""
        if not self._reservation.here:
            return
        with self._lock:
            self._reservation.end()
            if self._broken is None and not self._closing:
                _cancel(self._pipeline.give_up())
                self._pipeline.forget()
                self._wake.send(None)

    @property
    def _open(self) -> bool:
        return not self._closing and self._server.alive

    def _check_usable(self) -> None:
        self._reservation.check_process()
        if not self._open:
            reason = f"the measurer for {self._target.device} was closed"
            raise InputError(f"{reason}; open another one: autosched.LocalMeasurer(target)")

    def _check_mine(self) -> None:
        """Raise the error that broke the measurer, if any, or InputError if this thread may not use it."""
        if self._broken is not None:
            raise self._broken
        self._reservation.check_thread()

    def _drive(self) -> None:
        """Loop of the thread: advance candidates, deliver results, wait for the workers."""
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
                for future in self._pipeline.drop():
                    future.set_exception(error)

    def _step(self, ready: Sequence[object]) -> None:
        with self._lock:
            came_out = self._pipeline.step(ready)
        # Without the lock: a waiting thread may submit more at once.
        for future, result in came_out:
            if isinstance(result, UnfitWorkloadError):
                future.set_exception(result)
            else:
                future.set_result(result)


def _cancel(futures: Sequence[Future[Any]]) -> None:
    for future in futures:
        future.cancel()
