"""Evolution of a population of schedules under a cost model's predicted scores: the source of a search's candidates.

Source: Ansor (OSDI 2020, section 5.1). Different here: crossover by knobs, and neighbours of the best measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from autosched.strategies.strategy import Family, family_of
from cost_models import CostModel
from search_spaces import Schedule, SearchSpace

# Parents are the best schedules, at most so many of one family (equal tiles), so that slower families are explored,
# too. Without this bound four of five trials went to the family that was fastest first (matrix products on an H200, 250
# trials each).
PARENTS = 24
_PER_FAMILY = 4
# Candidates per schedule asked for and generation, within bounds. Twice as many double the time and gain 2 % at most:
# within the scatter of 24 searches of a simulated device.
_CANDIDATES_PER_ASKED = 2
_POPULATION = (48, 96)
# A small request comes from a small population: lowering it takes as long as compiling what is asked for.
_MOST_PER_ASKED = 4
_GENERATIONS = 4
_MUTATION = 0.85
# The starting population: this part from the best measured, the rest random. With half of it random, searches of a
# simulated CPU ended 7 % slower (24 seeds).
_FROM_BEST = 0.8
# Neighbourhoods that are searched: one for so many schedules asked for.
_ASKED_PER_CENTRE = 16
# Candidates with a greater chance of failure are left out. One let through wrongly costs a trial, one stopped wrongly
# may be the best: hence only where failures are four to one.
_HOPELESS = 0.8


class Evolution:
    """Source of candidates, sized for a request of `wanted` schedules."""

    def __init__(self, space: SearchSpace, model: CostModel, rng: np.random.Generator) -> None:
        self._space = space
        self._model = model
        self._rng = rng
        # Cache: the neighbours of the best are asked for again and again.
        self._neighbours: dict[Schedule, list[Schedule]] = {}
        self.wanted = 1
        self.infeasible: set[Schedule] = set()

    def fresh(self, best: Sequence[Schedule]) -> list[Schedule]:
        """Neighbours of the best, and all schedules of the generations, except those predicted to fail."""
        parents = [self._space.bind(s) for s in islice(_spread(best), PARENTS)]
        centres = {family_of(s): s for s in reversed(parents)}
        first = islice((s for s in parents if centres[family_of(s)] is s), -(-self.wanted // _ASKED_PER_CENTRE))
        near = [self._space.bind(n) for s in first for n in self.neighbours(s.unbound)]
        # A lowered program takes 10 kB: candidates are kept without it.
        return [s.unbound for s in self.hopeful(dict.fromkeys([*near, *self._evolved(parents)]))]

    def neighbours(self, point: Schedule) -> list[Schedule]:
        if point not in self._neighbours:
            self._neighbours[point] = [s.unbound for s in self._space.neighbours(self._space.bind(point))]
        return self._neighbours[point]

    def hopeful(self, schedules: Iterable[Schedule]) -> list[Schedule]:
        """Schedules not predicted to fail, in the given order."""
        schedules = list(schedules)
        hopeless = self._model.failure_chance(self._space, schedules) > _HOPELESS
        self.infeasible.update(s.unbound for s, stop in zip(schedules, hopeless, strict=True) if stop)
        return [s for s, stop in zip(schedules, hopeless, strict=True) if not stop]

    def _evolved(self, best: Sequence[Schedule]) -> list[Schedule]:
        least, most = _POPULATION
        size = min(max(_CANDIDATES_PER_ASKED * self.wanted, least), _MOST_PER_ASKED * self.wanted, most)
        population = self._first_population(best, size)
        seen = dict.fromkeys(population)
        for _ in range(_GENERATIONS - 1 if best else 0):
            population = self._next_population(population)
            seen.update(dict.fromkeys(population))
        return list(seen)

    def _first_population(self, best: Sequence[Schedule], size: int) -> list[Schedule]:
        from_best = max(len(best), int(_FROM_BEST * size)) if best else 0
        mutated = [self._mutated(best[i % len(best)]) for i in range(from_best - len(best))]
        return [*best, *mutated, *(self._space.sample(self._rng) for _ in range(size - from_best))]

    def _next_population(self, population: list[Schedule]) -> list[Schedule]:
        """Children of parents drawn with probability proportional to their predicted score."""
        scores = np.maximum(self._model.predict(self._space, population), 1e-6)
        parents = self._rng.choice(len(population), size=(len(population), 2), p=scores / scores.sum())
        mutates = self._rng.random(len(population)) < _MUTATION
        return [
            self._mutated(population[a]) if mutate else self._space.crossover(population[a], population[b], self._rng)
            for (a, b), mutate in zip(parents, mutates, strict=True)
        ]

    def _mutated(self, schedule: Schedule) -> Schedule:
        return self._space.mutate(schedule, self._rng)


def _spread(schedules: Iterable[Schedule]) -> Iterator[Schedule]:
    """The schedules in order, at most `_PER_FAMILY` of each family."""
    families: Counter[Family] = Counter()
    for schedule in schedules:
        families[family_of(schedule)] += 1
        if families[family_of(schedule)] <= _PER_FAMILY:
            yield schedule
