"""The limit of the time of searches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autosched.machine.cores import usable_cores
from autosched.machine.deadline import NEVER, Deadline
from autosched.tuning.searching.search import SearchOf
from search_spaces import InputError

# Schedules of a batch after the end, where one success is enough, and of the smallest one on two cores.
_FEW = 4
# Schedules that are compiled at a time take hardly longer than one: three batches in flight of fewer than a third of
# the cores would leave some idle; half of them make up for those that compile sooner than others.
_MOST_FEW = 16
# In less time than this no more than what it suffices for is begun.
_SHORT_S = 2.0


def check_seconds(seconds: object) -> None:
    """Raise InputError unless it is None or a finite number above 0."""
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InputError(f"seconds={seconds!r}; expected a finite number above 0, or None for no limit")


@dataclass(frozen=True)
class TimeLimit:
    """Searches until a deadline. Afterwards one without a kernel goes on until it has one, or until `last`."""

    deadline: Deadline = NEVER
    searches: Sequence[SearchOf[Any]] = ()
    last: Deadline = NEVER
    _begin_s: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_begin_s", self.deadline.clock())

    def ends(self, search: SearchOf[Any]) -> bool:
        """True if the search is to measure no more."""
        return self.deadline.over and (search.best_s is not None or self.last.over)

    @property
    def next_end_s(self) -> float | None:
        """Seconds until one of the two; None when no time ends any more."""
        left_s = self.last.left_s if self.deadline.over else self.deadline.left_s
        return left_s if 0.0 < left_s < math.inf else None

    def end(self) -> None:
        """Have all searches say that their time is over."""
        for search in self.searches:
            search.out_of_time = True

    def most(self, capacity: int) -> int:
        """Largest batch: what the time left suffices for, at the pace so far.

        Where searches have none yet, half of that time is for one of each; the other half is for kernels that matter.
        While there is time, it keeps the cores busy.
        """
        left_s = self.deadline.left_s
        if left_s == math.inf:
            return capacity
        waiting = sum(not search.granted for search in self.searches)
        few = max(_FEW, min(_MOST_FEW, len(usable_cores()) // (3 if waiting > 1 else 2)))
        done = sum(search.known - search.known_before for search in self.searches)
        if left_s == 0.0:
            return _FEW
        if not done and waiting > 1:
            return few
        if not done:
            return capacity
        pace_s = (self.deadline.clock() - self._begin_s) / done
        shares = 2 * waiting if waiting > 1 else 1
        suffices = int(left_s / shares / max(pace_s, 1e-6))
        return max(few if left_s > _SHORT_S else 1, min(capacity, suffices))
