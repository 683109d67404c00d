"""One cost model for several searches that take turns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cost_models.cost_model import CostModel
from search_spaces import Schedule, SearchSpace
from tuning_logs import TuningRecord


class SharedModel:
    """Asked about a space, it knows what was last told of it, whatever was told of others since.

    Workloads of one family are not kept apart: their searches hear of each other's trials, so what was told of one of
    them last holds what is known of all.
    """

    def __init__(self, model: CostModel) -> None:
        self._model = model
        # What the model was last fitted to of every family, and the family that it is fitted to now.
        self._told: dict[str, tuple[SearchSpace, Sequence[TuningRecord]]] = {}
        self._fitted: str | None = None

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        self._told[space.workload.family] = (space, records)
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
        if family != self._fitted and family in self._told:
            self.fit(*self._told[family])
