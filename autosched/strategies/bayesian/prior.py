"""Priors from measurements made elsewhere, and how far to trust them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Protocol, TypeVar

import numpy as np

from autosched.strategies.bayesian.candidates import Candidates, Rows
from autosched.strategies.bayesian.observations import History, labels, logarithms, spread
from cost_models.gaussian_process import CovarianceKernel, Described, Description, Doubles, factored, most_telling
from search_spaces.schedules.plain_space import PlainSpace, Point

P_co = TypeVar("P_co", bound=Hashable, covariant=True)

# A history with fewer successes is not learnt from; its best points are measured all the same.
_LEAST_SUCCESSES = 8
# Successes of a history that are learnt from; half of them are the best.
_MOST_LEARNT = 400
# Weight of a history: as if so many measurements here had confirmed it.
_TRUST = 10.0
# Points predicted at once: memory is this number times that of the training points.
_AT_ONCE = 4096


class Prior(Protocol[P_co]):
    """Expectation of labels before measuring, as any number of separate guesses."""

    def __len__(self) -> int:
        """Number of guesses per point."""
        ...

    @property
    def spread(self) -> float:
        """Distance of the median of the measurements from elsewhere to their best, in logarithms."""
        ...

    def best(self) -> Sequence[P_co]:
        """Points that succeeded elsewhere, the best first."""
        ...

    def guesses(self, rows: Rows) -> Doubles:
        """Guessed labels of candidates, shape (rows, guesses)."""
        ...


class Histories:
    """Guesses from histories, one Gaussian process each, as seconds of different devices do not compare."""

    def __init__(
        self,
        space: PlainSpace,
        description: Description,
        history: Sequence[History],
        candidates: Candidates[Point],
        rng: np.random.Generator,
    ) -> None:
        """`description`: features of the space's points for the covariance kernel."""
        known = [_Successes.of(space, one) for one in history]
        self._best = [successes.in_order() for successes in known]
        learnt = [successes for successes in known if len(successes.points) >= _LEAST_SUCCESSES]
        self._sources = [_HistoryProcess(description, space, successes, rng) for successes in learnt]
        self._candidates = candidates
        self._guesses = np.zeros((0, len(self._sources)))

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def spread(self) -> float:
        return min((source.spread for source in self._sources), default=0.0)

    def best(self) -> list[Point]:
        in_turn = chain.from_iterable(zip_longest(*self._best))
        return list(dict.fromkeys(point for point in in_turn if point is not None))

    def guesses(self, rows: Rows) -> Doubles:
        described, known = self._candidates.described, len(self._guesses)
        if len(described) > known:
            new = described[np.arange(known, len(described))]
            more = np.stack([source.guesses(new) for source in self._sources], axis=1)
            self._guesses = np.concatenate([self._guesses, more])
        return np.asarray(self._guesses[rows])


def trusted(guesses: Doubles, measured: Doubles) -> Doubles:
    """Weight of each history's guesses, none negative, fitted to the measured labels.

    Ridge regression towards the mean of all guesses: a misleading history loses weight with every measurement.
    """
    count = guesses.shape[1]
    away = guesses - guesses.mean(axis=0)
    squares = away.T @ away + _TRUST * np.eye(count)
    found = np.linalg.solve(squares, away.T @ (measured - measured.mean()) + _TRUST / count)
    return np.asarray(np.clip(found, 0.0, None))


@dataclass(frozen=True)
class _Successes:
    """Successes of a history at points that this space can represent, and the logarithms of their seconds."""

    points: Sequence[Point]
    logs: Doubles

    @staticmethod
    def of(space: PlainSpace, history: History) -> _Successes:
        logs = logarithms(history.seconds)
        kept = [i for i, point in enumerate(history.points) if np.isfinite(logs[i]) and space.describes(point)]
        return _Successes([space.read(history.points[i]) for i in kept], logs[kept])

    def in_order(self) -> list[Point]:
        """The best first."""
        return [self.points[place] for place in np.argsort(self.logs, kind="stable")]


class _HistoryProcess:
    """A Gaussian process fitted to one history."""

    def __init__(
        self, description: Description, space: PlainSpace, successes: _Successes, rng: np.random.Generator
    ) -> None:
        points, logs = successes.points, successes.logs
        self.spread = spread(logs)
        kept = most_telling(logs, rng, _MOST_LEARNT)
        self._known = description(space.codes([points[place] for place in kept]))
        values = labels(logs[kept])
        seen = most_telling(values, rng)
        self._kernel = CovarianceKernel.usual(self._known.columns.shape[1]).fitted(
            self._known[seen], values[seen], first=True
        )
        known = self._known.precise()
        lower = factored(np.asarray(self._kernel.between(known, known), dtype=np.float64), self._kernel.noise)
        self._weights = np.linalg.solve(lower.T, np.linalg.solve(lower, values))

    def guesses(self, described: Described) -> Doubles:
        places = np.array_split(np.arange(len(described)), len(described) // _AT_ONCE + 1)
        parts = [self._weights @ self._kernel.between(self._known, described[some]) for some in places]
        return np.asarray(np.concatenate(parts), dtype=np.float64)
