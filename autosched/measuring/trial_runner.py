"""Running candidates one after the other in the measuring worker, which is replaced when a candidate breaks it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Container

from autosched.measuring.fork_server import ForkServer
from autosched.measuring.jobs import Candidate, Contest, Outcome, Prepare, Ready, Setup, Standings, Trial
from autosched.measuring.worker_process import Lost, WorkerProcess
from search_spaces import TargetUnavailableError
from tuning_logs import Measurement

# Drawing inputs and evaluating the reference in float64: seconds for the largest workloads on a slow device.
_PREPARE_TIMEOUT_S = 600.0
# Inputs are kept until trials with them have taken this many times longer than setting them up did.
_WORTH = 10.0


class TrialRunner:
    """One measuring worker and what waits for it. `best_s` is the fastest latency that it has seen, `library_s` that of
    the vendor's library with the present inputs.

    What is submitted has a number, and comes back with it: a candidate as its measurement, a contest as its standings.
    """

    def __init__(self, server: ForkServer, setup: Setup, timeout_s: float) -> None:
        self._worker = WorkerProcess(server, setup)
        self._label = setup.workload.label
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[int, Trial | Contest]] = deque()
        self._running: tuple[int, Trial | Contest] | None = None
        self._seed = 0
        # Which process holds inputs drawn from which seed: a replaced process holds none.
        self._prepared: tuple[int | None, int] | None = None
        self._preparing_since = 0.0
        self._prepare_s = 0.0
        self._trials_s = 0.0
        # Those whose worker was killed by somebody else get a second try; and so do the inputs of a seed.
        self._killed: set[int] = set()
        self._killed_preparing: set[int] = set()
        self.best_s: float | None = None
        self.library_s: float | None = None

    @property
    def worker(self) -> WorkerProcess:
        return self._worker

    def prepare(self, seed: int) -> None:
        """Draw fresh inputs for the candidates to come, unless the present ones have hardly been used."""
        if self._prepared is None or self._trials_s >= _WORTH * self._prepare_s:
            self._seed = seed

    def submit(self, number: int, candidate: Candidate) -> None:
        # What is to be beaten is filled in when its turn comes.
        self._waiting.append((number, Trial(candidate, None)))

    def contest(self, number: int, contest: Contest) -> None:
        """Time candidates that came through a trial interleaved."""
        self._waiting.append((number, contest))

    def collect(self, ready: Container[object]) -> list[tuple[int, Measurement | Standings]]:
        """What is done or lost; `ready` holds the connections with a reply.

        Raises:
            TargetUnavailableError: the worker does not start, or the workload does not fit on the device.
        """
        reply = self._worker.poll(ready)
        if reply is None:
            return []
        running, self._running = self._running, None
        match reply, running:
            case Ready(library_s), None:
                self.library_s = library_s
                self._prepared = (self._worker.pid, self._seed)
                self._prepare_s, self._trials_s = time.perf_counter() - self._preparing_since, 0.0
                return []
            case Outcome() as outcome, (number, _):
                self._finished(outcome)
                return [(number, outcome.measurement)]
            case Standings(healthy=healthy) as standings, (number, _):
                if not healthy:
                    self._worker.restart()
                return [(number, standings)]
            case Lost("killed"), (number, job) if number not in self._killed:
                self._killed.add(number)
                self._waiting.appendleft((number, job))
                return []
            case Lost() as lost, (number, Trial(candidate)):
                facts = candidate.artefact.facts
                return [(number, Measurement(lost.status("measure"), detail=lost.detail, facts=facts))]
            case Lost(how, detail), (number, Contest()):
                return [(number, Standings((), f"{how}: {detail}"))]
            case Lost("killed"), None if self._seed not in self._killed_preparing:
                self._killed_preparing.add(self._seed)
                return []
            case Lost(how, detail), None:
                raise TargetUnavailableError(f"{self._label}: the inputs could not be set up ({how}: {detail})")
            case _:
                raise AssertionError(f"a measuring worker replied {type(reply).__name__}")

    def start_next(self) -> None:
        """Give the worker what comes next, if it has nothing to do."""
        if not self._worker.available():
            return
        if not self._is_prepared:
            self._preparing_since = time.perf_counter()
            self._worker.send(Prepare(self._seed), _PREPARE_TIMEOUT_S)
        elif self._waiting:
            self._start(*self._waiting.popleft())

    def cancel_waiting(self) -> list[int]:
        """Forget what waits for the worker; the numbers."""
        waiting = [number for number, _ in self._waiting]
        self._waiting.clear()
        return waiting

    def close(self) -> None:
        self._worker.close()

    @property
    def _is_prepared(self) -> bool:
        return self._prepared == (self._worker.pid, self._seed)

    def _start(self, number: int, job: Trial | Contest) -> None:
        match job:
            case Trial(candidate):
                job, timeout_s = Trial(candidate, self.best_s), self._timeout_s
            case Contest(candidates, rounds):
                timeout_s = self._timeout_s * (len(candidates) + job.library) * (1 + rounds // 5)
        self._running = number, job
        self._worker.send(job, timeout_s)

    def _finished(self, outcome: Outcome) -> None:
        measurement = outcome.measurement
        self._trials_s += measurement.seconds
        if not outcome.healthy:
            self._worker.restart()
        if measurement.ok:
            self.best_s = min(measurement.undisturbed_s, self.best_s or measurement.undisturbed_s)
