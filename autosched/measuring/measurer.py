"""Measuring schedules on this machine: compiled in a pool of processes, run in one that may crash."""

from __future__ import annotations

import dataclasses
import multiprocessing
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Protocol, Self

from autosched.devices import usable_cores
from autosched.measuring.compile_pool import CompilePool
from autosched.measuring.finals import hold
from autosched.measuring.fork_server import ForkServer
from autosched.measuring.jobs import Setup, Standings
from autosched.measuring.pipeline import Pipeline
from autosched.measuring.trial_runner import TrialRunner
from autosched.measuring.worker_process import wait_for
from autosched.telemetry import monitor_for
from autosched.timing import Policy, check_timing
from cost_models import bound_s
from search_spaces import Schedule, Target, Workload
from tuning_logs import DeviceState, Measurement

# What gives a target's backends, as a worker process imports it.
DEFAULT_BACKEND = "autosched.backends:for_target"
# A trial is a load, a check and a handful of repeats. One that takes as long as this many perfect runs is hopeless.
_PERFECT_RUNS_PER_TRIAL = 100
# Compile workers beyond this many keep a GPU no busier: it times about as many candidates a second as they compile.
_MOST_COMPILE_WORKERS = 16
# Of the winner and the library: from thirty on, an interval of the median is a matter of noise and no longer of luck.
_MATCH_ROUNDS = 30


class Measurer(Protocol):
    """What runs schedules of one workload on one target: here, elsewhere, or out of a recorded table."""

    @property
    def overlaps(self) -> bool:
        """Whether the next schedules may be worked out, and submitted, while earlier ones are measured."""
        ...

    @property
    def library_s(self) -> float | None:
        """What the vendor's library takes; None while that is not known."""
        ...

    def submit(self, schedules: Sequence[Schedule]) -> list[Future[Measurement]]:
        """Have the schedules measured; a failure is a measurement too. A future raises what broke the measurer."""
        ...

    def remeasure(self, schedules: Sequence[Schedule], rounds: int) -> list[Measurement] | None:
        """The same, timed interleaved with each other to compare them fairly, `rounds` at a time until one wins.

        None when they could not be timed together.
        """
        ...

    def cancel(self) -> None:
        """Give up what was submitted and is not being worked on yet: those futures are cancelled."""
        ...

    def close(self) -> None: ...


class Monitor(Protocol):
    """What tells how a device is doing: `autosched.telemetry.DeviceMonitor`."""

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
    """Measures schedules of one workload on a device of this machine.

    Candidates compile in a pool of processes, and are checked and timed, one at a time, in a process of its own: one
    that hangs or crashes costs that process, not the search. On a GPU both go on at once. On a CPU what was submitted
    together is timed after it was compiled: two "cores" may be threads of one, and then a busy compiler halves what is
    measured. Every submission gets fresh inputs, drawn from `seed` and its number, unless setting them up takes longer
    than a tenth of the trials with them. `monitor` tells how a GPU is doing, NVML unless another is given. `server`
    starts the processes, and stays; by default the measurer has its own. Use the measurer in a `with` statement, or
    `close` it.

    Raises:
        InputError: no such policy, or the target has none such.
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
        monitor: Monitor | None = None,
        server: ForkServer | None = None,
    ) -> None:
        check_timing(policy, target)
        bench = Setup("measure", backend, workload, target, policy, limits.abandon_factor, *_bench_cores(target))
        compilers = [
            dataclasses.replace(bench, role="compile", cores=cores, threads=1)
            for cores in _compile_cores(target, limits.compile_workers)
        ]
        self._server = server or ForkServer([backend.partition(":")[0]])
        self._server_is_shared = server is not None
        patience_s = _PERFECT_RUNS_PER_TRIAL * bound_s(workload, target)
        self._runner = TrialRunner(self._server, bench, max(limits.run_timeout_s, patience_s))
        self._pool = CompilePool(self._server, compilers, limits.compile_timeout_s)
        self._monitor = monitor or monitor_for(target)
        self._pipeline = Pipeline(target, self._pool, self._runner, self._monitor.state)
        self._overlaps = target.kind == "gpu"
        self._seeds = count(seed)
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
        return self._overlaps

    @property
    def library_s(self) -> float | None:
        return self._runner.library_s

    @property
    def pids(self) -> tuple[int, ...]:
        """The worker processes that are up, the measuring one first."""
        with self._lock:
            return tuple(w.pid for w in self._pipeline.workers if w.pid is not None)

    def submit(self, schedules: Sequence[Schedule]) -> list[Future[Measurement]]:
        """A future for every schedule.

        Raises:
            InputError: a schedule is not bound to a search space.
            TargetUnavailableError: the worker processes do not start, or the workload does not fit on the device; the
                futures of what was submitted before raise it too.
        """
        return list(self._submit(schedules).values())

    def measure(self, schedules: Sequence[Schedule]) -> list[Measurement]:
        """Submit the schedules and wait: one measurement each, in order.

        Raises:
            InputError, TargetUnavailableError: as `submit`.
        """
        return [future.result() for future in self.submit(schedules)]

    def remeasure(self, schedules: Sequence[Schedule], rounds: int) -> list[Measurement] | None:
        """The schedules checked once more, then timed in finals: one latency from every round that they took part in.

        The winner is then timed in turn with the library alone, and its measurement has what both took: among many
        others, a small call of the library finds its code and scratch memory gone from the caches. None when no round
        could be held.

        Raises:
            InputError, TargetUnavailableError: as `submit`.
        """
        futures = self._submit(schedules, again=True)
        measurements = {number: future.result() for number, future in futures.items()}
        fit = [number for number, m in measurements.items() if m.ok]
        finals = hold(fit, rounds, lambda numbers, count: self._contest(numbers, count).result())
        match = Standings(())
        if finals.latencies_s:
            match = self._contest([finals.winner], _MATCH_ROUNDS, library=True).result()
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
        """End the worker processes; futures still open are cancelled."""
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
        if not self._server_is_shared:
            self._server.close()
        self._monitor.close()
        self._wake.close()
        self._woken.close()

    def _submit(self, schedules: Iterable[Schedule], again: bool = False) -> dict[int, Future[Measurement]]:
        with self._lock:
            self._raise_if_broken()
            jobs = {next(self._numbers): s for s in schedules}
            for schedule in jobs.values():
                # Raises for one that is not bound, before any of them is under way.
                _ = schedule.program
            futures: dict[int, Future[Measurement]] = {number: Future() for number in jobs}
            self._runner.prepare(seed=next(self._seeds))
            for number, schedule in jobs.items():
                self._pipeline.submit(number, schedule, again)
            self._trials |= futures
            self._wake.send(None)
        return futures

    def _contest(self, finalists: Sequence[int], rounds: int, library: bool = False) -> Future[Standings]:
        with self._lock:
            self._raise_if_broken()
            number, future = next(self._numbers), Future[Standings]()
            self._contests[number] = future
            self._pipeline.contest(number, finalists, rounds, library)
            self._wake.send(None)
        return future

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _drive(self) -> None:
        """What the thread does: move candidates on, hand out what comes of them, wait for the workers."""
        ready: list[object] = []
        try:
            while not self._closing:
                with self._lock:
                    done = self._pipeline.step(ready)
                for number, result in done:
                    self._hand_out(number, result)
                ready = wait_for(self._pipeline.workers, self._woken)
                while self._woken.poll():
                    self._woken.recv()
        except Exception as error:
            # Raised again in the thread that waits for a measurement, or submits.
            with self._lock:
                self._broken = error
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
