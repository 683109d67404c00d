"""Compiling candidates in several worker processes at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass

from autosched.backends.backend import Artefact
from autosched.measuring.local.fork_server import ForkServer
from autosched.measuring.local.jobs import Candidate, CompileFailure, CompileJob, Setup
from autosched.measuring.local.worker_process import Lost, WorkerProcess
from search_spaces import Schedule
from tuning_logs import Measurement


@dataclass(frozen=True)
class Compiled:
    """What came of compiling schedule `number` of a batch: a candidate, or why there is none."""

    number: int
    result: Candidate | Measurement


class CompilePool:
    """`workers` processes that compile what is submitted, first come first served."""

    def __init__(self, server: ForkServer, setups: Sequence[Setup], timeout_s: float) -> None:
        self._workers = [WorkerProcess(server, setup) for setup in setups]
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[int, CompileJob]] = deque()
        self._jobs: dict[WorkerProcess, tuple[int, CompileJob]] = {}
        # Those whose worker was killed by somebody else get a second try.
        self._killed: set[int] = set()

    @property
    def workers(self) -> Sequence[WorkerProcess]:
        return self._workers

    @property
    def busy(self) -> bool:
        """Whether something submitted is not compiled yet."""
        return bool(self._waiting or self._jobs)

    def submit(self, number: int, schedule: Schedule) -> None:
        self._waiting.append((number, CompileJob(schedule, schedule.program)))

    def step(self, ready: Container[object]) -> list[Compiled]:
        """Collect what is done or lost, then keep the workers busy; `ready` holds the connections with a reply.

        Raises:
            TargetUnavailableError: a worker does not start.
        """
        done = [found for worker in self._workers if (found := self._collect(worker, ready))]
        for worker in self._workers:
            if self._waiting and worker.available():
                number, job = self._waiting.popleft()
                self._jobs[worker] = (number, job)
                worker.send(job, self._timeout_s)
        return done

    def cancel_waiting(self) -> list[int]:
        """Forget what no worker has begun with; the numbers."""
        waiting = [number for number, _ in self._waiting]
        self._waiting.clear()
        return waiting

    def give_up(self) -> None:
        """Forget what was submitted; workers that have begun with it are replaced."""
        self._waiting.clear()
        for worker in self._jobs:
            worker.restart()
        self._jobs.clear()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def _collect(self, worker: WorkerProcess, ready: Container[object]) -> Compiled | None:
        reply = worker.poll(ready)
        if reply is None:
            return None
        number, job = self._jobs.pop(worker)
        match reply:
            case Artefact():
                return Compiled(number, Candidate(reply, job.program))
            case CompileFailure(detail, status):
                return Compiled(number, Measurement(status, detail=detail))
            case Lost("killed") if number not in self._killed:
                self._killed.add(number)
                self._waiting.appendleft((number, job))
                return None
            case Lost() as lost:
                return Compiled(number, Measurement(lost.status("compile"), detail=lost.detail))
            case _:
                raise AssertionError(f"a compile worker replied {type(reply).__name__}")
