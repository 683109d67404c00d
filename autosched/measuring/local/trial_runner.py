"""Running candidates one after the other in the measuring worker, which is replaced when a candidate breaks it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Container
from dataclasses import dataclass

from autosched.measuring.local.fork_server import ForkServer
from autosched.measuring.local.jobs import (
    Candidate,
    Contest,
    Outcome,
    Prepare,
    Ready,
    Release,
    Setup,
    Standings,
    Task,
    Trial,
)
from autosched.measuring.local.worker_process import Lost, WorkerProcess
from cost_models import bound_s
from search_spaces import TargetUnavailableError, Workload
from tuning_logs import Measurement

# Drawing inputs and evaluating the reference in float64: seconds for the largest workloads on a slow device.
_PREPARE_TIMEOUT_S = 600.0
# Inputs are kept until trials with them have taken this many times longer than setting them up did.
_WORTH = 10.0
# A trial is a load, a check and a handful of repeats. One that takes as long as this many perfect runs is hopeless.
_PERFECT_RUNS_PER_TRIAL = 100


class UnfitTaskError(TargetUnavailableError):
    """The inputs of a task cannot be set up; another's may."""


@dataclass(frozen=True)
class _Waiting:
    """What is to be done, of which task, and the number under which it was submitted."""

    number: int
    task: Task
    job: Trial | Contest


class TrialRunner:
    """One measuring worker and what waits for it, of one task after the other.

    What is submitted has a number, and comes back with it: a candidate as its measurement, a contest as its standings.
    A trial may take `timeout_s`, or longer where a hundred perfect runs do.
    """

    def __init__(self, server: ForkServer, setup: Setup, timeout_s: float) -> None:
        self._worker = WorkerProcess(server, setup)
        self._target = setup.target
        self._timeout_s = timeout_s
        self._waiting: deque[_Waiting] = deque()
        self._running: _Waiting | None = None
        # The inputs to come, None for none; and which process holds which: one that was replaced holds none.
        self._wanted: Prepare | None = None
        self._prepared: tuple[int | None, Prepare] | None = None
        self._preparing: Prepare | None = None
        self._preparing_since = 0.0
        self._prepare_s = 0.0
        self._trials_s = 0.0
        # Those whose worker was killed by somebody else get a second try; and so do inputs.
        self._killed: set[int] = set()
        self._killed_preparing: set[Prepare] = set()
        # The fastest latency that was seen of a task, and what the vendor's library takes.
        self._best_s: dict[Task, float] = {}
        self._library_s: dict[Task, float | None] = {}

    @property
    def worker(self) -> WorkerProcess:
        return self._worker

    def library_s(self, workload: Workload) -> float | None:
        """What the vendor's library takes with the inputs last drawn; None while that is not known."""
        return next((taken for task, taken in self._library_s.items() if task.workload == workload), None)

    def prepare(self, task: Task, seed: int) -> None:
        """Draw fresh inputs for the candidates to come, unless the present ones of the task have hardly been used."""
        used = self._prepared is None or self._trials_s >= _WORTH * self._prepare_s
        if self._wanted is None or self._wanted.task != task or used:
            self._wanted = Prepare(task, seed)

    def forget(self) -> None:
        """Have the memory of the task given back, and forget what was seen of any."""
        self._wanted = None
        self._best_s.clear()
        self._library_s.clear()

    def submit(self, number: int, task: Task, candidate: Candidate) -> None:
        # What is to be beaten is filled in when its turn comes.
        self._waiting.append(_Waiting(number, task, Trial(candidate, None)))

    def contest(self, number: int, task: Task, contest: Contest) -> None:
        """Time candidates that came through a trial interleaved."""
        self._waiting.append(_Waiting(number, task, contest))

    def collect(self, ready: Container[object]) -> list[tuple[int, Measurement | Standings]]:
        """What is done or lost; `ready` holds the connections with a reply.

        Raises:
            UnfitTaskError: the workload does not fit on the device.
            TargetUnavailableError: the worker does not start.
        """
        reply = self._worker.poll(ready)
        if reply is None:
            return []
        running, self._running = self._running, None
        match reply, running:
            case Ready() | Lost(), None:
                self._set_up(reply)
                return []
            case Outcome() as outcome, _Waiting(number, task):
                self._finished(task, outcome)
                return [(number, outcome.measurement)]
            case Standings(healthy=healthy) as standings, _Waiting(number):
                if not healthy:
                    self._worker.restart()
                return [(number, standings)]
            case Lost("killed"), _Waiting(number) as interrupted if number not in self._killed:
                self._killed.add(number)
                self._waiting.appendleft(interrupted)
                return []
            case Lost() as lost, _Waiting(number, _, Trial(candidate)):
                facts = candidate.artefact.facts
                return [(number, Measurement(lost.status("measure"), detail=lost.detail, facts=facts))]
            case Lost(how, detail), _Waiting(number, _, Contest()):
                return [(number, Standings((), f"{how}: {detail}"))]
            case _:
                raise AssertionError(f"a measuring worker replied {type(reply).__name__}")

    def start_next(self) -> None:
        """Give the worker what comes next, if it has nothing to do."""
        if not self._worker.available():
            return
        if self._waiting and (self._wanted is None or self._wanted.task != self._waiting[0].task):
            self._wanted = Prepare(self._waiting[0].task, self._wanted.seed if self._wanted else 0)
        if self._wanted is None:
            self._release()
        elif self._prepared != (self._worker.pid, self._wanted):
            self._preparing, self._preparing_since = self._wanted, time.perf_counter()
            self._worker.send(self._wanted, _PREPARE_TIMEOUT_S)
        elif self._waiting:
            self._start(self._waiting.popleft())

    def cancel_waiting(self) -> list[int]:
        """Forget what waits for the worker; the numbers."""
        waiting = [one.number for one in self._waiting]
        self._waiting.clear()
        return waiting

    def give_up(self) -> None:
        """Forget what was submitted; a worker that has begun with it is replaced."""
        self._waiting.clear()
        if self._running is not None:
            self._running = None
            self._worker.restart()

    def close(self) -> None:
        self._worker.close()

    def _set_up(self, reply: Ready | Lost) -> None:
        """What came of `Prepare`, or of `Release`.

        Raises:
            UnfitTaskError: the inputs cannot be set up.
        """
        asked, self._preparing = self._preparing, None
        match reply:
            case Ready(library_s) if asked is not None:
                self._library_s[asked.task] = library_s
                self._prepared = (self._worker.pid, asked)
                self._prepare_s, self._trials_s = time.perf_counter() - self._preparing_since, 0.0
            case Lost(how, detail) if asked is not None:
                if how != "killed" or asked in self._killed_preparing:
                    label = asked.task.workload.label
                    raise UnfitTaskError(f"{label}: the inputs could not be set up ({how}: {detail})")
                self._killed_preparing.add(asked)

    def _release(self) -> None:
        if self._prepared is not None and self._prepared[0] == self._worker.pid:
            self._worker.send(Release(), self._timeout_s)
        self._prepared = None

    def _start(self, waiting: _Waiting) -> None:
        patience_s = max(self._timeout_s, _PERFECT_RUNS_PER_TRIAL * bound_s(waiting.task.workload, self._target))
        match waiting.job:
            case Trial(candidate):
                self._worker.send(Trial(candidate, self._best_s.get(waiting.task)), patience_s)
            case Contest(candidates, rounds, library):
                self._worker.send(waiting.job, patience_s * (len(candidates) + library) * (1 + rounds // 5))
        self._running = waiting

    def _finished(self, task: Task, outcome: Outcome) -> None:
        measurement = outcome.measurement
        self._trials_s += measurement.seconds
        if not outcome.healthy:
            self._worker.restart()
        if measurement.ok:
            self._best_s[task] = min(measurement.undisturbed_s, self._best_s.get(task, math.inf))
