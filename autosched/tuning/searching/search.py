"""One search: propose, record, tell, until so many schedules are known; then the finals.

`loop` keeps a measurer busy with it. It serves workloads, kernels of the user's own and recorded tables: what differs
is the space, the strategy, and the measurer.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, Literal, TypeVar, cast

from autosched.machine.blas_threads import one_meanwhile
from autosched.machine.deadline import NEVER, Deadline
from autosched.machine.policies import Policy
from autosched.measuring import failures
from autosched.measuring.measurer import BATCH, Losing, MeasurerOf, Revising, UnfitWorkloadError
from autosched.strategies import Strategy, Transferring
from autosched.tuning.progress import OnProgress, Pace, Phase, Progress
from autosched.tuning.remaining_gain import Improvements, RemainingGain, StopRule
from autosched.tuning.searching.batch import Batch, Candidate, telling_source
from autosched.tuning.searching.guidance import Guidance
from autosched.tuning.searching.interruption import Interruption
from autosched.tuning.searching.listening import Listening
from autosched.tuning.searching.parts import NOTHING_LENT, USUAL_FINALISTS, Finalists, Log, Space
from autosched.tuning.searching.sources import USUAL, Sources
from autosched.tuning.searching.warm_start import WarmStart, history
from search_spaces import Schedule, SearchSpace, Workload
from search_spaces.build import sketch_names
from tuning_logs import Measurement, Provenance, TuningRecord
from tuning_logs.ranking import best_of, standing

Ending = Literal["known", "trials", "converged", "exhausted", "time", "interrupted", "unfit"]

# A batch is small at first, so that the cost model learns early, and larger later, so that compile workers stay busy:
# this part of the largest, which is 64, or a third of the capacity of a larger measurer.
_FIRST_PART = 4
_FIRST_BATCH = BATCH // _FIRST_PART
_MOST_AHEAD = 3

T = TypeVar("T", bound=Space)


@dataclass(eq=False)
class SearchOf(Generic[T]):
    """One run over the records of one workload, or kernel of the user's own, on one target, with one policy.

    `records` are all exact ones, oldest first, and grow as the search goes on; `wanted` is the number of distinct
    schedules measured in the end, fewer if `stop` says so; `sources` are the logs for its warm start; `provenance` is
    that of the records to come, without their time and place in the run, and the measuring machine; `log_s` is the time
    to write them, `wall_s` the part of the session that was spent on it; `improvements` are those of its finished
    batches. `exhausted`: nothing is left to propose. `unfit` is the reason why its workload cannot be measured here;
    `lost` counts the trials that its measurer never answered; `losses` are the machines that it lost meanwhile.
    """

    space: T
    strategy: Strategy
    log: Log
    provenance: Provenance
    wanted: int
    records: list[TuningRecord]
    on_progress: OnProgress | None = None
    stop: StopRule | None = None
    sources: Sources = USUAL
    finalists: Finalists = USUAL_FINALISTS

    def __post_init__(self) -> None:
        self.log_s = 0.0
        self.exhausted = False
        self.interrupted = False
        self.out_of_time = False
        self._begun = False
        self._heard: list[TuningRecord] = []
        self._start = WarmStart()
        self._listening: Listening | None = None
        self.wall_s = 0.0
        self.unfit: UnfitWorkloadError | None = None
        self._old_records = len(self.records)
        self._known = {r.schedule for r in self.records}
        self.known_before = self.known
        self._pace = Pace(self.known)
        best = self.best
        self.best_s = best.measurement.undisturbed_s if best else None
        self._latencies: list[float | None] = []
        self._see([r for r in self.records if not r.provenance.finals])
        self._library_s: float | None = None
        self._failed: Counter[str] = Counter()
        self._policy = cast(Policy, self.provenance.policy)
        # Every batch gets inputs of its own.
        self._seeds = count(self.provenance.seed)
        self._under_way: list[Batch] = []
        # Lost schedules that are submitted again.
        self._again: list[Schedule] = []
        self.lost = 0
        self.losses: tuple[str, ...] = ()

    @property
    def known(self) -> int:
        """Number of distinct schedules tried."""
        return len(self._known)

    @property
    def observed(self) -> int:
        """Number of those in finished batches."""
        return len(self._latencies)

    @property
    def complete(self) -> bool:
        """True if nothing is left to do: neither trials nor finals."""
        return (self.known >= self.wanted or self.converged) and not self.finals_due

    @property
    def converged(self) -> bool:
        """True if it is to stop, since too little is expected of more trials."""
        return self.stop is not None and self.stop.stops(self.improvements)

    @property
    def first_s(self) -> float | None:
        """The best of as many trials as a first batch has, None if all of them failed."""
        return min((latency for latency in self._latencies[:_FIRST_BATCH] if latency is not None), default=None)

    @property
    def remaining_gain(self) -> RemainingGain | None:
        """Expected gain of twice as many trials again; None after less than a batch, or while nothing has succeeded."""
        return self.improvements.remaining if self.improvements and self.improvements.trials >= _FIRST_BATCH else None

    @property
    def ending(self) -> Ending:
        """Reason of its end."""
        if self.interrupted:
            return "interrupted"
        if self.unfit:
            return "unfit"
        if self.exhausted:
            return "exhausted"
        if self.out_of_time and self.known < self.wanted and not self.converged:
            return "time"
        if self.known > self.known_before and self.known < self.wanted:
            return "converged"
        return "trials" if self.known > self.known_before else "known"

    @property
    def best(self) -> TuningRecord | None:
        return best_of(self.records)

    @property
    def trials(self) -> list[TuningRecord]:
        """The trials of this run, finals left out."""
        return [r for r in self.records[self._old_records :] if not r.provenance.finals]

    @property
    def finals(self) -> list[TuningRecord]:
        """The records of the finals that this run ended with."""
        return [r for r in self.records[self._old_records :] if r.provenance.finals]

    @property
    def failures(self) -> tuple[tuple[str, int], ...]:
        """This run's failed trials by status, most frequent first."""
        return tuple(self._failed.most_common())

    @property
    def all_failures(self) -> tuple[tuple[str, int], ...]:
        """The known schedules that failed, those of earlier runs included, by status, most frequent first."""
        failed = (r.measurement.status for r in standing(self.records) if not r.measurement.ok)
        return tuple(Counter(failed).most_common())

    @property
    def guidance(self) -> Guidance:
        """Sources of its warm start, and their effect."""
        strategy = self.strategy
        transfer = strategy.transfer if isinstance(strategy, Transferring) else None
        return Guidance.of(self._start, transfer, self._listening.devices if self._listening else {})

    @property
    def open(self) -> bool:
        """True if it may go on, given more trials."""
        return not (self.exhausted or self.unfit or self.converged)

    @property
    def granted(self) -> int:
        """Number of schedules measured or in flight."""
        return self.known + sum(batch.open for batch in self._under_way)

    @property
    def left(self) -> int:
        """Number of schedules still to be proposed."""
        return max(0, self.wanted - self.granted) if self.open else 0

    def propose(self, capacity: int) -> Batch | None:
        """Ask for the next batch, for a measurer of this capacity; None when the space is exhausted.

        Lost schedules come first.
        """
        self._begin()
        self._listen()
        again, self._again = self._again[:capacity], self._again[capacity:]
        largest = max(BATCH, capacity // _MOST_AHEAD)
        # By finished batches: how many trials of later ones have ended is a matter of timing.
        grown = max(largest // _FIRST_PART, self.observed // 4)
        size = min(grown, largest, capacity - len(again), self.left - len(again))
        begin = time.perf_counter()
        asked: Sequence[Schedule] = ()
        if size > 0:
            with one_meanwhile():
                # A strategy that proposes nothing but what is known has come to its end, whatever it promises.
                asked = [s for s in self.strategy.ask(size) if s not in self._known]
        if not (again or asked):
            self.exhausted = True
            return None
        propose_s = (time.perf_counter() - begin) / max(1, len(asked))
        candidates = [*(Candidate(s, 0.0) for s in again), *(Candidate(s, propose_s) for s in asked)]
        batch = Batch(candidates, given_again=not asked)
        self._under_way.append(batch)
        return batch

    def _begin(self) -> None:
        """Warm start, once: the strategy observes measurements from elsewhere, and those of this task."""
        if self._begun:
            return
        self._begun = True
        op, device = self.space.workload, self.space.target
        if not self.sources.cold:
            found = history(self.log, op, device, self._policy, self.records, self.sources)
            self._start = found.of_sketches(sketch_names())
            self._listening = Listening(self.log, op, device, self._policy, self._successes)
        self.strategy.tell([*self._start.records, *self._heard], elsewhere=True)
        self.strategy.tell(standing(self.records))

    def _listen(self) -> None:
        """Observe what searches for other devices have written to the log since the last batch."""
        if self._listening is not None and (news := self._listening.news(self._successes)):
            self.strategy.tell(news[: self.sources.most], elsewhere=True)

    @property
    def _successes(self) -> int:
        return sum(r.measurement.ok for r in self.records)

    def submit(self, batch: Batch, measurer: MeasurerOf[Any]) -> None:
        """Submit a batch to the measurer."""
        self.provenance = dataclasses.replace(self.provenance, versions=measurer.environment)
        schedules, seed = [c.schedule for c in batch.candidates], next(self._seeds)
        futures = measurer.submit(self.space.workload, schedules, policy=self._policy, seed=seed)
        for candidate, future in zip(batch.candidates, futures, strict=True):
            candidate.future = future

    def settle(self, ended: Sequence[Candidate], measurer: MeasurerOf[Any]) -> None:
        """Log ended trials, in one write; then show them, and keep those that show a fault."""
        self._library_s = measurer.library_s(self.space.workload)
        self._revise(measurer)
        for trial, candidate in enumerate(ended, len(self.records)):
            measurement = candidate.future.result()
            candidate.record = self._record(candidate.schedule, measurement, trial, propose_s=candidate.propose_s)
        settled = [(c.schedule, c.record) for c in ended if c.record is not None]
        self._log([record for _, record in settled])
        for schedule, record in settled:
            self._known.add(record.schedule)
            self._show(record.measurement)
            if isinstance(record.subject, Workload):
                failures.keep(self.log.path, record, schedule)

    def _revise(self, measurer: MeasurerOf[Any]) -> None:
        """Log the measurer's revised answers."""
        told = measurer.revisions() if isinstance(measurer, Revising) else ()
        self._log([self._record(schedule, m, trial) for trial, (schedule, m) in enumerate(told, len(self.records))])

    def lose(self, candidate: Candidate) -> None:
        """Submit a lost schedule again, unless nothing else is left to do."""
        candidate.lost, self.exhausted = True, False
        self._again.append(candidate.schedule)

    def tell(self, batch: Batch) -> None:
        """Let the strategy observe a batch, all of which has ended."""
        self._under_way.remove(batch)
        trials = batch.records
        if batch.given_again and not trials:
            given_up = [c.schedule for c in batch.candidates if c.schedule in self._again]
            self._again = [schedule for schedule in self._again if schedule not in given_up]
            self.lost += len(given_up)
        with one_meanwhile():
            self.strategy.tell(trials)
        self._see(trials)

    def _see(self, trials: Sequence[TuningRecord]) -> None:
        self._latencies += [r.measurement.undisturbed_s if r.measurement.ok else None for r in trials]
        self.improvements = Improvements.of(self._latencies)

    def hear(self, records: Sequence[TuningRecord]) -> None:
        """Let the strategy observe records of a similar workload; before the start, the log provides them."""
        if self._begun:
            self.strategy.tell(records, elsewhere=True)
        elif self.sources.cold:
            self._heard += [r for r in records if r.measurement.ok]

    def finish(
        self,
        measurer: MeasurerOf[Any],
        interruption: Interruption,
        deadline: Deadline = NEVER,
        lent: Mapping[Schedule, Measurement] = NOTHING_LENT,
    ) -> None:
        """Run the finals, if they are due and the user does not interrupt; where time is short, less or none.

        Schedules `lent` by other sizes take part, with what they took there.
        """
        begin = time.perf_counter()
        due = self.must_compare(lent)
        chosen, rounds = self.finalists.within(deadline.left_s, self.records, lent) if due else ((), 0)
        if chosen and not self.unfit and not interruption:
            self.report("finals")
            self.provenance = dataclasses.replace(self.provenance, versions=measurer.environment)
            self._finals(measurer, [self.space.bind(schedule) for schedule in chosen], rounds)
        self.lost += len(self._again)
        self._again.clear()
        self.losses = tuple(measurer.losses) if isinstance(measurer, Losing) else ()
        self.interrupted = bool(interruption)
        self.wall_s += time.perf_counter() - begin

    def _finals(self, measurer: MeasurerOf[Any], finalists: Sequence[Schedule], rounds: int) -> None:
        try:
            measurements = measurer.remeasure(
                self.space.workload, finalists, rounds, policy=self._policy, seed=next(self._seeds)
            )
        finally:
            self._revise(measurer)
        if measurements is None:
            return
        # Two searches that share a log have finals of their own.
        first, finals = len(self.records), time.time_ns() // 1_000_000
        pairs = enumerate(zip(finalists, measurements, strict=True))
        self._log([self._record(schedule, m, first + i, finals=finals) for i, (schedule, m) in pairs])

    @property
    def finals_due(self) -> bool:
        """True if there are trials after the last finals, and enough kernels to choose from."""
        fresh = bool(self.records) and not self.records[-1].provenance.finals
        return fresh and bool(self.finalists.chosen(self.records))

    def must_compare(self, lent: Iterable[Schedule]) -> bool:
        """True if finals are due, or if one of these schedules was never measured here."""
        return self.finals_due or not self._known.issuperset(lent)

    def _record(
        self, schedule: Schedule, measurement: Measurement, trial: int, *, finals: int = 0, propose_s: float = 0.0
    ) -> TuningRecord:
        provenance = dataclasses.replace(
            self.provenance, unix_s=time.time(), trial=trial, finals=finals, propose_s=propose_s
        )
        if isinstance(self.space.workload, Workload):
            measurement = telling_source(measurement, schedule, self.space.target)
        return TuningRecord(self.space.workload, self.space.target, schedule, measurement, provenance)

    def _log(self, records: Sequence[TuningRecord]) -> None:
        if not records:
            return
        begin = time.perf_counter()
        self.log.append(*records)
        self.log_s += time.perf_counter() - begin
        self.records.extend(records)

    def _show(self, measurement: Measurement) -> None:
        if measurement.ok:
            self.best_s = min(measurement.undisturbed_s, self.best_s or measurement.undisturbed_s)
        else:
            self._failed[measurement.status] += 1
        self.report()

    def report(self, phase: Phase = "search") -> None:
        if self.on_progress is None:
            return
        self.on_progress(
            Progress(
                label=self.space.workload.label,
                trials=self.known,
                wanted=self.wanted,
                known_before=self.known_before,
                best_s=self.best_s,
                library_s=self._library_s,
                failures=self.failures,
                remaining_s=None if self.stop else self._pace.remaining_s(self.known, self.wanted),
                phase=phase,
                remaining_gain=self.remaining_gain,
            )
        )


Search = SearchOf[SearchSpace]
