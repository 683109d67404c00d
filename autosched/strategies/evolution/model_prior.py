"""A cost model as the prior of Bayesian search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.strategies.bayesian.candidates import Candidates, Rows
from autosched.strategies.bayesian.observations import spread
from cost_models import CostModel
from cost_models.gaussian_process import Doubles
from search_spaces import Schedule, SearchSpace

# Least score: a model's scale ends there.
_LEAST_SCORE = 1e-6
# Lower bound for candidates predicted to be faster than all observed ones, in spreads of the observed.
_LEAST_DISTANCE = -0.9


class ModelPrior:
    """One guess: the label that a schedule would have, were its latency the predicted one."""

    spread = 0.0

    def __init__(self, space: SearchSpace, model: CostModel, candidates: Candidates[Schedule]) -> None:
        self._space = space
        self._model = model
        self._candidates = candidates
        self._logs = np.zeros(0)
        self._origin, self._spread, self._mean, self._deviation = 0.0, 1.0, 0.0, 1.0

    def __len__(self) -> int:
        return 1

    def best(self) -> Sequence[Schedule]:
        return []

    def learnt(self) -> None:
        """Drop cached predictions: the model was refitted."""
        self._logs[:] = np.nan

    def compared_with(self, rows: Rows) -> None:
        """Normalise guesses to the scale of the labels of these rows, which succeeded."""
        logs = self._predicted(rows)
        self._origin, self._spread = float(np.quantile(logs, 0.02)), spread(logs)
        pressed = self._pressed(logs)
        self._mean, self._deviation = float(pressed.mean()), max(float(pressed.std()), 1e-3)

    def guesses(self, rows: Rows) -> Doubles:
        return ((self._pressed(self._predicted(rows)) - self._mean) / self._deviation)[:, None]

    def _pressed(self, logs: Doubles) -> Doubles:
        """Compression of labels, as in `autosched.strategies.bayesian.observations`."""
        return np.asarray(np.log1p(np.maximum((logs - self._origin) / self._spread, _LEAST_DISTANCE)))

    def _predicted(self, rows: Rows) -> Doubles:
        """Logarithms of predicted latencies, up to a constant."""
        more = len(self._candidates.described) - len(self._logs)
        self._logs = np.concatenate([self._logs, np.full(more, np.nan)])
        new = np.unique(rows[np.isnan(self._logs[rows])])
        scores = self._model.predict(self._space, [self._space.bind(s) for s in self._candidates.points(new)])
        self._logs[new] = -np.log(np.maximum(scores, _LEAST_SCORE))
        return np.asarray(self._logs[rows])
