"""Running candidates one after the other in the measuring worker, which is replaced when a candidate breaks it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Container

from autosched.measuring.local.fork_server import ForkServer
from autosched.measuring.local.jobs import Contest, Outcome, Prepare, Ready, Release, Setup, Standings, Task, Trial
from autosched.measuring.local.worker_process import Lost, WorkerProcess
from autosched.measuring.measurer import UnfitWorkloadError
from cost_models import bound_s
from search_spaces import Workload
from tuning_logs import Measurement

# Drawing inputs and evaluating the reference in float64: seconds for the largest workloads on a slow device.
_PREPARE_TIMEOUT_S = 600.0
# Inputs are kept until trials with them have taken this many times longer than setting them up did.
_WORTH = 10.0
# A trial is a load, a check and a handful of repeats. One that takes as long as this many perfect runs is hopeless.
_PERFECT_RUNS_PER_TRIAL = 100


# What comes of a trial or a contest.
Result = Measurement | Standings | UnfitWorkloadError


class TrialRunner:
    """One measuring worker and what waits for it, of several tasks.

    A trial comes back with its measurement, a contest with its standings. What waits of the task whose inputs are set
    up comes first: the memory of two may not fit. A trial may take `timeout_s`, or longer where a hundred perfect runs
    do.
    """

    def __init__(self, server: ForkServer, setup: Setup, timeout_s: float) -> None:
        self._worker = WorkerProcess(server, setup)
        self._target = setup.target
        self._timeout_s = timeout_s
        self._waiting: deque[Trial | Contest] = deque()
        self._running: Trial | Contest | None = None
        # The inputs of every task; and which process holds which: one that was replaced holds none.
        self._wanted: dict[Task, Prepare] = {}
        self._prepared: tuple[int | None, Prepare] | None = None
        self._preparing: Prepare | None = None
        self._preparing_since = 0.0
        self._prepare_s = 0.0
        self._trials_s = 0.0
        # Those whose worker was killed by somebody else while it set them up: they get a second try.
        self._killed_preparing: set[Prepare] = set()
        # Tasks whose inputs could not be set up, until more of them is submitted.
        self._unfit: dict[Task, UnfitWorkloadError] = {}
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
        self._unfit.pop(task, None)
        present = self._prepared is not None and self._prepared[1] == self._wanted.get(task)
        if not present or self._trials_s >= _WORTH * self._prepare_s:
            self._wanted[task] = Prepare(task, seed)

    def forget(self) -> None:
        """Have the memory of the task given back, and forget what was seen of any."""
        self._wanted.clear()
        self._unfit.clear()
        self._best_s.clear()
        self._library_s.clear()

    def submit(self, job: Trial | Contest) -> None:
        self._waiting.append(job)

    def collect(self, ready: Container[object]) -> list[tuple[Trial | Contest, Result]]:
        """What is done or lost, or cannot be done; `ready` holds the connections with a reply.

        Raises:
            TargetUnavailableError: the worker does not start.
        """
        return [*self._replied(ready), *self._refused()]

    def _refused(self) -> list[tuple[Trial | Contest, UnfitWorkloadError]]:
        """What waits for inputs that cannot be set up, with why."""
        refused = [(one, self._unfit[one.task]) for one in self._waiting if one.task in self._unfit]
        if refused:
            self._waiting = deque(one for one in self._waiting if one.task not in self._unfit)
        return refused

    def _replied(self, ready: Container[object]) -> list[tuple[Trial | Contest, Measurement | Standings]]:
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
            case Standings(healthy=healthy) as standings, Contest():
                if not healthy:
                    self._worker.restart()
                return [(running, standings)]
            case Lost("killed"), Trial() | Contest() if not running.killed:
                running.killed = True
                self._waiting.appendleft(running)
                return []
            case Lost() as lost, Trial():
                facts = running.compiled.facts
                return [(running, Measurement(lost.status("measure"), detail=lost.detail, facts=facts))]
            case Lost(how, detail), Contest():
                return [(running, Standings((), f"{how}: {detail}"))]
            case _:
                raise AssertionError(f"a measuring worker replied {type(reply).__name__}")

    def start_next(self, ahead: Task | None) -> None:
        """Give the worker what comes next, if it has nothing to do; where nothing waits, the inputs of task `ahead`."""
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
        """The task that is prepared, while something of it waits; or else that which waits longest, or is to come."""
        waiting = dict.fromkeys(one.task for one in self._waiting)
        if self._prepared is not None and self._prepared[1].task in waiting:
            return self._prepared[1].task
        return next(iter(waiting), None if ahead in self._unfit else ahead)

    def cancel_waiting(self) -> list[Trial | Contest]:
        """Forget what waits for the worker, and return it."""
        waiting = list(self._waiting)
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
        """What came of `Prepare`, or of `Release`."""
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

    def _start(self, job: Trial | Contest) -> None:
        patience_s = max(self._timeout_s, _PERFECT_RUNS_PER_TRIAL * bound_s(job.task.workload, self._target))
        if isinstance(job, Trial):
            job.best_s = self._best_s.get(job.task)
        else:
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
