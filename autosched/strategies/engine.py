"""The search core: which points of a space to measure next, learnt from what was measured.

It knows points and seconds only: neither devices nor logs nor files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.trees import train
from search_spaces.errors import EmptySearchSpaceError
from search_spaces.schedules.plain_space import PlainSpace, Point

_FIRST = 8
_BATCH = 4
_POOL = 2000
_TREES: dict[str, str | float] = {"objective": "reg:squarederror", "max_depth": 6, "eta": 0.2, "subsample": 0.8}


@dataclass(frozen=True)
class History:
    """What was measured elsewhere: on another device, at another shape, with another key.

    `points` are of the space that is searched, and may be illegal here; a failure has None or infinity for its seconds.
    """

    device: str
    points: Sequence[Point]
    seconds: Sequence[float | None]


class Engine:
    """Ask-and-tell search of one space. The same seed and the same answers give the same proposals."""

    def __init__(
        self, space: PlainSpace, seed: int, budget: int | None = None, history: Sequence[History] = ()
    ) -> None:
        self._space = space
        self._rng = np.random.default_rng(seed)
        self._seed = seed
        self._known: dict[Point, float] = {}
        self._asked: set[Point] = set()
        self._left = budget

    def ask(self, count: int) -> list[Point]:
        """At most `count` points to measure next: legal, all different, and neither asked nor told before.

        Often fewer, so that what is learnt from them chooses the next; none only when nothing is left.
        """
        pool = self._pool()
        wanted = min(count, _FIRST if len(self._known) < _FIRST else _BATCH)
        order = np.argsort(self._predicted(pool), kind="stable")
        asked = [pool[i] for i in order[:wanted]]
        self._asked.update(asked)
        return asked

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None:
        """What points took, asked for or not; None, infinity or NaN where they failed."""
        for point, took in zip(points, seconds, strict=True):
            self._known[point] = took if took is not None and math.isfinite(took) else math.inf

    def _pool(self) -> list[Point]:
        if self._space.points is not None:
            left = [p for p in self._space.points if p not in self._asked and p not in self._known]
            return [left[i] for i in self._rng.permutation(len(left))]
        best = sorted(self._known, key=lambda p: self._known[p])[:4]
        found = dict.fromkeys(n for point in best for n in self._space.neighbours(point))
        try:
            found.update(dict.fromkeys(self._space.sample(self._rng) for _ in range(_POOL)))
        except EmptySearchSpaceError:
            if not self._known:
                raise
        return [p for p in found if p not in self._asked and p not in self._known]

    def _predicted(self, pool: Sequence[Point]) -> NDArray[np.float64]:
        seconds = np.array(list(self._known.values()))
        ok = np.isfinite(seconds)
        if len(seconds) < _FIRST or not ok.any() or not pool:
            return np.zeros(len(pool))
        worst = seconds[ok].max()
        labels = np.log(np.where(ok, seconds, worst) / worst).astype(np.float32)
        rows = self._space.features(list(self._known)).astype(np.float32)
        trees = train(rows, labels, {**_TREES, "seed": self._seed}, 60)
        return trees.predict(self._space.features(pool).astype(np.float32))
