"""The probability that a schedule fails, learnt from failures: gradient-boosted trees on the same features.

Schedules it rejects need not be compiled. Any trial that did not end "ok" counts as failed: a timeout costs the most of
all, and a schedule pruned after compiling could not win. A failure without a cause in its schedule (a full machine)
does little harm: trees need several of them close together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cost_models.trees import Floats, Trees, train

# Failures, and successes, needed for predictions: one leaf of each of the size below. Most is won early, before the
# scores are learnt: with rules planted in a recorded table, the second batch failed 3 to 14 times less often than
# without; waiting for 8 of each gave most of that away.
_ENOUGH = 4
_ROUNDS = 25
# Few shallow trees: failures are mostly due to one value, or two or three together. With logistic loss a record weighs
# at most 1/4 in `min_child_weight`: a leaf takes at least four records.
_TREES: dict[str, str | float] = {
    "objective": "binary:logistic",
    "base_score": 0.5,
    "max_depth": 3,
    "eta": 0.3,
    "min_child_weight": 1.0,
}


class Feasibility:
    """Predicts the chance of failure from features; 0 for everything until there are enough failures and successes."""

    def __init__(self, seed: int, loaded: Trees | None = None) -> None:
        """`loaded`: trees that were trained before, which stay until enough is known to train others."""
        self._settings = {**_TREES, "seed": seed}
        self._loaded = loaded
        self._trees = loaded

    def fit(self, rows: Floats, failed: NDArray[np.bool_]) -> None:
        """Learn from all trials known so far, a row and an outcome each, forgetting earlier fits."""
        self._trees = self._loaded
        if min(failed.sum(), (~failed).sum()) >= _ENOUGH:
            self._trees = train(rows, failed.astype(np.float32), self._settings, _ROUNDS)

    @property
    def trees(self) -> Trees | None:
        """The trained trees; None while too little is known."""
        return self._trees

    def chance(self, rows: Floats) -> NDArray[np.float64]:
        """The chance that each of the rows fails, shape (len(rows),)."""
        return np.zeros(len(rows)) if self._trees is None else self._trees.predict(rows)
