"""The search for the fastest configuration of one call: its strategy, and the measurer that launches it here."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import replace

from autosched.machine.blas_threads import one_meanwhile
from autosched.measuring import LostTrialError
from autosched.strategies.bayesian.plain import InBatches, plain_search
from autosched.strategies.bayesian.points import PointStrategy, point_of
from autosched.tuning.autotune.configurations import BACKEND, Configuration
from autosched.tuning.autotune.kernel_records import POLICY, histories, told_elsewhere
from autosched.tuning.autotune.task import TuningTask
from autosched.tuning.autotune.trials.launching import wait_for_most
from autosched.tuning.autotune.trials.trials import LostDeviceError, Trials, Tried
from autosched.tuning.searching.interruption import Interruption
from autosched.tuning.searching.loop import Alone, Loop
from autosched.tuning.searching.parts import Finalists
from autosched.tuning.searching.search import SearchOf
from autosched.tuning.searching.sources import Sources
from search_spaces import AutoschedError, Schedule
from search_spaces.errors import OutOfMemoryError
from search_spaces.schedules.plain_space import Point
from tuning_logs import Measurement, OwnKernel, Provenance, TuningRecord, Versions

# Configurations proposed, and compiled, at once: one at a time would be chosen a little better, and leave all
# processors but one idle.
_CORES = os.cpu_count() or 1
_AT_ONCE = min(8, _CORES)
# Least time for compilers that are slower than the others, when nothing else can be tried; and time for all while none
# has ended, so that nothing is known of the others.
_PATIENCE_S = 5.0
_FIRST_PATIENCE_S = 60.0
# Configurations measured again in interleaved rounds before one is called best, without those so much slower.
_FINALISTS = Finalists(most=5, least=1, hopeless=1.2)


class NoneWorksError(AutoschedError):
    """Every configuration was tried, and failed for a reason that will persist."""


def search(task: TuningTask, trials: Trials) -> Point:
    """The best configuration, by trials of one call.

    Raises:
        NoneWorksError: none of them works.
        OutOfMemoryError: none does, and some for the lack of memory.
        LostDeviceError: one broke the device.
    """
    with one_meanwhile():
        elsewhere = task.records.elsewhere(task.kernel, task.target, task.space)
        known = [*histories(elsewhere, task.space), *told_elsewhere(task.tables, task.space)]
        points = InBatches(plain_search(task.space, task.seed, known), _CORES)
    strategy = PointStrategy(task.space, points, BACKEND)
    measurer, interruption = KernelMeasurer(task, trials), Interruption()
    provenance = Provenance(task.kernel.fingerprint, POLICY, 0.0, task.seed, 0)
    cold = Sources(cold=True)
    one = SearchOf(
        task, strategy, task.records, provenance, task.wanted, task.known, sources=cold, finalists=_FINALISTS
    )
    Loop(measurer, interruption, Alone(one)).run()
    one.finish(measurer, interruption)
    measurer.check_device()
    if one.best is None or (found := point_of(task.space, one.best.schedule)) is None:
        raise _none_works(task, [*one.trials])
    return found


class KernelMeasurer:
    """Launches a user's kernel in this process, on the arguments of the tuned call, and returns when it has ended.

    A configuration whose compiler has not ended when the others were tried is lost, and submitted again; alone it is
    waited for, and then given up.
    """

    def __init__(self, task: TuningTask, trials: Trials) -> None:
        self._task, self._trials = task, trials
        self._begin = time.perf_counter()
        # Results of configurations that were tried, and the answers given for them.
        self._tried: dict[Schedule, Tried] = {}
        self._told: dict[Schedule, Measurement] = {}
        # Submitted, and not tried yet.
        self._compiling: dict[Schedule, Future[object]] = {}
        self._broken: LostDeviceError | None = None

    @property
    def capacity(self) -> int:
        return min(_AT_ONCE + len(self._compiling), _CORES)

    @property
    def environment(self) -> Versions:
        return self._task.versions

    def library_s(self, workload: OwnKernel) -> float | None:
        return None

    def submit(
        self, workload: OwnKernel, schedules: Sequence[Schedule], *, policy: str = POLICY, seed: int = 0
    ) -> list[Future[Measurement]]:
        """All of the futures are done, with a measurement or an error."""
        self.check_device()
        begin = time.perf_counter()
        asked = [schedule for schedule in schedules if schedule not in self._compiling]
        self._compile(asked)
        awaited = self._awaited(asked)
        compile_s = (time.perf_counter() - begin) / max(1, len(awaited))
        error: BaseException = LostTrialError("it is being compiled")
        try:
            for schedule in awaited:
                self._try(schedule, compile_s)
        except BaseException as broken:
            # Earlier measurements are returned all the same.
            error = broken
        return [self._answer(schedule, error) for schedule in schedules]

    def _answer(self, schedule: Schedule, error: BaseException) -> Future[Measurement]:
        future = Future[Measurement]()
        if schedule in self._tried:
            self._told[schedule] = self._measurement(schedule)
            future.set_result(self._told[schedule])
        else:
            future.set_exception(error)
        return future

    def remeasure(
        self,
        workload: OwnKernel,
        schedules: Sequence[Schedule],
        rounds: int,
        *,
        policy: str = POLICY,
        seed: int = 0,
    ) -> list[Measurement] | None:
        """Interleaved rounds; configurations of earlier runs are tried first."""
        self.check_device()
        again = [schedule for schedule in schedules if schedule not in self._tried]
        self._compile(again)
        wait(self._compiling.values())
        for schedule in again:
            self._try(schedule, 0.0)
        found = {schedule: self._measurement(schedule) for schedule in schedules}
        fit = [schedule for schedule in schedules if found[schedule].ok]
        if not fit:
            return None
        taken = self._trials.finals([self._configuration(schedule) for schedule in fit], rounds)
        found |= {s: replace(found[s], latencies_s=latencies) for s, latencies in zip(fit, taken, strict=True)}
        return list(found.values())

    def cancel(self) -> None:
        """Nothing to cancel."""

    def revisions(self) -> Sequence[tuple[Schedule, Measurement]]:
        """Configurations tried for finals, and those whose result the majority now contradicts."""
        now = {schedule: self._measurement(schedule) for schedule in self._tried}
        new = {schedule: m for schedule, m in now.items() if self._told.get(schedule) != m}
        self._told |= new
        return list(new.items())

    def check_device(self) -> None:
        """Raise LostDeviceError if a configuration has broken it."""
        if self._broken is not None:
            raise self._broken

    def _configuration(self, schedule: Schedule) -> Configuration:
        point = point_of(self._task.space, schedule)
        assert point is not None, "a search proposes what its space has"
        return self._task.choices.configuration(point)

    def _compile(self, schedules: Sequence[Schedule]) -> None:
        begun = self._trials.compile([self._configuration(schedule) for schedule in schedules])
        self._compiling |= zip(schedules, begun, strict=True)

    def _awaited(self, asked: Sequence[Schedule]) -> list[Schedule]:
        """Configurations to try now; those still compiling are given up if nothing else can be tried meanwhile.

        That is if all that are left compile, or compilers that do not end have taken all cores.
        """
        every = self._compiling.values()
        if not asked and len(every) < _CORES:
            wait(every, self._patience_s)
            return list(self._compiling)
        wait_for_most([self._compiling[schedule] for schedule in asked], every, self._patience_s)
        ended = [schedule for schedule, compiling in self._compiling.items() if compiling.done()]
        return ended if ended or asked else list(self._compiling)

    @property
    def _patience_s(self) -> float:
        """As long again as the search has taken."""
        return max(_PATIENCE_S if self._tried else _FIRST_PATIENCE_S, time.perf_counter() - self._begin)

    def _try(self, schedule: Schedule, compile_s: float) -> None:
        if not self._compiling.pop(schedule).done():
            since_s = time.perf_counter() - self._begin
            detail = f"the compiler had not ended {since_s:.0f} s after the search began"
            self._tried[schedule] = Tried(Measurement("compile_timeout", detail=detail))
            return
        try:
            self._tried[schedule] = self._trials.run(self._configuration(schedule), compile_s)
        except LostDeviceError as error:
            self._tried[schedule], self._broken = Tried(Measurement("run_crash", detail=str(error))), error
            raise

    def _measurement(self, schedule: Schedule) -> Measurement:
        return self._trials.measurement(self._tried[schedule])


def _none_works(task: TuningTask, trials: Sequence[TuningRecord]) -> AutoschedError:
    """The error with the most frequent reason."""
    name, tried = task.kernel.label, {r.schedule: r.measurement for r in trials}
    if not tried:
        return NoneWorksError(f"{name}: there is no configuration to try")
    statuses = Counter(m.status for m in tried.values())
    counted = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    reasons = Counter(_reason(m) for m in tried.values())
    ((commonest, times),) = reasons.most_common(1)
    schedule, said = next((s, m) for s, m in tried.items() if _reason(m) == commonest)
    kind = OutOfMemoryError if "out_of_memory" in statuses else NoneWorksError
    return kind(
        f"{name}: none of {len(tried)} configurations works ({counted}); the most frequent reason, {times} times, "
        f"as of {schedule.one_line}: {said.detail or said.status}"
    )


def _reason(measurement: Measurement) -> str:
    """Reason of a failure, without numbers, which differ from configuration to configuration."""
    return measurement.status + re.sub(r"\d+", "", measurement.detail)
