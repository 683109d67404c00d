"""Pipeline of trials: compile pool, pruning by compile facts, deduplication of binaries, measuring worker.

    submit ─ compile pool ─ compile facts ─ same binary? ─ measuring worker ─ measurement
                      │              │               │                │
            compile_error…     pruned      timing "shared"   load_error, wrong_result, …

One thread drives it: it calls `step` whenever a worker has replied or something was submitted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from typing import Any

from autosched.backends.backend import Artefact
from autosched.measuring.local.compile_pool import CompilePool
from autosched.measuring.local.jobs import Contest, Examination, Standings, Task, TaskJob, Trial
from autosched.measuring.local.trial_runner import Result, TrialRunner
from autosched.measuring.local.worker_process import WorkerProcess
from search_spaces import Schedule, Target
from tuning_logs import CompileFacts, DeviceState, Measurement
from tuning_logs.certificate import Results

# A kibibyte of spills per thread is more than its at most 255 registers: its accumulators live in local memory, and
# tiling them is pointless.
_MOST_SPILLED_BYTES = 1024
# A trial during clock throttling by heat is repeated so often; then it stands, with the device's state in its record.
_THERMAL_REPEATS = 2
# Trials kept of every task with their artefacts, some 100 KB each: twice as many as compete in finals.
_MOST_KEPT = 32


class TrialPipeline:
    """Submitted trials and contests without a result yet. Results come in the order in which they are ready.

    On a CPU nothing is timed while something compiles. `device_state` reads clocks and temperature of the device.
    """

    def __init__(
        self,
        target: Target,
        pool: CompilePool,
        runner: TrialRunner,
        device_state: Callable[[], DeviceState | None],
    ) -> None:
        self._target = target
        self._pool = pool
        self._runner = runner
        self._time_alone = target.kind == "cpu"
        self._device_state = device_state
        # Futures of all open jobs; compiled trials that go to the measuring worker next.
        self._futures: dict[TaskJob, Future[Any]] = {}
        self._held: list[Trial] = []
        # Trials that were compiled elsewhere.
        self._brought: list[Trial] = []
        # The fastest successful trials, which finals need not compile again.
        self._fastest: dict[Task, dict[Schedule, Trial]] = {}
        # Results by binary; while a binary is being timed, the trials that wait for its result.
        self._measured: dict[tuple[Task, str], Measurement] = {}
        self._twins: dict[tuple[Task, str], list[Trial]] = {}

    @property
    def workers(self) -> Sequence[WorkerProcess]:
        """The measuring worker, then the compile workers."""
        return self._runner.worker, *self._pool.workers

    def submit(self, trial: Trial) -> Future[Measurement]:
        """Compile, check and time a candidate; one with an artefact was compiled elsewhere."""
        self._futures[trial] = future = Future[Measurement]()
        known = self._fastest.get(trial.task, {}).get(trial.schedule) if trial.afresh else None
        if known is not None:
            trial.artefact = known.artefact
            self._held.append(trial)
        elif trial.artefact is not None:
            self._brought.append(trial)
        else:
            self._pool.submit(trial)
        return future

    def compile(self, trial: Trial) -> Future[Artefact | Measurement]:
        """Compile a candidate, and no more: its artefact, or the failure."""
        trial.compile_only = True
        self._futures[trial] = future = Future[Artefact | Measurement]()
        self._pool.submit(trial)
        return future

    def contest(self, contest: Contest) -> Future[Standings]:
        """Time candidates that passed their trials in interleaved rounds."""
        self._futures[contest] = future = Future[Standings]()
        self._runner.submit(contest)
        return future

    def examine(self, examination: Examination) -> Future[Results | Measurement]:
        """Check a candidate that passed its trial once more."""
        self._futures[examination] = future = Future[Results | Measurement]()
        self._runner.submit(examination)
        return future

    def forget(self) -> None:
        """Drop the results and the memory of earlier candidates: later ones do not share them."""
        self._measured.clear()
        self._fastest.clear()
        self._runner.forget()

    def cancel_waiting(self) -> list[Future[Any]]:
        """Drop jobs that no worker has begun to compile or to run; returns their futures."""
        waiting = [*self._held, *(trial for twins in self._twins.values() for trial in twins)]
        given_up = [*waiting, *self._brought, *self._pool.cancel_waiting(), *self._runner.cancel_waiting()]
        self._held.clear()
        self._brought.clear()
        futures = [self._futures.pop(job) for job in given_up]
        # No trial may wait for the result of a dropped binary.
        running = (job for job in self._futures if isinstance(job, Trial) and job.artefact and not job.afresh)
        self._twins = {trial.binary: [] for trial in running}
        return futures

    def give_up(self) -> list[Future[Any]]:
        """Drop all jobs; busy workers are replaced. Returns the futures."""
        if self._futures:
            self._pool.give_up()
            self._runner.give_up()
        return self.drop()

    def drop(self) -> list[Future[Any]]:
        """The futures of all open jobs, which nobody will set: the workers are gone, or broken."""
        dropped = list(self._futures.values())
        for open_ones in (self._futures, self._held, self._brought, self._twins):
            open_ones.clear()
        return dropped

    def step(self, ready: Container[object]) -> list[tuple[Future[Any], Result]]:
        """Advance all jobs; returns the results. `ready`: the connections with a reply.

        Raises:
            TargetUnavailableError: a worker does not start.
        """
        done: list[tuple[TaskJob, Result]] = []
        brought, self._brought = self._brought, []
        for trial in (*self._pool.step(ready), *brought):
            done += self._compiled(trial)
        for job, result in self._runner.collect(ready):
            if isinstance(job, Trial):
                done += self._ran(job, result) if isinstance(result, Measurement) else self._gone(job, result)
            else:
                done.append((job, result))
        came_out = [(self._futures.pop(job), result) for job, result in done]
        # The preparation of inputs times the vendor's library.
        if not (self._time_alone and self._pool.busy):
            for trial in self._held:
                self._runner.submit(trial)
            self._held.clear()
            oldest = next((job for job in self._futures if not (isinstance(job, Trial) and job.compile_only)), None)
            self._runner.start_next(oldest.task if oldest else None)
        return came_out

    def _gone(self, trial: Trial, result: Result) -> list[tuple[Trial, Result]]:
        """The result of a trial that cannot run; others with its binary run themselves."""
        if not trial.afresh:
            self._held += self._twins.pop(trial.binary, [])
        return [(trial, result)]

    def _compiled(self, trial: Trial) -> list[tuple[TaskJob, Result]]:
        if trial.measurement is not None:
            return [(trial, trial.measurement)]
        if trial.compile_only:
            return [(trial, trial.compiled)]
        facts = trial.compiled.facts
        if trial.afresh:
            self._held.append(trial)
        elif reason := why_hopeless(facts, self._target):
            return [(trial, Measurement("pruned", detail=reason, facts=facts))]
        elif trial.binary in self._measured:
            return [(trial, _shared(self._measured[trial.binary], trial))]
        elif trial.binary in self._twins:
            self._twins[trial.binary].append(trial)
        else:
            self._twins[trial.binary] = []
            self._held.append(trial)
        return []

    def _ran(self, trial: Trial, measurement: Measurement) -> list[tuple[Trial, Measurement]]:
        state = self._device_state()
        if measurement.ok and state is not None and state.thermal and trial.thermal_repeats < _THERMAL_REPEATS:
            trial.thermal_repeats += 1
            self._held.append(trial)
            return []
        trial.measurement = measurement = dataclasses.replace(measurement, device=state)
        if measurement.ok:
            self._keep(trial)
        return [(trial, measurement), *([] if trial.afresh else self._share(trial, measurement))]

    def _keep(self, trial: Trial) -> None:
        fastest = self._fastest.setdefault(trial.task, {})
        fastest[trial.schedule] = trial
        if len(fastest) > _MOST_KEPT:
            del fastest[max(fastest, key=lambda schedule: _undisturbed_s(fastest[schedule]))]

    def _share(self, trial: Trial, measurement: Measurement) -> list[tuple[Trial, Measurement]]:
        """Results of the trials that waited for this binary; a failure is not shared, they run themselves."""
        twins = self._twins.pop(trial.binary, [])
        if measurement.ok:
            self._measured[trial.binary] = measurement
            return [(twin, _shared(measurement, twin)) for twin in twins]
        self._held += twins
        return []


def why_hopeless(facts: CompileFacts, target: Target) -> str | None:
    """Reason, from its compile facts, not to run a binary; None if there is none."""
    if target.kind != "gpu":
        return None
    shared, spilled = facts.shared_memory_bytes or 0, facts.spill_bytes or 0
    if shared > target.shared_memory_bytes:
        return f"needs {shared} bytes of shared memory, {target.name} has {target.shared_memory_bytes}"
    if spilled > _MOST_SPILLED_BYTES:
        return f"spills {spilled} bytes per thread, more than its registers hold ({_MOST_SPILLED_BYTES})"
    return None


def _shared(measurement: Measurement, trial: Trial) -> Measurement:
    """The measurement of the same binary, for a candidate that was compiled later."""
    return dataclasses.replace(measurement, timing="shared", seconds=0.0, facts=trial.compiled.facts)


def _undisturbed_s(trial: Trial) -> float:
    assert trial.measurement is not None
    return trial.measurement.undisturbed_s
