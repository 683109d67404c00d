"""Task scheduler: the next batch goes to the search that should take most off the weighted sum of latencies.

Source: Ansor (OSDI 2020, section 6.2), whose gradient mixes a task's recent gains with an optimistic guess, from its
own past and from similar tasks. Here both estimate the size of its next improvements: its gains, and a part of the
distance from its latency to the roofline, or to that part of the roofline that similar kernels have reached.
`remaining_gain` gives their probability.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from autosched.tuning.remaining_gain import SIZE
from autosched.tuning.searching.search import Search
from cost_models import bound_s
from tuning_logs import TuningRecord
from tuning_logs.selection import are_alike

# Reason of a batch: the search had none yet; it has no kernel yet; it improves; its best is far from the roofline; or
# similar kernels come nearer to theirs.
Reason = Literal["first", "no kernel", "improving", "roofline", "similar"]

# Prior size of improvements, before a search has any: this part of the distance from the latency to its limit. At half
# of the roofline that is the expectation of a search alone.
_STEP = 2 * SIZE
# A task without any success is given up after so many trials: the first three batches.
_PATIENCE = 48
# Trials per batch over which gradients are compared.
_TURN = 16


@dataclass(frozen=True)
class Turn:
    """A batch of one search: its reason, and its expected and actual gain in the weighted sum.

    `number` counts the batches of all searches as they ended. A first batch has no expectation, since nothing is known.
    """

    number: int
    why: Reason
    trials: int
    expected_s: float | None
    gained_s: float


@dataclass(frozen=True)
class _Slope:
    """Expected gain of a batch in the weighted sum, and the main reason for it."""

    gain_s: float
    why: Reason


class Gradient:
    """Allocates batches to searches; `budget` is the number of schedules measured in the end, for all of them.

    Without a budget every search has its own `wanted`, or stops by itself. `weights` gives the present weight of a
    second of each search: one of weight 0 gets no batch, unless it has a `wanted` of its own. Records of a batch are
    observed by the strategies of similar kernels, too.
    """

    def __init__(
        self, searches: Sequence[Search], weights: Callable[[], Sequence[float]], budget: int | None = None
    ) -> None:
        self._searches = searches
        self._weights = weights
        self._budget = budget
        self._bounds = [bound_s(s.space.workload, s.space.target) for s in self._searches]
        self._alike = [
            [n for n, other in enumerate(self._searches) if n != m and _similar(search, other)]
            for m, search in enumerate(self._searches)
        ]
        # Batches of every search that are under way: the reason, and its best before.
        self._given: list[deque[tuple[_Slope, float | None]]] = [deque() for _ in searches]
        self.turns: list[list[Turn]] = [[] for _ in searches]

    @property
    def left(self) -> int | None:
        """Trials left of the budget."""
        if self._budget is None:
            return None
        return max(0, self._budget - sum(search.granted for search in self._searches))

    @property
    def over(self) -> bool:
        """True if no search gets a batch."""
        return not self._slopes()

    def next(self) -> Search | None:
        slopes = self._slopes()
        if not slopes:
            return None
        weights = self._weights()
        # First batches in the order of the searches: time may end before all have one.
        first = [n for n, slope in slopes.items() if slope.why == "first"]
        chosen = min(first) if first else max(slopes, key=lambda n: (slopes[n].gain_s, weights[n]))
        search = self._searches[chosen]
        if self.left is not None:
            search.wanted = search.granted + self._share(search, slopes, self.left)
        self._given[chosen].append((slopes[chosen], search.best_s))
        return search

    def _share(self, search: Search, open_to: Iterable[int], left: int) -> int:
        """Trials left that a batch may take: for a first one its share, so that every search has one."""
        first = sum(self._searches[n].granted == 0 for n in open_to)
        return left if search.granted else max(1, left // first)

    def passed(self, search: Search) -> None:
        self._given[self._searches.index(search)].pop()

    def observed(self, search: Search, records: Sequence[TuningRecord]) -> None:
        task = self._searches.index(search)
        slope, before = self._given[task].popleft()
        after = min((r.measurement.undisturbed_s for r in records if r.measurement.ok), default=before)
        gained = max(0.0, before - after) * self._weights()[task] if before and after else 0.0
        expected = None if slope.gain_s == float("inf") else slope.gain_s
        self.turns[task].append(Turn(sum(map(len, self.turns)), slope.why, len(records), expected, gained))
        for other in self._alike[task]:
            self._searches[other].hear(records)

    def _slopes(self) -> dict[int, _Slope]:
        """The slope of every search that may get the next batch, by its number."""
        weights = self._weights()
        may = (n for n, search in enumerate(self._searches) if self._may_go_on(search, weights[n]))
        return {n: self._slope(n, weights[n]) for n in may}

    def _may_go_on(self, search: Search, weight: float) -> bool:
        if search.best_s is None and search.granted >= _PATIENCE:
            return False
        if self._budget is None and search.stop is None:
            return search.left > 0
        return search.open and weight > 0 and self.left != 0

    def _slope(self, number: int, weight: float) -> _Slope:
        search = self._searches[number]
        if not search.granted:
            return _Slope(float("inf"), "first")
        if search.improvements is None or search.best_s is None:
            # Without a success it gets more trials, until it is given up; while these are under way, it waits.
            return _Slope(float("inf") if search.observed else 0.0, "no kernel")
        room, why = self._room(number, search.best_s)
        # Trials under way count as done, without a gain.
        improvements = dataclasses.replace(search.improvements, trials=search.granted)
        gain, without = improvements.expected(_TURN, _STEP * room), improvements.expected(_TURN, 0.0)
        return _Slope(weight * search.best_s * gain, "improving" if without > gain / 2 else why)

    def _room(self, number: int, best_s: float) -> tuple[float, Reason]:
        """The part of the latency that might be gained, optimistically, and the source of this estimate."""
        efficiency = min(1.0, self._bounds[number] / best_s)
        others = [
            self._bounds[n] / s.best_s for n in self._alike[number] if (s := self._searches[n]).best_s is not None
        ]
        reached = min(1.0, max(others, default=0.0))
        if reached > efficiency:
            return 1 - efficiency / reached, "similar"
        return 1 - efficiency, "roofline"


def _similar(a: Search, b: Search) -> bool:
    return are_alike(a.space.workload, b.space.workload)
