"""What `autosched simulate` can replay, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autosched.bench.simulated.replayed import Search
from autosched.strategies.engine import Engine, History
from search_spaces.errors import unknown_name
from search_spaces.schedules.plain_space import PlainSpace, Point

MakeSearch = Callable[[PlainSpace, int, int, Sequence[History]], Search]


class RandomSearch:
    """Every point once, in random order: what every search must beat. It takes no history."""

    def __init__(self, space: PlainSpace, seed: int) -> None:
        points = list(space)
        self._left = [points[place] for place in np.random.default_rng(seed).permutation(len(points))]

    def ask(self, count: int) -> list[Point]:
        asked, self._left = self._left[:count], self._left[count:]
        return asked

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None:
        """It learns nothing."""


def _evolutionary(space: PlainSpace, seed: int, budget: int, history: Sequence[History]) -> Search:
    return Engine(space, seed, budget, history)


def _random(space: PlainSpace, seed: int, budget: int, history: Sequence[History]) -> Search:
    return RandomSearch(space, seed)


SEARCHES: Mapping[str, MakeSearch] = {"evolutionary": _evolutionary, "random": _random}


def search_named(name: str) -> MakeSearch:
    """Raises InputError: there is no such search."""
    if name not in SEARCHES:
        raise unknown_name("strategy", name, SEARCHES)
    return SEARCHES[name]
