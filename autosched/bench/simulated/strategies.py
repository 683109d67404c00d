"""Strategies of `autosched simulate`, by name: Bayesian search, and its comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autosched.bench.simulated.replayed import Seconds
from autosched.strategies.bayesian import History, plain_search
from autosched.strategies.bayesian.points import PointSearch
from cost_models.trees import Trees, train
from search_spaces.errors import InputError, unknown_name
from search_spaces.schedules.plain_space import PlainSpace, Point

_ROUND = 16
_RANDOM = 0.05
_POPULATION, _GENERATIONS, _MUTATION, _FROM_BEST = 512, 4, 0.85, 0.2
_TREES: dict[str, str | float] = {
    "objective": "reg:squarederror",
    "max_depth": 6,
    "eta": 0.2,
    "gamma": 0.001,
    "min_child_weight": 0,
}
_ROUNDS = 60


class PlainRecipe:
    """The recipe of Ansor on a plain space, which begins cold, whatever was measured elsewhere.

    Rounds of 16: XGBoost on the knob values learns best / time, a population evolves on its scores for four
    generations, the best of it are measured and one in twenty at random. Source: Ansor (OSDI 2020), section 5, in its
    published sizes.
    """

    def __init__(self, space: PlainSpace, seed: int, history: Sequence[History] = ()) -> None:
        self._space, self._seed, self._rng = space, seed, np.random.default_rng(seed)
        self._told: dict[Point, float] = {}

    def ask(self, count: int) -> list[Point]:
        count = min(count, _ROUND)
        best = sorted((p for p in self._told if math.isfinite(self._told[p])), key=lambda p: self._told[p])
        chosen = dict.fromkeys(self._evolved(best)[: round((1 - _RANDOM) * count)] if best else ())
        for _ in range(100 * count):
            if len(chosen) == count:
                break
            if (drawn := self._space.sample(self._rng)) not in self._told:
                chosen[drawn] = None
        return list(chosen) or [p for p in self._space if p not in self._told][:count]

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None:
        self._told.update((p, math.inf if s is None else s) for p, s in zip(points, seconds, strict=True))

    def _evolved(self, best: Sequence[Point]) -> list[Point]:
        """Candidates that were not measured, best predicted first."""
        fastest = self._told[best[0]]
        labels = np.array([fastest / s for s in self._told.values()], dtype=np.float32)
        rows = self._space.features(list(self._told)).astype(np.float32)
        trees = train(rows, labels, {**_TREES, "seed": self._seed}, _ROUNDS, weights=np.maximum(labels, 0.05))
        parents = list(best[: int(_FROM_BEST * _POPULATION)])
        population = [*parents, *(self._space.sample(self._rng) for _ in range(_POPULATION - len(parents)))]
        scores: dict[Point, float] = {}
        for generation in range(_GENERATIONS):
            found = self._scores(trees, population)
            scores.update(zip(population, found.tolist(), strict=True))
            if generation < _GENERATIONS - 1:
                population = self._children(population, np.maximum(found, 1e-6))
        return sorted((p for p in scores if p not in self._told), key=lambda p: -scores[p])

    def _scores(self, trees: Trees, points: Sequence[Point]) -> Seconds:
        return trees.predict(self._space.features(points).astype(np.float32))

    def _children(self, population: Sequence[Point], scores: Seconds) -> list[Point]:
        pairs = self._rng.choice(len(population), size=(len(population), 2), p=scores / scores.sum())
        mutates = self._rng.random(len(population)) < _MUTATION
        return [
            self._space.mutate(population[a], self._rng)
            if mutate
            else self._space.crossover(population[a], population[b], self._rng)
            for (a, b), mutate in zip(pairs, mutates, strict=True)
        ]


MakeStrategy = Callable[[PlainSpace, int, Sequence[History]], PointSearch]


class RandomSearch:
    """Every point once, in random order, without learning: the baseline of every search."""

    def __init__(self, space: PlainSpace, seed: int, history: Sequence[History] = ()) -> None:
        points = list(space)
        self._left = [points[place] for place in np.random.default_rng(seed).permutation(len(points))]

    def ask(self, count: int) -> list[Point]:
        asked, self._left = self._left[:count], self._left[count:]
        return asked

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None:
        """It learns nothing."""


STRATEGIES: Mapping[str, MakeStrategy] = {
    "evolutionary": plain_search,
    "recipe": PlainRecipe,
    "random": RandomSearch,
}


# The others begin cold.
_LEARN_FROM_HISTORY = ("evolutionary",)


def strategy_named(name: str, with_history: bool = False) -> MakeStrategy:
    """The maker of the search of that name.

    Raises:
        InputError: there is no such search, or it does not use history.
    """
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
    if with_history and name not in _LEARN_FROM_HISTORY:
        raise InputError(
            f"--strategy {name} takes no history; expected {', '.join(_LEARN_FROM_HISTORY)} with --history"
        )
    return STRATEGIES[name]
