"""The interface of cost models: they learn from tuning records and rank schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from search_spaces import Schedule, SearchSpace
from tuning_logs import TuningRecord


class CostModel(Protocol):
    """Ranks the schedules of a search space, and predicts failures; all knowledge comes from `fit`.

    The same seed and the same calls give the same results. One model may serve several searches: one after the other,
    or alternately, as a `SharedModel`.
    """

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        """Learn from all records known so far, forgetting earlier fits.

        Records may be of other workloads and targets than the space's, and of schedules that can no longer be lowered;
        a model uses those it can.
        """
        ...

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        """A score per schedule, shape (len(schedules),): higher is better.

        The score is a predicted speed relative to the best known of this space, lowest latency / latency: 1 is as fast
        as the best, 0.5 takes twice as long. A model that knows no measurements gives relative speeds on a scale of
        its own; only their order and ratios within one space mean anything.
        """
        ...

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        """The probability that each schedule fails or is pruned when it is tried, shape (len(schedules),).

        0 for all of them while too few failures are known, and by a model that does not learn.
        """
        ...
