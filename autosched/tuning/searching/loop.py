"""The search loop: keeps a measurer busy with batches of one search or of several, and observes them in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from autosched.measuring.measurer import BATCH, LostTrialError, MeasurerOf, UnfitWorkloadError
from autosched.tuning.searching.batch import Batch, Candidate
from autosched.tuning.searching.interruption import Interruption
from autosched.tuning.searching.search import SearchOf
from autosched.tuning.searching.time_limit import TimeLimit
from tuning_logs import Measurement, TuningRecord

_Search = SearchOf[Any]


class TaskScheduler(Protocol):
    """Allocation of batches to searches."""

    def next(self) -> _Search | None:
        """The search that proposes the next batch; None while none is to."""
        ...

    def passed(self, search: _Search) -> None:
        """Note that the chosen search has nothing left to propose."""
        ...

    def observed(self, search: _Search, records: Sequence[TuningRecord]) -> None:
        """Note that a search has observed these records, those of a whole batch."""
        ...


@dataclass(frozen=True)
class Alone:
    """One search, to its end, or until it has found what takes no more than `enough_s`."""

    search: _Search
    enough_s: float = 0.0

    def next(self) -> _Search | None:
        over = self.search.best_s is not None and self.search.best_s <= self.enough_s
        return self.search if self.search.left and not over else None

    def passed(self, search: _Search) -> None:
        """Nothing to note: it is over."""

    def observed(self, search: _Search, records: Sequence[TuningRecord]) -> None:
        """Nothing to note."""


# A batch, and the search that proposed it.
_UnderWay = tuple[_Search, Batch]


class Loop:
    """Batches in flight in a measurer, until no search gets a batch, the time is over, or the user interrupts.

    If the measurer's capacity allows, `ahead` batches are in flight, and the next one is proposed without their
    results. That does not depend on timing: the same seeds and the same answers give the same searches.
    """

    def __init__(
        self,
        measurer: MeasurerOf[Any],
        interruption: Interruption,
        scheduler: TaskScheduler,
        ahead: int = 2,
        limit: TimeLimit | None = None,
    ) -> None:
        self._measurer = measurer
        self._interruption = interruption
        self._scheduler = scheduler
        self._limit = limit or TimeLimit()
        self._ahead = max(1, min(ahead, measurer.capacity // BATCH))
        self._under_way: deque[_UnderWay] = deque()
        # Ended trials, from any thread.
        self._ended: SimpleQueue[tuple[_Search, Candidate]] = SimpleQueue()
        # True when the time is over and nothing from before is in flight: only searches without a kernel go on.
        self._late = False

    def run(self) -> None:
        """Run to the end; once the time is over or the interruption set, until the present measurements have ended."""
        while True:
            begin = time.perf_counter()
            self._fill()
            if not self._under_way:
                return
            self._await_oldest()
            search, batch = self._under_way.popleft()
            search.tell(batch)
            self._scheduler.observed(search, batch.records)
            # Several are in flight: the time is that of the one that was waited for.
            search.wall_s += time.perf_counter() - begin

    def _fill(self) -> None:
        over = self._limit.deadline.over
        self._late = over and (self._late or not self._under_way)
        while len(self._under_way) < (self._ahead if self._late or not over else 1) and not self._interruption:
            search = self._scheduler.next()
            if search is None:
                return
            if self._limit.ends(search):
                self._scheduler.passed(search)
                self._limit.end()
                return
            batch = search.propose(self._limit.most(self._measurer.capacity))
            if batch is None:
                self._scheduler.passed(search)
                continue
            self._under_way.append((search, batch))
            search.submit(batch, self._measurer)
            for candidate in batch.candidates:
                candidate.future.add_done_callback(partial(self._ends, search, candidate))

    def _ends(self, search: _Search, candidate: Candidate, future: Future[Measurement]) -> None:
        self._ended.put((search, candidate))

    def _await_oldest(self) -> None:
        """Record trials, of any batch, as they end, until all of the oldest batch have."""
        stopping = False
        search, oldest = self._under_way[0]
        while oldest.open:
            if self._interruption or (self._limit.last.over if self._late else self._limit.ends(search)):
                # Every time: what was compiled meanwhile waits, too.
                self._measurer.cancel()
                if not stopping:
                    search.report("stopping")
                stopping = True
            self._settle(self._next_ended())

    def _next_ended(self) -> list[tuple[_Search, Candidate]]:
        """Trials that have ended, once there are any; none when the time comes to its end before."""
        try:
            ended = [self._ended.get(timeout=self._limit.next_end_s)]
        except Empty:
            return []
        while not self._ended.empty():
            ended.append(self._ended.get())
        return ended

    def _settle(self, ended: Sequence[tuple[_Search, Candidate]]) -> None:
        """Have every search record its ended trials.

        Raises:
            the error that broke the measurer, once everything that was measured before is in the log.
        """
        measured: dict[int, tuple[_Search, list[Candidate]]] = {}
        broken: BaseException | None = None
        for search, candidate in ended:
            error = None if candidate.future.cancelled() else candidate.future.exception()
            if isinstance(error, UnfitWorkloadError):
                candidate.lost, search.unfit = True, error
            elif candidate.future.cancelled():
                candidate.lost = True
                if not self._limit.ends(search) and not self._interruption:
                    # Another search's time was over: this one goes on.
                    search.lose(candidate)
            elif isinstance(error, LostTrialError):
                search.lose(candidate)
            elif error is not None:
                broken = error
            else:
                _, found = measured.setdefault(id(search), (search, []))
                found.append(candidate)
        for search, found in measured.values():
            search.settle(found, self._measurer)
        if broken is not None:
            raise broken
