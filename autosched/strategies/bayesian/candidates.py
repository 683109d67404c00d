"""Candidate points of a space, numbered, with the features that models see."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cost_models.gaussian_process import Described
from search_spaces.errors import EmptySearchSpaceError

Rows = NDArray[np.intp]
# Points of a space.
P = TypeVar("P", bound=Hashable)

# Of a listed space, at most so many points are scored at once, drawn at random.
_MOST_LOOKED_AT = 20_000
# Then the neighbours of so many best points are scored in any case.
_CENTRES = 32
# Points far from each other (a space-filling start) are chosen among so many random ones.
_SPREAD_OVER = 2_000


class CandidateSource(Protocol[P]):
    """Generator of candidates for a space too large to list; all of them are legal."""

    def fresh(self, best: Sequence[P]) -> Iterable[P]:
        """Candidates, known or not; `best` are all points that succeeded, the best first.

        Raises:
            EmptySearchSpaceError: none was found. If points are known already, this means that nothing is left.
        """
        ...

    def neighbours(self, point: P) -> Iterable[P]:
        """The points one step away."""
        ...


class Candidates(Generic[P]):
    """Numbering of the points of a space: of all where they can be listed, else of those seen so far.

    `describe` gives the features of points for the covariance kernel, a row each.
    """

    def __init__(
        self,
        source: CandidateSource[P],
        describe: Callable[[Sequence[P]], Described],
        rng: np.random.Generator,
        listed: Sequence[P] | None = None,
    ) -> None:
        self._source = source
        self._rng = rng
        self._describe = describe
        self._all = listed is not None
        self._points: list[P] = []
        self._row: dict[P, int] = {}
        self._open = np.zeros(0, bool)
        self.described = describe([])
        self.rows(listed or ())

    def rows(self, points: Iterable[P]) -> Rows:
        """The numbers of points; points without one get a new one."""
        points = list(points)
        new = [p for p in dict.fromkeys(points) if p not in self._row]
        if new:
            self._row.update((point, len(self._points) + i) for i, point in enumerate(new))
            self._points += new
            more = self._describe(new)
            self.described = Described(
                np.concatenate([self.described.columns, more.columns]),
                np.concatenate([self.described.effects, more.effects]),
            )
            self._open = np.concatenate([self._open, np.ones(len(new), bool)])
        return np.array([self._row[p] for p in points], dtype=np.intp)

    def points(self, rows: Rows) -> list[P]:
        return [self._points[row] for row in rows]

    def close(self, rows: Rows) -> None:
        """Exclude points for good: they were asked for or observed."""
        self._open[rows] = False

    def is_open(self, rows: Rows) -> NDArray[np.bool_]:
        return self._open[rows]

    def fresh(self, best: Rows) -> Rows:
        """Open points to score, given the successful ones, the best first; empty if none is left."""
        if not self._all:
            rows = np.unique(self.rows(self._from_source(best)))
            return rows[self._open[rows]]
        left = np.flatnonzero(self._open)
        if len(left) > _MOST_LOOKED_AT:
            drawn = self._rng.choice(left, _MOST_LOOKED_AT, replace=False)
            left = np.unique(np.concatenate([drawn, *[self.neighbours(row) for row in best[:_CENTRES]]]))
        return left

    def _from_source(self, best: Rows) -> Iterable[P]:
        try:
            return self._source.fresh(self.points(best))
        except EmptySearchSpaceError:
            if not self._points:
                raise
            return ()

    def neighbours(self, row: int) -> Rows:
        """The open points one step away from this one."""
        found = self.rows(self._source.neighbours(self._points[row]))
        return found[self._open[found]]

    def spread(self, count: int) -> Rows:
        """At most `count` open points far from each other (maximin design, each the farthest of a random sample)."""
        pool = self.fresh(np.zeros(0, np.intp))
        pool = self._rng.permutation(pool)[:_SPREAD_OVER]
        columns = self.described.columns[pool]
        chosen = [0][: len(pool)]
        distance = np.abs(columns - columns[chosen]).sum(axis=1) if chosen else np.zeros(0)
        while len(chosen) < min(count, len(pool)):
            chosen.append(int(distance.argmax()))
            distance = np.minimum(distance, np.abs(columns - columns[chosen[-1]]).sum(axis=1))
            distance[chosen] = -1.0
        return pool[chosen]
