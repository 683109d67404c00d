"""Exhaustive search: every legal schedule, for spaces of a few thousand and for recording tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from autosched.strategies.strategy import Stopped, schedules_of
from cost_models import CostModel
from search_spaces import Schedule, SearchSpace
from tuning_logs import TuningRecord


class Exhaustive:
    """All legal schedules, in the order of the space. Uses neither the cost model nor the random generator."""

    def __init__(self, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator) -> None:
        self._space = space
        self._known: set[Schedule] = set()
        self._rejected_before = space.rejected
        self._left: Iterator[Schedule] = iter(space)

    def ask(self, count: int) -> list[Schedule]:
        return list(islice((s for s in self._left if s not in self._known), count))

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        if not elsewhere:
            self._known |= schedules_of(self._space, records)

    @property
    def stopped(self) -> Stopped:
        return Stopped(illegal=self._space.rejected - self._rejected_before)
