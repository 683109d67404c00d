"""Compilation for cards of other nodes: a pool of compile workers, driven by a thread; no device is touched."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection

from autosched.backends.backend import Artefact
from autosched.measuring.local.compile_pool import CompilePool
from autosched.measuring.local.fork_server import shared_server
from autosched.measuring.local.jobs import Task, Trial
from autosched.measuring.local.worker_process import wait_for
from autosched.measuring.worker_setups import DEFAULT_BACKEND, TrialLimits, compile_setups
from search_spaces import Schedule, Target, Workload
from tuning_logs import Measurement


class CompileService:
    """Compiles bound schedules for a target in processes that may crash, as a `LocalMeasurer` does."""

    def __init__(self, target: Target, limits: TrialLimits, backend: str = DEFAULT_BACKEND) -> None:
        self._pool = CompilePool(shared_server(), compile_setups(target, limits, backend), limits.compile_timeout_s)
        self._futures: dict[Trial, Future[Artefact | Measurement]] = {}
        # Guards both of them.
        self._lock = threading.Lock()
        self._broken: Exception | None = None
        self._woken: Connection[None, None]
        self._wake: Connection[None, None]
        self._woken, self._wake = multiprocessing.Pipe(duplex=False)
        threading.Thread(target=self._drive, name="autosched-compile-service", daemon=True).start()

    def submit(self, workload: Workload, schedule: Schedule) -> Future[Artefact | Measurement]:
        """The artefact of the schedule, or its failure.

        Raises:
            TargetUnavailableError: the worker processes do not start; earlier futures raise it, too.
        """
        # How it will be timed makes no difference to its code.
        trial = Trial(Task(workload, "cold"), schedule, schedule.program)
        with self._lock:
            if self._broken is not None:
                raise self._broken
            self._futures[trial] = future = Future[Artefact | Measurement]()
            self._pool.submit(trial)
            self._wake.send(None)
        return future

    def _drive(self) -> None:
        ready: list[object] = []
        while True:
            try:
                self._step(ready)
                ready = wait_for(self._pool.workers, self._woken)
            except Exception as error:
                with self._lock:
                    self._broken, left = error, list(self._futures.values())
                for future in left:
                    future.set_exception(error)
                return
            while self._woken.poll():
                self._woken.recv()

    def _step(self, ready: Sequence[object]) -> None:
        with self._lock:
            done = [(self._futures.pop(trial), trial) for trial in self._pool.step(ready)]
        for future, trial in done:
            future.set_result(trial.measurement or trial.compiled)
