"""Bayesian search of a plain space: features are its knobs, histories give a warm start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autosched.strategies.bayesian.candidates import Candidates
from autosched.strategies.bayesian.observations import History
from autosched.strategies.bayesian.prior import Histories
from autosched.strategies.bayesian.search import BayesianSearch
from cost_models.gaussian_process import Description
from search_spaces.errors import EmptySearchSpaceError
from search_spaces.schedules.plain_space import PlainSpace, Point

# So many of the histories' best points are checked for being legal here.
_MOST_SEEDS = 50


# Of a space too large to list: so many random points, and as many children of the best.
_DRAWN = 1_000
_PARENTS = 32


class PlainSource:
    """Random points, children of the best, and the neighbours of the first of these."""

    def __init__(self, space: PlainSpace, rng: np.random.Generator) -> None:
        self._space = space
        self._rng = rng

    def fresh(self, best: Sequence[Point]) -> list[Point]:
        drawn = self._drawn(any_known=bool(best))
        near = [n for point in best[:2] for n in self._space.neighbours(point)]
        return list(dict.fromkeys([*drawn, *self._children(best[:_PARENTS]), *near]))

    def neighbours(self, point: Point) -> Iterator[Point]:
        return self._space.neighbours(point)

    def _drawn(self, any_known: bool) -> list[Point]:
        drawn: list[Point] = []
        try:
            while len(drawn) < _DRAWN:
                drawn.append(self._space.sample(self._rng))
        except EmptySearchSpaceError:
            if not any_known and not drawn:
                raise
        return drawn

    def _children(self, parents: Sequence[Point]) -> list[Point]:
        children = []
        for _ in range(_DRAWN if parents else 0):
            a, b = (parents[int(i)] for i in self._rng.integers(len(parents), size=2))
            children.append(self._space.mutate(self._space.crossover(a, b, self._rng), self._rng))
        return children


def plain_search(space: PlainSpace, seed: int, history: Sequence[History] = ()) -> BayesianSearch[Point]:
    """The search of a plain space, warm-started by measurements from elsewhere."""
    rng, description = np.random.default_rng(seed), Description(space.columns)
    candidates = Candidates(PlainSource(space, rng), lambda points: description(space.codes(points)), rng, space.points)
    prior = Histories(space, description, history, candidates, rng)
    return BayesianSearch(candidates, prior, [p for p in prior.best()[:_MOST_SEEDS] if space.holds(p)], rng)


@dataclass(frozen=True)
class InBatches:
    """A search that is asked for so many points at once, of which it observes none before it has proposed all."""

    search: BayesianSearch[Point]
    size: int

    def ask(self, count: int) -> list[Point]:
        asked = min(count, self.size)
        return self.search.ask(asked, least=asked)

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None:
        self.search.tell(points, seconds)
