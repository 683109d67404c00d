"""Random search: the strategy that every other one must beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.strategies.strategy import Stopped, draw, schedules_of
from cost_models import CostModel
from search_spaces import Schedule, SearchSpace
from tuning_logs import TuningRecord


class Random:
    """Random legal schedules, without repetition. Does not use the cost model."""

    def __init__(self, space: SearchSpace, cost_model: CostModel, rng: np.random.Generator) -> None:
        self._space = space
        self._rng = rng
        self._known: set[Schedule] = set()
        self._rejected_before = space.rejected

    def ask(self, count: int) -> list[Schedule]:
        drawn = draw(self._space, count, self._known, self._rng)
        self._known.update(drawn)
        return drawn

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        if not elsewhere:
            self._known |= schedules_of(self._space, records)

    @property
    def stopped(self) -> Stopped:
        return Stopped(illegal=self._space.rejected - self._rejected_before)
