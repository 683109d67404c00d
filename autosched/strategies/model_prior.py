"""What a cost model says of schedules, as a guess that the search core begins with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autosched.strategies.engine.candidates import Candidates, Rows
from autosched.strategies.engine.observations import spread
from cost_models import CostModel
from search_spaces import Schedule, SearchSpace

Doubles = NDArray[np.float64]

# Scores below are as good as this: a model's scale ends there.
_LEAST_SCORE = 1e-6
# What is predicted to be faster than all that is known counts down to here, in spreads of what is known.
_LEAST_DISTANCE = -0.9


class ModelPrior:
    """One guess: the label that a schedule would have, were its latency the predicted one.

    Of what is measured, it is what was predicted before: a model that learnt from a trial is not surprised by it.
    """

    spread = 0.0

    def __init__(self, space: SearchSpace, model: CostModel, candidates: Candidates[Schedule]) -> None:
        self._space = space
        self._model = model
        self._candidates = candidates
        self._logs = np.zeros(0)
        self._foretold = np.zeros(0, bool)
        self._origin, self._spread, self._mean, self._deviation = 0.0, 1.0, 0.0, 1.0

    def __len__(self) -> int:
        return 1

    def best(self) -> Sequence[Schedule]:
        return []

    def foretell(self, schedules: Sequence[Schedule]) -> None:
        """These are about to be measured: what is predicted of them now stays."""
        rows = self._candidates.rows([s.unbound for s in schedules])
        self._grow()
        self._logs[rows] = self._logarithms(schedules)
        self._foretold[rows] = True

    def learnt(self) -> None:
        """The model has learnt: what it said of others no longer holds."""
        self._logs[~self._foretold] = np.nan

    def compared_with(self, rows: Rows) -> None:
        """Bring guesses to the scale of the labels of these rows, which succeeded."""
        logs = self._predicted(rows)
        self._origin, self._spread = float(np.quantile(logs, 0.02)), spread(logs)
        pressed = self._pressed(logs)
        self._mean, self._deviation = float(pressed.mean()), max(float(pressed.std()), 1e-3)

    def guesses(self, rows: Rows) -> Doubles:
        return ((self._pressed(self._predicted(rows)) - self._mean) / self._deviation)[:, None]

    def _pressed(self, logs: Doubles) -> Doubles:
        """As labels are (`autosched.strategies.engine.observations`)."""
        return np.asarray(np.log1p(np.maximum((logs - self._origin) / self._spread, _LEAST_DISTANCE)))

    def _predicted(self, rows: Rows) -> Doubles:
        """The logarithms of latencies, up to a constant."""
        self._grow()
        new = np.unique(rows[np.isnan(self._logs[rows])])
        self._logs[new] = self._logarithms([self._space.bind(s) for s in self._candidates.points(new)])
        return np.asarray(self._logs[rows])

    def _logarithms(self, schedules: Sequence[Schedule]) -> Doubles:
        return np.asarray(-np.log(np.maximum(self._model.predict(self._space, schedules), _LEAST_SCORE)))

    def _grow(self) -> None:
        more = len(self._candidates.described) - len(self._logs)
        self._logs = np.concatenate([self._logs, np.full(more, np.nan)])
        self._foretold = np.concatenate([self._foretold, np.zeros(more, bool)])
