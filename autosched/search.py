"""The loop of a search: propose, measure, log, tell, until so many schedules are known; then the finals."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from autosched.interruption import Interruption
from autosched.measuring import Measurer
from autosched.progress import OnProgress, Progress
from autosched.strategies import Strategy
from search_spaces import Schedule, SearchSpace
from tuning_logs import Measurement, Provenance, TuningLog, TuningRecord
from tuning_logs.ranking import best_of, standing

Ending = Literal["known", "trials", "exhausted", "interrupted"]

# Schedules per batch: small at first, so that the cost model learns early; larger when it has learnt, so that compile
# workers stay busy (64 is the batch of Ansor and MetaSchedule).
_FIRST_BATCH = 16
_LARGEST_BATCH = 64
# Schedules that are measured again before one is called best, and how often each: the differences among the best few
# are of the size of the noise of single trials.
_FINALISTS = 5
_FINAL_ROUNDS = 15


@dataclass(frozen=True)
class PhaseSeconds:
    """Where the wall time of a search went: asking and telling the strategy, measuring, logging, and the finals."""

    propose: float = 0.0
    measure: float = 0.0
    log: float = 0.0
    finals: float = 0.0

    @property
    def total(self) -> float:
        return self.propose + self.measure + self.log + self.finals


@dataclass
class Search:
    """One run of the loop, over the records of one workload, target, generator and policy.

    `records` are all of them, oldest first, and grow as the search goes on; `wanted` is how many distinct schedules are
    to be known in the end; `provenance` is that of the records to come, but for their time and place in the run.
    """

    space: SearchSpace
    strategy: Strategy
    log: TuningLog
    provenance: Provenance
    wanted: int
    records: list[TuningRecord]
    on_progress: OnProgress | None = None
    seconds: PhaseSeconds = field(default=PhaseSeconds(), init=False)

    def __post_init__(self) -> None:
        self._first_trial_s: float | None = None
        self._old_records = len(self.records)
        self.known_before = self.known
        best = self.best
        self._best_s = best.measurement.latency_s if best else None
        self._failed: Counter[str] = Counter()

    @property
    def known(self) -> int:
        """How many distinct schedules have been tried."""
        return len({r.schedule for r in self.records})

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do: neither trials nor finals."""
        return self.known >= self.wanted and not self._finals_due

    @property
    def best(self) -> TuningRecord | None:
        return best_of(self.records)

    @property
    def trials(self) -> list[TuningRecord]:
        """The trials of this run, finals left out."""
        return [r for r in self.records[self._old_records :] if not r.provenance.finals]

    @property
    def failures(self) -> tuple[tuple[str, int], ...]:
        """This run's failed trials by status, most frequent first."""
        return _failures(self.trials)

    @property
    def all_failures(self) -> tuple[tuple[str, int], ...]:
        """The known schedules that failed, those of earlier runs included, by status, most frequent first."""
        return _failures(standing(self.records))

    def run(self, measurer: Measurer, interruption: Interruption) -> Ending:
        """Search to the end, or until the interruption is set, which is looked at between batches."""
        ending: Ending = "trials" if self.known < self.wanted else "known"
        while self.known < self.wanted and ending != "exhausted":
            if interruption:
                return "interrupted"
            ending = "trials" if self._batch(measurer) else "exhausted"
        if interruption:
            return "interrupted"
        if self._finals_due:
            self._report(self.known, finals=True)
            self._finals(measurer)
        return ending

    def _batch(self, measurer: Measurer) -> bool:
        """Measure the next schedules, each logged as soon as it is measured; False when there are none left.

        Trials are numbered in the order they end. The strategy is told of them in the order it proposed them, whatever
        the timing of the compilers, so that the same seed searches alike.
        """
        known = self.known
        size = min(max(_FIRST_BATCH, known // 4), _LARGEST_BATCH, self.wanted - known)
        with self._timed("propose"):
            schedules = self.strategy.ask(size)
        if not schedules:
            return False
        tried: dict[int, TuningRecord] = {}

        def on_done(number: int, measurement: Measurement) -> None:
            if number not in tried:
                tried[number] = self._record(schedules[number], measurement, trial=known + len(tried))
                self._log(tried[number])
                self._tried(known + len(tried), measurement)

        with self._timed("measure"):
            measurements = measurer.measure(schedules, on_done)
            # A measurer may leave out `on_done`.
            for number, (_, measurement) in enumerate(zip(schedules, measurements, strict=True)):
                on_done(number, measurement)
        with self._timed("propose"):
            self.strategy.tell([tried[number] for number in range(len(schedules))])
        return True

    def _finals(self, measurer: Measurer) -> None:
        finalists = self._finalists()
        with self._timed("finals"):
            measurements = measurer.remeasure(finalists, rounds=_FINAL_ROUNDS)
        first, finals = self.known, 1 + max(r.provenance.finals for r in self.records)
        pairs = enumerate(zip(finalists, measurements, strict=True))
        self._log(*(self._record(schedule, measurement, first + i, finals) for i, (schedule, measurement) in pairs))

    @property
    def _finals_due(self) -> bool:
        """Whether there are trials that no finals have followed, and more than one kernel to choose from."""
        return bool(self.records) and not self.records[-1].provenance.finals and len(self._finalists()) > 1

    def _finalists(self) -> list[Schedule]:
        ok = [r for r in standing(self.records) if r.measurement.ok]
        fastest = sorted(ok, key=lambda r: r.measurement.undisturbed_s)[:_FINALISTS]
        return [self.space.bind(r.schedule) for r in fastest]

    def _record(self, schedule: Schedule, measurement: Measurement, trial: int, finals: int = 0) -> TuningRecord:
        provenance = dataclasses.replace(self.provenance, unix_s=time.time(), trial=trial, finals=finals)
        return TuningRecord(self.space.workload, self.space.target, schedule, measurement, provenance)

    def _log(self, *records: TuningRecord) -> None:
        with self._timed("log"):
            self.log.append(*records)
        self.records.extend(records)

    def _tried(self, known: int, measurement: Measurement) -> None:
        if measurement.ok:
            self._best_s = min(measurement.latency_s, self._best_s or measurement.latency_s)
        else:
            self._failed[measurement.status] += 1
        self._report(known)

    def _report(self, known: int, finals: bool = False) -> None:
        if self.on_progress is None:
            return
        self.on_progress(
            Progress(
                label=self.space.workload.label,
                trials=known,
                wanted=self.wanted,
                known_before=self.known_before,
                best_s=self._best_s,
                failures=tuple(self._failed.most_common()),
                remaining_s=self._remaining_s(known),
                phase="finals" if finals else "search",
            )
        )

    def _remaining_s(self, known: int) -> float | None:
        """At the pace since the first trial, which itself waited for the workers to start."""
        now, done = time.perf_counter(), known - self.known_before
        if self._first_trial_s is None:
            self._first_trial_s = now
        return (now - self._first_trial_s) / (done - 1) * (self.wanted - known) if done > 1 else None

    @contextmanager
    def _timed(self, phase: Literal["propose", "measure", "log", "finals"]) -> Iterator[None]:
        # What is timed inside, such as the log while measuring, counts there only.
        start, before = time.perf_counter(), self.seconds.total
        try:
            yield
        finally:
            spent = time.perf_counter() - start - (self.seconds.total - before)
            self.seconds = dataclasses.replace(self.seconds, **{phase: getattr(self.seconds, phase) + spent})


def _failures(records: Iterable[TuningRecord]) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(r.measurement.status for r in records if not r.measurement.ok).most_common())
