"""One cost model for several alternating searches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cost_models.cost_model import CostModel
from search_spaces import Schedule, SearchSpace
from tuning_logs import TuningRecord


class SharedModel:
    """A cost model that is refitted to a space's last observed records when the space changes.

    One family shares one model: observing any member updates all.
    """

    def __init__(self, model: CostModel) -> None:
        self._model = model
        # The last fit of every family, and the family of the present fit.
        self._observed: dict[str, tuple[SearchSpace, Sequence[TuningRecord]]] = {}
        self._fitted: str | None = None

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        self._observed[space.workload.family] = (space, records)
        self._fitted = space.workload.family
        self._model.fit(space, records)

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        self._recall(space)
        return self._model.predict(space, schedules)

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        self._recall(space)
        return self._model.failure_chance(space, schedules)

    def _recall(self, space: SearchSpace) -> None:
        family = space.workload.family
        if family != self._fitted and family in self._observed:
            self.fit(*self._observed[family])
