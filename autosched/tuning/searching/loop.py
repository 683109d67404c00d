"""The loop that keeps a measurer busy: batches of one search or of several are under way, and told in their order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Protocol

from autosched.measuring import Measurer, UnfitWorkloadError
from autosched.tuning.searching.batch import Batch, Ended
from autosched.tuning.searching.interruption import Interruption
from autosched.tuning.searching.search import Search
from tuning_logs import Measurement, TuningRecord


class Turns(Protocol):
    """Whose turn it is to propose a batch."""

    def next(self) -> Search | None:
        """A search that has something left to propose; None while none is to."""
        ...

    def passed(self, search: Search) -> None:
        """Take note that the search whose turn it was has nothing left to propose."""
        ...

    def told(self, search: Search, records: Sequence[TuningRecord]) -> None:
        """Take note that a search was told these records, those of a whole batch."""
        ...


@dataclass(frozen=True)
class Alone:
    """One search, to its end."""

    search: Search

    def next(self) -> Search | None:
        return self.search if self.search.left else None

    def passed(self, search: Search) -> None:
        """It is over."""

    def told(self, search: Search, records: Sequence[TuningRecord]) -> None:
        """Nobody else is to know."""


# A batch, and the search that proposed it.
_UnderWay = tuple[Search, Batch]


class Loop:
    """Batches on their way through a measurer, until no search has a turn or somebody interrupts.

    Where proposing may overlap with measuring, `ahead` batches are under way, and the next one is proposed without
    their results. That is so whatever the timing: the same seeds and the same answers give the same searches.
    """

    def __init__(self, measurer: Measurer, interruption: Interruption, turns: Turns, ahead: int = 2) -> None:
        self._measurer = measurer
        self._interruption = interruption
        self._turns = turns
        self._ahead = ahead if measurer.overlaps else 1
        self._under_way: deque[_UnderWay] = deque()
        # What has ended, from whatever thread it ended in.
        self._ended: SimpleQueue[tuple[_UnderWay, int, Future[Measurement]]] = SimpleQueue()

    def run(self) -> None:
        """To the end; or, once the interruption is set, until what is being measured has ended."""
        while True:
            begin = time.perf_counter()
            self._fill()
            if not self._under_way:
                return
            self._await_oldest()
            search, batch = self._under_way.popleft()
            search.tell(batch)
            self._turns.told(search, batch.in_order)
            # Several are under way: the time is that of the one that was waited for.
            search.wall_s += time.perf_counter() - begin

    def _fill(self) -> None:
        while len(self._under_way) < self._ahead and not self._interruption:
            search = self._turns.next()
            if search is None:
                return
            batch = search.propose()
            if batch is None:
                self._turns.passed(search)
                continue
            self._under_way.append((search, batch))
            for number, future in enumerate(search.submit(batch, self._measurer)):
                future.add_done_callback(partial(self._ends, (search, batch), number))

    def _ends(self, whose: _UnderWay, number: int, future: Future[Measurement]) -> None:
        self._ended.put((whose, number, future))

    def _await_oldest(self) -> None:
        """Record trials, of whatever batch, as they end, until all of the oldest batch have."""
        cancelled = False
        search, oldest = self._under_way[0]
        while oldest.open:
            if self._interruption and not cancelled:
                cancelled = True
                self._measurer.cancel()
                search.report("stopping")
            ended = [self._ended.get()]
            while not self._ended.empty():
                ended.append(self._ended.get())
            self._settle(ended)

    def _settle(self, ended: Sequence[tuple[_UnderWay, int, Future[Measurement]]]) -> None:
        """Have every search record what has ended of it.

        Raises:
            whatever broke the measurer, once everything that was measured before is in the log.
        """
        measured: dict[int, tuple[Search, list[Ended]]] = {}
        broken: BaseException | None = None
        for (search, batch), number, future in ended:
            error = None if future.cancelled() else future.exception()
            if future.cancelled() or isinstance(error, UnfitWorkloadError):
                batch.lost += 1
                search.unfit = error if isinstance(error, UnfitWorkloadError) else search.unfit
            elif error is not None:
                broken = error
            else:
                _, found = measured.setdefault(id(search), (search, []))
                found.append((batch, number, future.result()))
        for search, found in measured.values():
            search.settle(found, self._measurer)
        if broken is not None:
            raise broken
