"""What `autosched simulate` can replay, by name: the search core, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autosched.bench.simulated.plain_recipe import PlainRecipe
from autosched.strategies.bayesian import History, plain_search
from autosched.strategies.bayesian.points import PointSearch
from search_spaces.errors import InputError, unknown_name
from search_spaces.schedules.plain_space import PlainSpace, Point

MakeStrategy = Callable[[PlainSpace, int, Sequence[History]], PointSearch]


class RandomSearch:
    """Every point once, in random order, whatever it is told: what every search must beat."""

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


# The others begin cold, whatever they are told.
_LEARN_FROM_HISTORY = ("evolutionary",)


def strategy_named(name: str, with_history: bool = False) -> MakeStrategy:
    """What makes the search of that name.

    Raises:
        InputError: there is no such search, or it makes nothing of history.
    """
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
    if with_history and name not in _LEARN_FROM_HISTORY:
        raise InputError(
            f"--strategy {name} takes no history; expected {', '.join(_LEARN_FROM_HISTORY)} with --history"
        )
    return STRATEGIES[name]
