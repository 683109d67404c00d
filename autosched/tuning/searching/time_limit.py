"""The limit of a search's time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.tuning.searching.loop import TaskScheduler
from autosched.tuning.searching.search import Search
from search_spaces import InputError
from tuning_logs import TuningRecord


def check_seconds(seconds: object) -> None:
    """Raise InputError unless it is None or a finite number above 0."""
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InputError(f"seconds={seconds!r}; expected a finite number above 0, or None for no limit")


@dataclass(frozen=True)
class Until:
    """Batches as `scheduler` says until `end_s`, by `time.perf_counter`; a search without a kernel goes on."""

    scheduler: TaskScheduler
    searches: Sequence[Search]
    end_s: float

    def next(self) -> Search | None:
        chosen = self.scheduler.next()
        if chosen is None or chosen.best_s is None or time.perf_counter() < self.end_s:
            return chosen
        self.scheduler.passed(chosen)
        for search in self.searches:
            search.out_of_time = True
        return None

    def passed(self, search: Search) -> None:
        self.scheduler.passed(search)

    def observed(self, search: Search, records: Sequence[TuningRecord]) -> None:
        self.scheduler.observed(search, records)
