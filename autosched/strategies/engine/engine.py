"""Ask and tell: a Gaussian process, expected improvement, and steps from the best where the search is stuck."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autosched.strategies.engine.acquisition import log_expected_improvement
from autosched.strategies.engine.candidates import Candidates, Rows
from autosched.strategies.engine.observations import History, labels, logarithms
from autosched.strategies.engine.posterior import Posterior
from cost_models.gaussian_process import Kernel, most_telling
from search_spaces.schedules.plain_space import PlainSpace, Point

Doubles = NDArray[np.float64]

# Points far from each other that are measured before anything is predicted.
_FIRST = 6
# Everything is fitted and looked at anew when so much more is known.
_GROWTH = 0.15
# Candidates that stay until then: those of which most is expected.
_SHORT_LIST = 2_500
# After so many trials without improvement, this part of trials are neighbours of the best.
_STUCK = 12
_NEIGHBOURS = 0.33
# Noise of success (1) and failure (0) as a label, where points alike mostly end alike.
_FAILURE_NOISE = 0.05
# A chance of success below this is as good as this: what is known of failures may be wrong.
_LEAST_CHANCE = 0.02


class Engine:
    """Ask-and-tell search of one space. The same seed and the same answers give the same proposals."""

    def __init__(
        self, space: PlainSpace, seed: int, budget: int | None = None, history: Sequence[History] = ()
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._candidates = Candidates(space, self._rng)
        self._logs: dict[int, float] = {}
        self._pending: dict[int, None] = {}
        self._stale = 0
        self._kernel = Kernel.usual(self._candidates.described.columns.shape[1])
        self._posterior: Posterior | None = None
        self._chances: Posterior | None = None
        self._fitted_at = 0

    def ask(self, count: int, least: int = 1) -> list[Point]:
        """At most `count` points to measure next: legal, all different, and neither asked nor told before.

        Often fewer, so that what is learnt from them chooses the next; `least` says how many there are to be where
        workers would stand idle otherwise. None only when nothing is left.
        """
        chosen: list[int] = []
        while len(chosen) < count:
            missing = _FIRST - len(self._logs) - len(self._pending)
            if missing > 0 or not np.isfinite([*self._logs.values()]).any():
                rows = self._candidates.spread(min(max(missing, 1), count - len(chosen)))
            elif len(chosen) < least:
                rows = self._next()
            else:
                break
            if not len(rows):
                break
            self._candidates.close(rows)
            self._pending.update(dict.fromkeys(rows.tolist()))
            chosen += rows.tolist()
            if missing > 0 or len(chosen) >= max(least, 1):
                break
        return self._candidates.points(np.array(chosen, dtype=np.intp))

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None:
        """What points took, asked for or not; None, infinity or NaN where they failed."""
        rows = self._candidates.rows(points)
        self._candidates.close(rows)
        for row, log in zip(rows.tolist(), logarithms(seconds), strict=True):
            before = min(self._logs.values(), default=np.inf)
            self._stale = 0 if log < before else self._stale + 1
            self._pending.pop(row, None)
            self._logs[row] = float(log)

    def _next(self) -> Rows:
        """The one point to measure next."""
        rows = np.array(list(self._logs), dtype=np.intp)
        logs = np.array(list(self._logs.values()))
        ok = np.isfinite(logs)
        good, values = rows[ok], labels(logs[ok])
        if self._posterior is None or len(rows) >= (1.0 + _GROWTH) * self._fitted_at:
            self._fit(rows, good, values, ok)
        posterior = self._posterior
        assert posterior is not None
        near = self._near(good[int(values.argmin())])
        if len(near):
            posterior.widened(near, self._candidates.described)
            if self._chances is not None:
                self._chances.widened(near, self._candidates.described)
        worth = self._worth(rows, ok, good, values)
        allowed = self._candidates.is_open(posterior.candidates)
        if len(near):
            allowed &= np.isin(posterior.candidates, near)
        if not allowed.any():
            return self._candidates.fresh(good)[:1]
        return posterior.candidates[[int(np.where(allowed, worth, -np.inf).argmax())]]

    def _near(self, best: int) -> Rows:
        """Neighbours of the best that the next point is chosen from; none where it is chosen from everything."""
        if self._stale < _STUCK or self._rng.random() > _NEIGHBOURS:
            return np.zeros(0, np.intp)
        return self._candidates.neighbours(best)

    def _fit(self, rows: Rows, good: Rows, values: Doubles, ok: NDArray[np.bool_]) -> None:
        described = self._candidates.described
        seen = most_telling(values, self._rng)
        self._kernel = self._kernel.fitted(described[good[seen]], values[seen], first=not self._fitted_at)
        self._fitted_at = len(rows)
        best = good[np.argsort(values, kind="stable")[:32]]
        candidates = self._candidates.fresh(best)
        described = self._candidates.described
        self._posterior = Posterior(self._kernel, described, good, candidates)
        self._chances = (
            None if ok.all() else Posterior(self._kernel.of_chances(_FAILURE_NOISE), described, rows, candidates)
        )
        if len(candidates) > 1.5 * _SHORT_LIST:
            worth = self._worth(rows, ok, good, values)
            keep = np.argpartition(-worth, _SHORT_LIST)[:_SHORT_LIST]
            self._posterior.narrowed(keep)
            if self._chances is not None:
                self._chances.narrowed(keep)

    def _worth(self, rows: Rows, ok: NDArray[np.bool_], good: Rows, values: Doubles) -> Doubles:
        """Of each candidate the logarithm of the improvement that is expected, failures included."""
        posterior = self._posterior
        assert posterior is not None
        posterior.observes(good)
        pending = np.array(list(self._pending), dtype=np.intp)
        believed = np.concatenate([values, posterior.mean_at(pending, values)]) if len(pending) else values
        if len(pending):
            posterior.observes(np.concatenate([good, pending]))
        means, deviations = posterior.predicted(believed)
        worth = log_expected_improvement(means, deviations, float(values.min()))
        if ok.all():
            return worth
        if self._chances is None:
            described = self._candidates.described
            self._chances = Posterior(self._kernel.of_chances(_FAILURE_NOISE), described, rows, posterior.candidates)
        self._chances.observes(rows)
        chance, _ = self._chances.predicted(ok - ok.mean())
        return np.asarray(worth + np.log(np.clip(ok.mean() + chance, _LEAST_CHANCE, 1.0)))
