"""The analytic cost model: no data needed, so it is also the prior of models that learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cost_models.roofline import bound_s, latency_s
from search_spaces import Schedule, SearchSpace
from tuning_logs import TuningRecord


class RooflineModel:
    """Scores by the roofline estimate of the tile program: bound of the workload / estimated latency, in (0, 1]."""

    def __init__(self, seed: int) -> None:
        del seed  # nothing is drawn

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        """Nothing is learned."""

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        bound = bound_s(space.workload, space.target)
        latencies = [latency_s(s.program, space.target, space.backends[s.backend]) for s in schedules]
        return bound / np.array(latencies, dtype=np.float64)

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        return np.zeros(len(schedules))
