"""Running candidates one after the other in the measuring worker, which is replaced when a candidate breaks it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Container, Sequence

from autosched.measuring.fork_server import ForkServer
from autosched.measuring.jobs import Candidate, Contest, Outcome, Prepare, Ready, Setup, Standings, Trial
from autosched.measuring.worker_process import Loss, Lost, WorkerProcess, wait_for
from search_spaces import TargetUnavailableError
from tuning_logs import Measurement, Status

_STATUS: dict[Loss, Status] = {"timeout": "run_timeout", "crash": "run_crash"}

# Drawing inputs and evaluating the reference in float64: seconds for the largest workloads on a slow device.
_PREPARE_TIMEOUT_S = 600.0
# Inputs are kept until trials with them have taken this many times longer than setting them up did.
_WORTH = 10.0


class TrialRunner:
    """One measuring worker and the candidates that wait for it. `best_s` is the fastest that it has seen."""

    def __init__(self, server: ForkServer, setup: Setup, timeout_s: float) -> None:
        self._worker = WorkerProcess(server, setup)
        self._label = setup.workload.label
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[int, Candidate]] = deque()
        self._running: tuple[int, Candidate] | None = None
        self._seed = 0
        # Which process holds inputs drawn from which seed: a replaced process holds none.
        self._prepared: tuple[int | None, int] | None = None
        self._preparing_since = 0.0
        self._prepare_s = 0.0
        self._trials_s = 0.0
        self.best_s: float | None = None
        self.check_s = 0.0
        self.timing_s = 0.0

    @property
    def worker(self) -> WorkerProcess:
        return self._worker

    def prepare(self, seed: int) -> None:
        """Draw fresh inputs for the candidates to come, unless the present ones have hardly been used."""
        if self._prepared is None or self._trials_s >= _WORTH * self._prepare_s:
            self._seed = seed

    def submit(self, number: int, candidate: Candidate) -> None:
        self._waiting.append((number, candidate))

    def step(self, ready: Container[object]) -> list[tuple[int, Measurement]]:
        """Collect what is done or lost, then keep the worker busy; `ready` holds the connections with a reply.

        Raises:
            TargetUnavailableError: the worker does not start, or the workload does not fit on the device.
        """
        done = self._collect(ready)
        if self._worker.available():
            if not self._is_prepared:
                self._preparing_since = time.perf_counter()
                self._worker.send(Prepare(self._seed), _PREPARE_TIMEOUT_S)
            elif self._waiting:
                self._running = self._waiting.popleft()
                self._worker.send(Trial(self._running[1], self.best_s), self._timeout_s)
        return done

    def contest(self, candidates: Sequence[Candidate], rounds: int) -> Standings:
        """Time candidates that came through a trial interleaved; no latencies when one of them fails after all."""
        if not candidates:
            return Standings(())
        while not (self._is_prepared and self._worker.available()):
            self.step(wait_for([self._worker]))
        self._worker.send(Contest(tuple(candidates), rounds), self._timeout_s * len(candidates) * (1 + rounds // 5))
        while (reply := self._worker.poll(wait_for([self._worker]))) is None:
            pass
        match reply:
            case Standings():
                if not reply.healthy:
                    self._worker.restart()
                return reply
            case Lost(how, detail):
                return Standings((), f"{how}: {detail}")
            case _:
                raise AssertionError(f"a contest was answered with {type(reply).__name__}")

    def cancel(self) -> None:
        """Forget the candidates that wait, and stop the one that runs."""
        self._waiting.clear()
        if self._running is not None:
            self._running = None
            self._worker.restart()

    def close(self) -> None:
        self._worker.close()

    @property
    def _is_prepared(self) -> bool:
        return self._prepared == (self._worker.pid, self._seed)

    def _collect(self, ready: Container[object]) -> list[tuple[int, Measurement]]:
        match self._worker.poll(ready):
            case None:
                return []
            case Ready():
                self._prepared = (self._worker.pid, self._seed)
                self._prepare_s, self._trials_s = time.perf_counter() - self._preparing_since, 0.0
                return []
            case Outcome() as outcome:
                return [self._finish(outcome.measurement, outcome)]
            case Lost(how, detail) if self._running is not None:
                facts = self._running[1].artefact.facts
                return [self._finish(Measurement(_STATUS[how], detail=detail, facts=facts))]
            case Lost(how, detail):
                raise TargetUnavailableError(f"{self._label}: the inputs could not be set up ({how}: {detail})")
            case reply:
                raise AssertionError(f"a measuring worker replied {type(reply).__name__}")

    def _finish(self, measurement: Measurement, outcome: Outcome | None = None) -> tuple[int, Measurement]:
        assert self._running is not None
        number, self._running = self._running[0], None
        if outcome is not None:
            self.timing_s += outcome.timing_s
            self.check_s += measurement.seconds - outcome.timing_s
            self._trials_s += measurement.seconds
            if not outcome.healthy:
                self._worker.restart()
        if measurement.ok:
            self.best_s = min(measurement.undisturbed_s, self.best_s or measurement.undisturbed_s)
        return number, measurement
