"""Which of several searches gets the next trials: the one that should take most off the weighted sum of latencies.

Source: Ansor (OSDI 2020, section 6.2), whose gradient mixes what a task gained of late with an optimistic guess, from
its own past and from what similar tasks reach. Here both say how large its next improvements may be: what it gained,
and a part of what lies between its latency and the roofline, or that part of the roofline to which similar kernels have
come. How likely they still are is what `remaining_gain` says.
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

# Why a search got its turn: it had none yet; it has no kernel yet; it improves; its best is far from the roofline; or
# similar kernels come nearer to theirs.
Reason = Literal["first", "no kernel", "improving", "roofline", "similar"]

# What is known of the size of improvements before a search has any: this part of what lies between the latency and what
# it may come to. At half of the roofline that is what searches alone expect.
_STEP = 2 * SIZE
# A task none of whose trials succeeded has so many before it is given up: the first three batches.
_PATIENCE = 48
# The trials of a turn that gradients are compared over.
_TURN = 16


@dataclass(frozen=True)
class Turn:
    """A batch of one search: why it was given, and what it was expected to take off the weighted sum, and did.

    `number` counts the batches of all searches as they ended. Of a first batch nothing is expected, since nothing is
    known.
    """

    number: int
    why: Reason
    trials: int
    expected_s: float | None
    gained_s: float


@dataclass(frozen=True)
class _Slope:
    """What a turn is expected to take off the weighted sum, and the reason that weighs most in it."""

    gain_s: float
    why: Reason


class Gradient:
    """Gives turns to searches, one batch each; `budget` is how many schedules are known in the end of all of them.

    Without a budget every search has its own `wanted`, or stops by itself. `weights` says what a second of each search
    counts by now: one that counts nothing any more has no turn, unless it has a `wanted` of its own. What a batch
    brings is told to the strategies of similar kernels.
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
        # The turns of every search that are under way: why, and its best before.
        self._given: list[deque[tuple[_Slope, float | None]]] = [deque() for _ in searches]
        self.turns: list[list[Turn]] = [[] for _ in searches]

    @property
    def left(self) -> int | None:
        """How much of the budget is left."""
        if self._budget is None:
            return None
        return max(0, self._budget - sum(search.granted for search in self._searches))

    @property
    def over(self) -> bool:
        """Whether nobody has a turn."""
        return not self._slopes()

    def next(self) -> Search | None:
        slopes = self._slopes()
        if not slopes:
            return None
        weights = self._weights()
        chosen = max(slopes, key=lambda n: (slopes[n].gain_s, weights[n]))
        search = self._searches[chosen]
        if self.left is not None:
            search.wanted = search.granted + self._share(search, slopes, self.left)
        self._given[chosen].append((slopes[chosen], search.best_s))
        return search

    def _share(self, search: Search, open_to: Iterable[int], left: int) -> int:
        """How much of what is left a turn may take: of a first one its share, so that every search has one."""
        first = sum(self._searches[n].granted == 0 for n in open_to)
        return left if search.granted else max(1, left // first)

    def passed(self, search: Search) -> None:
        self._given[self._searches.index(search)].pop()

    def told(self, search: Search, records: Sequence[TuningRecord]) -> None:
        task = self._searches.index(search)
        slope, before = self._given[task].popleft()
        after = min((r.measurement.undisturbed_s for r in records if r.measurement.ok), default=before)
        gained = max(0.0, before - after) * self._weights()[task] if before and after else 0.0
        expected = None if slope.gain_s == float("inf") else slope.gain_s
        self.turns[task].append(Turn(sum(map(len, self.turns)), slope.why, len(records), expected, gained))
        for other in self._alike[task]:
            self._searches[other].hear(records)

    def _slopes(self) -> dict[int, _Slope]:
        """The slope of every search that may have the next turn, by its number."""
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
            # Where nothing came of its trials, it has others, until it is given up; where they are under way, it waits.
            return _Slope(float("inf") if search.told else 0.0, "no kernel")
        room, why = self._room(number, search.best_s)
        # What is on its way counts as done, without having gained anything.
        improvements = dataclasses.replace(search.improvements, trials=search.granted)
        gain, without = improvements.expected(_TURN, _STEP * room), improvements.expected(_TURN, 0.0)
        return _Slope(weight * search.best_s * gain, "improving" if without > gain / 2 else why)

    def _room(self, number: int, best_s: float) -> tuple[float, Reason]:
        """The part of the latency that might go, optimistically, and what says so."""
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
