"""The points of a space that a search may ask for, by number, and what models see of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cost_models.gaussian_process import Described
from search_spaces.errors import EmptySearchSpaceError

Rows = NDArray[np.intp]
# Points of a space.
P = TypeVar("P", bound=Hashable)

# Of a space that is listed, so many points at most are looked at in one go, drawn at random.
_MOST_LOOKED_AT = 20_000
# Points that lie far from each other are chosen among so many drawn at random.
_SPREAD_OVER = 2_000
# Of a space too large for a list: so many are drawn, and as many children of the best made.
_DRAWN = 1_000


class Searchable(Protocol[P]):
    """A space whose points a search may draw, change and mix; all of them are legal."""

    def sample(self, rng: np.random.Generator) -> P:
        """Raises EmptySearchSpaceError where there is no point."""
        ...

    def mutate(self, point: P, rng: np.random.Generator, /) -> P: ...

    def crossover(self, a: P, b: P, rng: np.random.Generator) -> P: ...

    def neighbours(self, point: P, /) -> Iterator[P]: ...


class Candidates(Generic[P]):
    """Numbers the points of a space: all of them where they can be listed, else those that came up so far.

    `describe` says what the kernel sees of points, a row each.
    """

    def __init__(
        self,
        space: Searchable[P],
        describe: Callable[[Sequence[P]], Described],
        rng: np.random.Generator,
        listed: Sequence[P] | None = None,
    ) -> None:
        self._space = space
        self._rng = rng
        self._describe = describe
        self._all = listed is not None
        self._points: list[P] = []
        self._row: dict[P, int] = {}
        self._open = np.zeros(0, bool)
        self.described = describe([])
        self.rows(listed or ())

    def rows(self, points: Iterable[P]) -> Rows:
        """The numbers of points, which get new ones where they have none."""
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
        """These were asked for or told: never again."""
        self._open[rows] = False

    def is_open(self, rows: Rows) -> NDArray[np.bool_]:
        return self._open[rows]

    def fresh(self, best: Rows) -> Rows:
        """Open points to look at anew, where `best` are the best known; none where none is left."""
        if not self._all:
            return self._drawn(best)
        left = np.flatnonzero(self._open)
        if len(left) > _MOST_LOOKED_AT:
            drawn = self._rng.choice(left, _MOST_LOOKED_AT, replace=False)
            left = np.unique(np.concatenate([drawn, *[self.neighbours(row) for row in best]]))
        return left

    def neighbours(self, row: int) -> Rows:
        """The open points one step away from this one."""
        found = self.rows(self._space.neighbours(self._points[row]))
        return found[self._open[found]]

    def spread(self, count: int) -> Rows:
        """So many open points, far from each other: each the farthest from those before of some drawn."""
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

    def _drawn(self, best: Rows) -> Rows:
        """Random points, neighbours of the best, and children of them."""
        found: dict[P, None] = {}
        try:
            found.update(dict.fromkeys(self._space.sample(self._rng) for _ in range(_DRAWN)))
        except EmptySearchSpaceError:
            if not self._points:
                raise
        found.update(dict.fromkeys(self._children(self.points(best))))
        rows = self.rows(found)
        near = [self.neighbours(row) for row in best[:2]]
        rows = np.unique(np.concatenate([rows, *near]))
        return rows[self._open[rows]]

    def _children(self, parents: Sequence[P]) -> list[P]:
        children = []
        for _ in range(_DRAWN if parents else 0):
            a, b = (parents[int(i)] for i in self._rng.integers(len(parents), size=2))
            children.append(self._space.mutate(self._space.crossover(a, b, self._rng), self._rng))
        return children
