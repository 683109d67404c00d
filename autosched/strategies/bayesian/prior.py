"""What was measured elsewhere, as a guess of what will be measured here, and how far to trust it."""

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

# Successes below which nothing is learnt from a history: the best of it is measured all the same.
_LEAST_SUCCESSES = 8
# Successes of a history that are learnt from, half of them the best.
_MOST_LEARNT = 400
# A history is trusted as if so many measurements here had confirmed it.
_TRUST = 10.0
# Points that are looked at together: memory is the number times that of what was learnt from.
_AT_ONCE = 4096


class Prior(Protocol[P_co]):
    """What is expected of points before they are measured, by none or several who guess."""

    def __len__(self) -> int:
        """How many guess."""
        ...

    @property
    def spread(self) -> float:
        """How far the median of what was measured elsewhere is from the best, in logarithms."""
        ...

    def best(self) -> Sequence[P_co]:
        """What succeeded elsewhere, the best first."""
        ...

    def guesses(self, rows: Rows) -> Doubles:
        """What each of them says of candidates, shape (rows, guesses)."""
        ...


class Histories:
    """Guesses labels from histories: each is learnt by itself, as seconds of different devices do not compare."""

    def __init__(
        self,
        space: PlainSpace,
        description: Description,
        history: Sequence[History],
        candidates: Candidates[Point],
        rng: np.random.Generator,
    ) -> None:
        """`description`: what the kernel sees of the points of the space."""
        known = [_Successes.of(space, told) for told in history]
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
    """How much of each history's guesses to believe, none being negative, from the labels that were measured.

    Ridge regression towards the mean of all of them: what guesses wrongly here fades with every measurement.
    """
    count = guesses.shape[1]
    away = guesses - guesses.mean(axis=0)
    squares = away.T @ away + _TRUST * np.eye(count)
    found = np.linalg.solve(squares, away.T @ (measured - measured.mean()) + _TRUST / count)
    return np.asarray(np.clip(found, 0.0, None))


@dataclass(frozen=True)
class _Successes:
    """What succeeded of a history, at points that this space has values for, and the logarithms of its seconds."""

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
    """One history, learnt by a Gaussian process."""

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
