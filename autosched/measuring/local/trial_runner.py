"""Queue of the measuring worker, which runs candidates one at a time and is replaced when one breaks it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Container

from autosched.backends.backend import Artefact
from autosched.measuring.local.fork_server import ForkServer
from autosched.measuring.local.jobs import (
    Contest,
    Examination,
    Outcome,
    Prepare,
    Ready,
    Release,
    Setup,
    Standings,
    Task,
    TaskJob,
    Trial,
)
from autosched.measuring.local.worker_process import Lost, WorkerProcess
from autosched.measuring.measurer import UnfitWorkloadError
from cost_models import bound_s
from search_spaces import Workload
from tuning_logs import Measurement
from tuning_logs.certificate import Results

# Time to draw inputs and evaluate the reference in float64: seconds for the largest workloads on a slow device.
_PREPARE_TIMEOUT_S = 600.0
# Inputs are reused until their trials have taken this many times longer than their preparation.
_WORTH = 10.0
# A trial is a load, a check and a handful of repeats. One that takes as long as this many runs at the roofline is
# hopeless.
_PERFECT_RUNS_PER_TRIAL = 100


# Result of a trial, of its compilation alone, of a contest, or of an examination.
Result = Measurement | Artefact | Standings | Results | UnfitWorkloadError


class TrialRunner:
    """One measuring worker and its queue, of several tasks.

    A trial returns its measurement, a contest its standings, an examination its results or a failure. Jobs of the
    prepared task come first: the memory of two may not fit. A trial may take `timeout_s`, or longer where a hundred
    runs at the roofline do.
    """

    def __init__(self, server: ForkServer, setup: Setup, timeout_s: float) -> None:
        self._worker = WorkerProcess(server, setup)
        self._target = setup.target
        self._timeout_s = timeout_s
        self._waiting: deque[TaskJob] = deque()
        self._running: TaskJob | None = None
        # The wanted inputs of every task; the prepared ones with the process that has them: a new process has none.
        self._wanted: dict[Task, Prepare] = {}
        self._prepared: tuple[int | None, Prepare] | None = None
        self._preparing: Prepare | None = None
        self._preparing_since = 0.0
        self._prepare_s = 0.0
        self._trials_s = 0.0
        # Preparations whose worker something else killed: they get a second try.
        self._killed_preparing: set[Prepare] = set()
        # Tasks whose inputs could not be prepared, until more of them is submitted.
        self._unfit: dict[Task, UnfitWorkloadError] = {}
        # The best latency of a task so far, and that of the vendor's library.
        self._best_s: dict[Task, float] = {}
        self._library_s: dict[Task, float | None] = {}

    @property
    def worker(self) -> WorkerProcess:
        return self._worker

    def library_s(self, workload: Workload) -> float | None:
        """Latency of the vendor's library on the inputs last drawn; None while it is unknown."""
        return next((taken for task, taken in self._library_s.items() if task.workload == workload), None)

    def prepare(self, task: Task, seed: int) -> None:
        """Draw fresh inputs for the next candidates, unless the present ones of the task have hardly been used."""
        self._unfit.pop(task, None)
        present = self._prepared is not None and self._prepared[1] == self._wanted.get(task)
        if not present or self._trials_s >= _WORTH * self._prepare_s:
            self._wanted[task] = Prepare(task, seed)

    def forget(self) -> None:
        """Free the memory of the task, and drop the latencies of all."""
        self._wanted.clear()
        self._unfit.clear()
        self._best_s.clear()
        self._library_s.clear()

    def submit(self, job: TaskJob) -> None:
        self._waiting.append(job)

    def collect(self, ready: Container[object]) -> list[tuple[TaskJob, Result]]:
        """Results of jobs that are done, lost, or impossible; `ready`: the connections with a reply.

        Raises:
            TargetUnavailableError: the worker does not start.
        """
        return [*self._replied(ready), *self._refused()]

    def _refused(self) -> list[tuple[TaskJob, UnfitWorkloadError]]:
        """Jobs that wait for inputs that cannot be prepared, with the reason."""
        refused = [(one, self._unfit[one.task]) for one in self._waiting if one.task in self._unfit]
        if refused:
            self._waiting = deque(one for one in self._waiting if one.task not in self._unfit)
        return refused

    def _replied(self, ready: Container[object]) -> list[tuple[TaskJob, Result]]:
        reply = self._worker.poll(ready)
        if reply is None:
            return []
        running, self._running = self._running, None
        match reply, running:
            case Ready() | Lost(), None:
                self._set_up(reply)
                return []
            case Outcome() as outcome, Trial():
                self._finished(running.task, outcome)
                return [(running, outcome.measurement)]
            case Outcome(measurement, healthy), Examination():
                if not healthy:
                    self._worker.restart()
                return [(running, measurement)]
            case Results() as results, Examination():
                return [(running, results)]
            case Standings(healthy=healthy) as standings, Contest():
                if not healthy:
                    self._worker.restart()
                return [(running, standings)]
            case Lost("killed"), Trial() | Contest() | Examination() if not running.killed:
                running.killed = True
                self._waiting.appendleft(running)
                return []
            case Lost() as lost, Trial():
                facts = running.compiled.facts
                return [(running, Measurement(lost.status("measure"), detail=lost.detail, facts=facts))]
            case Lost() as lost, Examination():
                return [(running, Measurement(lost.status("measure"), detail=lost.detail))]
            case Lost(how, detail), Contest():
                return [(running, Standings((), f"{how}: {detail}"))]
            case _:
                raise AssertionError(f"a measuring worker replied {type(reply).__name__}")

    def start_next(self, ahead: Task | None) -> None:
        """Give an idle worker the next job; if none waits, the inputs of task `ahead`."""
        if not self._worker.available():
            return
        task = self._next_task(ahead)
        if not self._wanted:
            self._release()
        elif task is None:
            return
        elif self._prepared != (self._worker.pid, self._wanted[task]):
            self._preparing, self._preparing_since = self._wanted[task], time.perf_counter()
            self._worker.send(self._preparing, _PREPARE_TIMEOUT_S)
        elif one := next((one for one in self._waiting if one.task == task), None):
            self._waiting.remove(one)
            self._start(one)

    def _next_task(self, ahead: Task | None) -> Task | None:
        """The prepared task while any job of it waits; else that of the oldest waiting job, or `ahead`."""
        waiting = dict.fromkeys(one.task for one in self._waiting)
        if self._prepared is not None and self._prepared[1].task in waiting:
            return self._prepared[1].task
        return next(iter(waiting), None if ahead in self._unfit else ahead)

    def cancel_waiting(self) -> list[TaskJob]:
        """Remove and return the jobs that wait for the worker."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def give_up(self) -> None:
        """Drop all jobs; a worker that has begun one is replaced."""
        self._waiting.clear()
        if self._running is not None:
            self._running = None
            self._worker.restart()

    def close(self) -> None:
        self._worker.close()

    def _set_up(self, reply: Ready | Lost) -> None:
        """Record the answer to `Prepare`, or to `Release`."""
        asked, self._preparing = self._preparing, None
        match reply:
            case Ready(library_s) if asked is not None:
                self._library_s[asked.task] = library_s
                self._prepared = (self._worker.pid, asked)
                self._prepare_s, self._trials_s = time.perf_counter() - self._preparing_since, 0.0
            case Lost(how, detail) if asked is not None:
                if how != "killed" or asked in self._killed_preparing:
                    label = asked.task.workload.label
                    why = f"{label}: the inputs could not be set up ({how}: {detail})"
                    self._unfit[asked.task] = UnfitWorkloadError(why)
                self._killed_preparing.add(asked)

    def _release(self) -> None:
        if self._prepared is not None and self._prepared[0] == self._worker.pid:
            self._worker.send(Release(), self._timeout_s)
        self._prepared = None

    def _start(self, job: TaskJob) -> None:
        patience_s = max(self._timeout_s, _PERFECT_RUNS_PER_TRIAL * bound_s(job.task.workload, self._target))
        if isinstance(job, Trial):
            job.best_s = self._best_s.get(job.task)
        elif isinstance(job, Contest):
            patience_s *= (len(job.trials) + job.library) * (1 + job.rounds // 5)
        self._worker.send(job, patience_s)
        self._running = job

    def _finished(self, task: Task, outcome: Outcome) -> None:
        measurement = outcome.measurement
        self._trials_s += measurement.seconds
        if not outcome.healthy:
            self._worker.restart()
        if measurement.ok:
            self._best_s[task] = min(measurement.undisturbed_s, self._best_s.get(task, math.inf))
