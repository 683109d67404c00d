"""Pool of compile workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence

from autosched.backends.backend import Artefact
from autosched.measuring.local.fork_server import ForkServer
from autosched.measuring.local.jobs import Setup, Trial
from autosched.measuring.local.worker_process import Lost, WorkerProcess
from tuning_logs import Measurement


class CompilePool:
    """Worker processes that compile submitted trials, first come first served."""

    def __init__(self, server: ForkServer, setups: Sequence[Setup], timeout_s: float) -> None:
        self._workers = [WorkerProcess(server, setup) for setup in setups]
        self._timeout_s = timeout_s
        self._waiting: deque[Trial] = deque()
        self._compiling: dict[WorkerProcess, Trial] = {}

    @property
    def workers(self) -> Sequence[WorkerProcess]:
        return self._workers

    @property
    def busy(self) -> bool:
        """True while a submitted trial is not compiled yet."""
        return bool(self._waiting or self._compiling)

    def submit(self, trial: Trial) -> None:
        self._waiting.append(trial)

    def step(self, ready: Container[object]) -> list[Trial]:
        """Collect trials that are done or lost, then keep the workers busy; `ready`: the connections with a reply.

        Each trial returned has its artefact now, or else a measurement with its failure.

        Raises:
            TargetUnavailableError: a worker does not start.
        """
        done = [trial for worker in self._workers if (trial := self._collect(worker, ready))]
        for worker in self._workers:
            if self._waiting and worker.available():
                self._compiling[worker] = trial = self._waiting.popleft()
                worker.send(trial, self._timeout_s)
        return done

    def cancel_waiting(self) -> list[Trial]:
        """Remove and return the trials that no worker has begun."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def give_up(self) -> None:
        """Drop all trials; workers that are compiling are replaced."""
        self._waiting.clear()
        for worker in self._compiling:
            worker.restart()
        self._compiling.clear()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def _collect(self, worker: WorkerProcess, ready: Container[object]) -> Trial | None:
        reply = worker.poll(ready)
        if reply is None:
            return None
        trial = self._compiling.pop(worker)
        match reply:
            case Artefact():
                trial.artefact, trial.killed = reply, False
            case Measurement():
                trial.measurement = reply
            case Lost("killed") if not trial.killed:
                trial.killed = True
                self._waiting.appendleft(trial)
                return None
            case Lost() as lost:
                trial.measurement = Measurement(lost.status("compile"), detail=lost.detail)
            case _:
                raise AssertionError(f"a compile worker replied {type(reply).__name__}")
        return trial
