"""The search for the fastest configuration of one call: ask, compile, try, log, tell; then the finals."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autosched.machine.blas_threads import one_meanwhile
from autosched.strategies.bayesian import BayesianSearch, plain_search
from autosched.tuning.autotune.configurations import schedule_of
from autosched.tuning.autotune.kernel_records import best_point, histories, outcomes
from autosched.tuning.autotune.other_tables import told_elsewhere
from autosched.tuning.autotune.task import TuningTask
from autosched.tuning.autotune.trials.compiling import Compiling, wait_for_all, wait_for_most
from autosched.tuning.autotune.trials.trials import LostDeviceError, Trials, Tried
from search_spaces import AutoschedError
from search_spaces.errors import OutOfMemoryError
from search_spaces.schedules.plain_space import Point
from tuning_logs import Measurement, TuningRecord
from tuning_logs.ranking import standing

# Configurations that are asked for at once, and compile at once: each for itself would be chosen a little better, and
# leave all processors but one idle.
_CORES = os.cpu_count() or 1
_AT_ONCE = min(8, _CORES)
# What compilers that are slower than the others get at least, when nothing else can be tried; and what all get while
# none has ended, and nothing says how long the others take.
_PATIENCE_S = 5.0
_FIRST_PATIENCE_S = 60.0
# Configurations that are measured again, interleaved, before one is called best, and how often each.
_FINALISTS = 5
_FINAL_ROUNDS = 15
# What is so much slower than the best in its trial takes no part in the finals.
_HOPELESS_RATIO = 1.2


class NoneWorksError(AutoschedError):
    """Every configuration was tried, and failed for a reason that will not have gone by the next call."""


class KernelSearch:
    """One search, whose trials are of one call."""

    def __init__(self, task: TuningTask, trials: Trials) -> None:
        self.task, self.trials = task, trials
        self._begin = time.perf_counter()
        # What came of the points that this search tried, and what was written of it.
        self._tried: dict[Point, Tried] = {}
        self._told: dict[Point, Measurement] = {}
        self._propose_s = 0.0
        # What was asked for and not tried yet.
        self._compiling: dict[Point, Compiling] = {}

    def run(self) -> Point:
        """The best configuration.

        Raises:
            NoneWorksError: none of them works.
            OutOfMemoryError: none does, and some for the lack of memory.
            LostDeviceError: one broke the device.
        """
        task = self.task
        known = task.known
        strategy, count = self._search(known), len(standing(known))
        while (tried := self._trials(strategy, task.wanted - count)) or self._compiling:
            latencies = self._latencies()
            with one_meanwhile():
                strategy.tell(tried, [latencies[point] for point in tried])
            count += len(tried)
        self._finals(known)
        best = best_point(task.records.of(task.kernel, task.target, task.space), task.space)
        if best is None:
            raise self._none_works()
        return best

    def _search(self, known: Sequence[TuningRecord]) -> BayesianSearch[Point]:
        task = self.task
        elsewhere = task.records.elsewhere(task.kernel, task.target, task.space)
        history = [*histories(elsewhere, task.space), *told_elsewhere(task.tables, task.space)]
        with one_meanwhile():
            strategy = plain_search(task.space, task.seed, history)
            if known:
                strategy.tell(*outcomes(standing(known), task.space))
        return strategy

    def _trials(self, strategy: BayesianSearch[Point], left: int) -> list[Point]:
        """Ask for some, and try those that have compiled: also of those that were asked for before.

        At the end none is tried, and none compiles.
        """
        slower = len(self._compiling)
        asked = self._ask(strategy, min(left - slower, _AT_ONCE, _CORES - slower))
        begin = time.perf_counter()
        self._compile(asked)
        tried = self._awaited(asked, left)
        self._try(tried, (time.perf_counter() - begin) / max(1, len(tried)))
        return tried

    def _awaited(self, asked: Sequence[Point], left: int) -> list[Point]:
        """What is to be tried now; what has not ended is given up where nothing else can be tried meanwhile.

        That is where all that are left compile, or compilers that do not end have taken all cores.
        """
        every = self._compiling.values()
        if not asked and not _CORES <= len(every) < left:
            wait_for_all(every, self._patience_s)
            return list(self._compiling)
        wait_for_most([self._compiling[point] for point in asked], every, self._patience_s)
        ended = [point for point, compiling in self._compiling.items() if compiling.ended]
        return ended if ended or asked else list(self._compiling)

    @property
    def _patience_s(self) -> float:
        """As long again as the search has taken."""
        return max(_PATIENCE_S if self._tried else _FIRST_PATIENCE_S, time.perf_counter() - self._begin)

    def _compile(self, points: Sequence[Point]) -> None:
        begun = self.trials.compile([self.task.choices.configuration(point) for point in points])
        self._compiling |= zip(points, begun, strict=True)

    def _ask(self, strategy: BayesianSearch[Point], count: int) -> list[Point]:
        if count < 1:
            return []
        begin = time.perf_counter()
        with one_meanwhile():
            asked = strategy.ask(count, least=count)
        self._propose_s = (time.perf_counter() - begin) / max(1, len(asked))
        return asked

    def _try(self, points: Sequence[Point], compile_s: float) -> None:
        """Try these, which took so long to compile, and write down what came of them, whatever happens."""
        try:
            for point in points:
                try:
                    self._tried[point] = self._one(self._compiling.pop(point), compile_s)
                except LostDeviceError as error:
                    self._tried[point] = Tried("run_crash", str(error))
                    raise
        finally:
            self._write_trials()

    def _one(self, compiling: Compiling, compile_s: float) -> Tried:
        if compiling.ended:
            return self.trials.run(compiling.configuration, compile_s)
        since_begin_s = time.perf_counter() - self._begin
        return Tried("compile_timeout", f"the compiler had not ended {since_begin_s:.0f} s after the search began")

    def _write_trials(self) -> None:
        """Write what is new: trials, and those of which the majority now says otherwise."""
        now = {point: self._measurement(point) for point in self._tried}
        new = {point: m for point, m in now.items() if self._told.get(point) != m}
        self.task.records.append(*(self._record(p, m, len(self._told) + n) for n, (p, m) in enumerate(new.items())))
        self._told |= new

    def _finals(self, known: Sequence[TuningRecord]) -> None:
        """Measure the fastest again, in turn with each other, those of earlier runs included."""
        points, seconds = outcomes(standing(known), self.task.space)
        earlier = {p: s for p, s in zip(points, seconds, strict=True) if p not in self._tried}
        again = [p for p in _fastest({**earlier, **self._latencies()}) if p not in self._tried]
        self._compile(again)
        wait_for_all(self._compiling.values())
        self._try(again, 0.0)
        finalists = _fastest(self._latencies())
        if not finalists:
            return
        taken = self.trials.finals([self.task.choices.configuration(p) for p in finalists], _FINAL_ROUNDS)
        moment = int(time.time() * 1e3)
        measured = (replace(self._measurement(p), latencies_s=t) for p, t in zip(finalists, taken, strict=True))
        self.task.records.append(
            *(self._record(p, m, n, moment) for n, (p, m) in enumerate(zip(finalists, measured, strict=True)))
        )

    def _latencies(self) -> dict[Point, float | None]:
        return {point: m.latency_s if (m := self._measurement(point)).ok else None for point in self._tried}

    def _measurement(self, point: Point) -> Measurement:
        return self._tried[point].measurement(self.trials.agreement)

    def _record(self, point: Point, measurement: Measurement, number: int, finals: int = 0) -> TuningRecord:
        return self.task.record(point, measurement, number, finals, self._propose_s)

    def _none_works(self) -> AutoschedError:
        """The error that tells the reason of most of them."""
        name, tried = self.task.kernel.label, {p: self._measurement(p) for p in self._tried}
        if not tried:
            return NoneWorksError(f"{name}: there is no configuration to try")
        statuses = Counter(m.status for m in tried.values())
        counted = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
        reasons = Counter(_reason(m) for m in tried.values())
        ((commonest, times),) = reasons.most_common(1)
        point, said = next((p, m) for p, m in tried.items() if _reason(m) == commonest)
        kind = OutOfMemoryError if "out_of_memory" in statuses else NoneWorksError
        return kind(
            f"{name}: none of {len(tried)} configurations works ({counted}); the most frequent reason, {times} times, "
            f"as of {schedule_of(self.task.space, point).one_line}: {said.detail or said.status}"
        )


def _reason(measurement: Measurement) -> str:
    """Why it failed, without the numbers, which differ from configuration to configuration."""
    return measurement.status + re.sub(r"\d+", "", measurement.detail)


def _fastest(latencies: Mapping[Point, float | None]) -> list[Point]:
    """The finalists, in the order in which they were tried: those that are not hopelessly slower than the best."""
    known = {point: seconds for point, seconds in latencies.items() if seconds is not None}
    best = sorted(known, key=lambda point: known[point])[:_FINALISTS]
    return [point for point in known if point in best and known[point] <= _HOPELESS_RATIO * known[best[0]]]
