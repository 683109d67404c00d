"""The baseline that every cost model must beat: random scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search_spaces import Schedule, SearchSpace
from tuning_logs import TuningRecord


class RandomModel:
    """Uniform random scores in [0, 1)."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        """Nothing is learned."""

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        return self._rng.random(len(schedules))

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        return np.zeros(len(schedules))
