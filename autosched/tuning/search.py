"""The loop of a search: propose, measure, log, tell, until so many schedules are known; then the finals."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Literal, cast

from autosched.backends.backend import CompileError
from autosched.backends.reproduction import fingerprint_of
from autosched.machine.timing import Policy
from autosched.measuring import Measurer, repro
from autosched.strategies import Strategy
from autosched.tuning.interruption import Interruption
from autosched.tuning.progress import OnProgress, Phase, Progress
from search_spaces import InputError, Schedule, SearchSpace, Target
from tuning_logs import CompileFacts, Measurement, Provenance, TuningLog, TuningRecord
from tuning_logs.ranking import best_of, standing

Ending = Literal["known", "trials", "exhausted", "interrupted"]

# Schedules per batch: small at first, so that the cost model learns early; larger when it has learnt, so that compile
# workers stay busy (64 is the batch of Ansor and MetaSchedule).
_FIRST_BATCH = 16
_LARGEST_BATCH = 64
# Schedules that are measured again before one is called best, and how often each at a time: the differences among the
# best are of the size of the noise of single trials, and on a disturbed machine the best may look like the tenth.
_FINALISTS = 16
_FINAL_ROUNDS = 15


@dataclass
class _Batch:
    """Schedules that were asked for together, what asking took of each, and what became of them so far."""

    schedules: Sequence[Schedule]
    propose_s: float
    records: dict[int, TuningRecord] = field(default_factory=dict)
    cancelled: int = 0

    @property
    def open(self) -> int:
        return len(self.schedules) - len(self.records) - self.cancelled

    @property
    def in_order(self) -> list[TuningRecord]:
        """The records in the order in which the schedules were proposed, whatever the timing of the compilers."""
        return [self.records[number] for number in sorted(self.records)]


# A trial that has ended: its batch, its number there, and what came of it.
_Ended = tuple[_Batch, int, "Future[Measurement]"]


@dataclass
class Search:
    """One run of the loop, over the records of one workload, target and policy.

    `records` are all good ones, oldest first, and grow as the search goes on; `wanted` is how many distinct schedules
    are to be known in the end; `provenance` is that of the records to come, but for their time and place in the run,
    and the machine that measures; `log_s` is how long writing them took.
    """

    space: SearchSpace
    strategy: Strategy
    log: TuningLog
    provenance: Provenance
    wanted: int
    records: list[TuningRecord]
    on_progress: OnProgress | None = None

    def __post_init__(self) -> None:
        self.log_s = 0.0
        self._first_trial_s: float | None = None
        self._old_records = len(self.records)
        self._known = {r.schedule for r in self.records}
        self.known_before = self.known
        best = self.best
        self._best_s = best.measurement.undisturbed_s if best else None
        self._library_s: float | None = None
        self._failed: Counter[str] = Counter()
        self._policy = cast(Policy, self.provenance.policy)
        # Every batch gets inputs of its own.
        self._seeds = count(self.provenance.seed)
        self._under_way: deque[_Batch] = deque()
        self._ended: SimpleQueue[_Ended] = SimpleQueue()

    @property
    def known(self) -> int:
        """How many distinct schedules have been tried."""
        return len(self._known)

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

    def run(self, measurer: Measurer, interruption: Interruption) -> Ending:
        """Search to the end; or, once the interruption is set, until what is being measured has ended."""
        self.provenance = dataclasses.replace(self.provenance, versions=measurer.environment)
        ending: Ending = "known" if self.known >= self.wanted else self._search(measurer, interruption)
        if not interruption and self._finals_due:
            self._report("finals")
            self._finals(measurer)
        return "interrupted" if interruption else ending

    def _search(self, measurer: Measurer, interruption: Interruption) -> Ending:
        """Keep the measurer busy until enough is known.

        Where proposing may overlap with measuring, the next batch is proposed while one is under way, without its
        results. That is so whatever the timing: the same seed and the same answers give the same search.
        """
        ahead = 2 if measurer.overlaps else 1
        exhausted = False
        while True:
            while len(self._under_way) < ahead and self._left and not (exhausted or interruption):
                exhausted = not self._propose(measurer)
            if not self._under_way:
                return "exhausted" if exhausted else "trials"
            self._await_oldest(measurer, interruption)
            self.strategy.tell(self._under_way.popleft().in_order)

    @property
    def _left(self) -> int:
        """How many schedules are still to be proposed."""
        return self.wanted - self.known - sum(batch.open for batch in self._under_way)

    def _propose(self, measurer: Measurer) -> bool:
        """Ask for the next batch and submit it; False when there is nothing left to ask for."""
        size = min(max(_FIRST_BATCH, self.known // 4), _LARGEST_BATCH, self._left)
        begin = time.perf_counter()
        schedules = self.strategy.ask(size)
        if not schedules:
            return False
        batch = _Batch(schedules, (time.perf_counter() - begin) / len(schedules))
        self._under_way.append(batch)
        futures = measurer.submit(self.space.workload, schedules, policy=self._policy, seed=next(self._seeds))
        for number, future in enumerate(futures):
            future.add_done_callback(partial(self._ends, batch, number))
        return True

    def _ends(self, batch: _Batch, number: int, future: Future[Measurement]) -> None:
        """Called in whatever thread a trial ends."""
        self._ended.put((batch, number, future))

    def _await_oldest(self, measurer: Measurer, interruption: Interruption) -> None:
        """Record trials, of whatever batch, as they end, until all of the oldest batch have."""
        cancelled = False
        while self._under_way[0].open:
            if interruption and not cancelled:
                cancelled = True
                measurer.cancel()
                self._report("stopping")
            ended = [self._ended.get()]
            while not self._ended.empty():
                ended.append(self._ended.get())
            self._library_s = measurer.library_s(self.space.workload)
            self._settle(ended)

    def _settle(self, ended: Sequence[_Ended]) -> None:
        """Log what has ended, in one write; then show it, and keep what shows a fault.

        Raises:
            whatever broke the measurer, once everything that was measured before is in the log.
        """
        settled: list[tuple[Schedule, TuningRecord]] = []
        broken: BaseException | None = None
        for batch, number, future in ended:
            if future.cancelled():
                batch.cancelled += 1
            elif error := future.exception():
                broken = error
            else:
                schedule, trial = batch.schedules[number], len(self.records) + len(settled)
                record = self._record(schedule, future.result(), trial, propose_s=batch.propose_s)
                batch.records[number] = record
                settled.append((schedule, record))
        self._log([record for _, record in settled])
        for schedule, record in settled:
            self._known.add(record.schedule)
            self._show(record.measurement)
            repro.keep(self.log.path, record, schedule)
        if broken is not None:
            raise broken

    def _finals(self, measurer: Measurer) -> None:
        finalists = self._finalists()
        measurements = measurer.remeasure(
            self.space.workload, finalists, _FINAL_ROUNDS, policy=self._policy, seed=next(self._seeds)
        )
        if measurements is None:
            return
        # Two searches that share a log have finals of their own.
        first, finals = len(self.records), time.time_ns() // 1_000_000
        pairs = enumerate(zip(finalists, measurements, strict=True))
        self._log([self._record(schedule, m, first + i, finals=finals) for i, (schedule, m) in pairs])

    @property
    def _finals_due(self) -> bool:
        """Whether there are trials that no finals have followed, and more than one kernel to choose from."""
        return bool(self.records) and not self.records[-1].provenance.finals and len(self._finalists()) > 1

    def _finalists(self) -> list[Schedule]:
        """The fastest so far; of those that share a binary, the one that was timed."""
        timed = [r for r in standing(self.records) if r.measurement.ok and r.measurement.timing != "shared"]
        fastest = {r.schedule for r in sorted(timed, key=lambda r: r.measurement.undisturbed_s)[:_FINALISTS]}
        # In the order of the trials, by which a tie is decided.
        return [self.space.bind(r.schedule) for r in timed if r.schedule in fastest]

    def _record(
        self, schedule: Schedule, measurement: Measurement, trial: int, *, finals: int = 0, propose_s: float = 0.0
    ) -> TuningRecord:
        provenance = dataclasses.replace(
            self.provenance, unix_s=time.time(), trial=trial, finals=finals, propose_s=propose_s
        )
        told = _telling_source(measurement, schedule, self.space.target)
        return TuningRecord(self.space.workload, self.space.target, schedule, told, provenance)

    def _log(self, records: Sequence[TuningRecord]) -> None:
        begin = time.perf_counter()
        self.log.append(*records)
        self.log_s += time.perf_counter() - begin
        self.records.extend(records)

    def _show(self, measurement: Measurement) -> None:
        if measurement.ok:
            self._best_s = min(measurement.undisturbed_s, self._best_s or measurement.undisturbed_s)
        else:
            self._failed[measurement.status] += 1
        self._report()

    def _report(self, phase: Phase = "search") -> None:
        if self.on_progress is None:
            return
        self.on_progress(
            Progress(
                label=self.space.workload.label,
                trials=self.known,
                wanted=self.wanted,
                known_before=self.known_before,
                best_s=self._best_s,
                library_s=self._library_s,
                failures=self.failures,
                remaining_s=self._remaining_s(),
                phase=phase,
            )
        )

    def _remaining_s(self) -> float | None:
        """At the pace since the first trial, which itself waited for the workers to start."""
        now, done = time.perf_counter(), self.known - self.known_before
        if self._first_trial_s is None:
            self._first_trial_s = now
        return (now - self._first_trial_s) / (done - 1) * (self.wanted - self.known) if done > 1 else None


def _telling_source(measurement: Measurement, schedule: Schedule, target: Target) -> Measurement:
    """The measurement with the fingerprint of what was compiled, which a compiler that failed does not tell.

    It is that of what is printed here. What cannot be printed stays without, and so does what only the workers can.
    """
    if measurement.source is not None:
        return measurement
    try:
        source = fingerprint_of(schedule, target)
    except (CompileError, InputError):
        return measurement
    facts = measurement.facts or CompileFacts(seconds=0.0)
    return dataclasses.replace(measurement, facts=dataclasses.replace(facts, source=source))
