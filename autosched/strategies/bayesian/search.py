"""Ask and tell: a Gaussian process, its lower confidence bound, and steps from the best where the search is stuck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from autosched.strategies.bayesian.candidates import Candidates, P, Rows
from autosched.strategies.bayesian.observations import labels, logarithms
from autosched.strategies.bayesian.posterior import Posterior
from autosched.strategies.bayesian.prior import Prior, trusted
from cost_models.gaussian_process import CovarianceKernel, Doubles, most_telling

# Points far from each other that are measured before anything is predicted.
_FIRST = 6
# Of what is to be measured first, so many are instead.
_SEEDS = 3
# Everything is fitted and looked at anew when so much more is known.
_GROWTH = 0.15
# Candidates that stay until then: those of which most is expected.
_SHORT_LIST = 2_500
# After so many trials without improvement, this part of trials are neighbours of the best.
_STUCK = 12
_NEIGHBOURS = 0.33
# Deviations below its mean that a point is believed to reach: what is measured next is the lowest of these bounds
# (Srinivas et al. 2010). With less, or by expected improvement, some searches stay where they first came to.
_OPTIMISM = 4.0
# The same where histories are trusted wholly: they leave less open.
_GUIDED_OPTIMISM = 1.0
# Successes that are learnt from, half of them the best, and as many failures: learning takes their number squared for
# every trial, and cubed whenever everything is fitted.
_MOST_LEARNT = 400
# Noise of success (1) and failure (0) as a label, where points alike mostly end alike.
_FAILURE_NOISE = 0.05
# A chance of success below this is as good as this: what is known of failures may be wrong.
_LEAST_CHANCE = 0.02


class BayesianSearch(Generic[P]):
    """Ask-and-tell search of one space. The same seed and the same answers give the same proposals."""

    def __init__(
        self,
        candidates: Candidates[P],
        prior: Prior[P],
        seeds: Sequence[P],
        rng: np.random.Generator,
        short_list: int = _SHORT_LIST,
    ) -> None:
        """`seeds`: what is measured first, if there is any; `short_list`: candidates that are kept in view."""
        self._rng = rng
        self._candidates = candidates
        self._prior = prior
        self._seeds = seeds
        self._short_list = short_list
        self._logs: dict[int, float] = {}
        self._pending: dict[int, None] = {}
        self._best_log = np.inf
        self._stale = 0
        self._kernel = CovarianceKernel.usual(self._candidates.described.columns.shape[1])
        self._posterior: Posterior | None = None
        self._chances: Posterior | None = None
        self._fitted_at = 0
        self._left_out = np.zeros(0, np.intp)
        # What follows from all that was told, until more is: what was, and what is expected of the candidates.
        self._told: _Told | None = None
        self._outlook: Doubles | None = None

    def ask(self, count: int, least: int = 1) -> list[P]:
        """At most `count` points to measure next: legal, all different, and neither asked nor told before.

        Often fewer, so that what is learnt from them chooses the next; `least` says how many there are to be where
        workers would stand idle otherwise. None only when nothing is left.
        """
        rows = self._first(count, least)
        self._out(rows)
        while len(rows) < min(count, least) or not len(rows):
            more = self._next()[: count - len(rows)]
            if not len(more):
                break
            self._out(more)
            rows = np.concatenate([rows, more])
        return self._candidates.points(rows)

    def tell(self, points: Sequence[P], seconds: Sequence[float | None]) -> None:
        """What points took, asked for or not; None, infinity or NaN where they failed."""
        rows = self._candidates.rows(points)
        self._candidates.close(rows)
        self._told = self._outlook = None
        for row, log in zip(rows.tolist(), logarithms(seconds), strict=True):
            self._stale = 0 if log < self._best_log else self._stale + 1
            self._best_log = min(self._best_log, float(log))
            self._pending.pop(row, None)
            self._logs[row] = float(log)

    def look_anew(self) -> None:
        """Have the next point chosen among fresh candidates, and by what the prior says now."""
        self._told = self._posterior = None

    def measures(self, points: Sequence[P]) -> None:
        """Take note that these, which others chose, are measured too."""
        self._out(self._candidates.rows(points))

    def _out(self, rows: Rows) -> None:
        self._candidates.close(rows)
        self._pending.update(dict.fromkeys(rows.tolist()))

    def _first(self, count: int, least: int) -> Rows:
        """What is measured before anything is predicted: the best of histories, or points far from each other.

        Both where histories are too short to predict anything.
        """
        begun, guided = len(self._logs) + len(self._pending), bool(self._seeds and len(self._prior))
        missing = (_SEEDS if guided else _FIRST) - begun
        if not self._logs:
            missing = max(missing, least)
        if missing <= 0:
            return np.zeros(0, np.intp)
        seeds = self._candidates.rows(self._seeds)
        seeds = seeds[self._candidates.is_open(seeds)]
        if guided and len(seeds):
            return seeds[: min(missing, count)]
        seeds = seeds[: min(max(_SEEDS - begun, 0), count)]
        self._candidates.close(seeds)
        return np.concatenate([seeds, self._candidates.spread(missing - len(seeds))])[:count]

    def _next(self) -> Rows:
        """The one point to measure next; none where nothing is left."""
        if self._told is None:
            self._told = self._less_expected(_Told.of(self._logs, self._prior.spread))
        told = self._told
        if not len(told.good):
            return self._candidates.spread(1)
        if self._posterior is None or len(self._logs) >= (1.0 + _GROWTH) * self._fitted_at:
            self._fit(told)
        posterior = self._posterior
        assert posterior is not None
        told = told.without(self._left_out)
        near = self._near(told.best)
        self._widen(near)
        allowed = self._candidates.is_open(posterior.candidates)
        if len(near):
            allowed &= np.isin(posterior.candidates, near)
        if not allowed.any():
            return self._candidates.spread(1)
        worth = np.where(allowed, self._worth(told), -np.inf)
        return posterior.candidates[[int(worth.argmax())]]

    def _near(self, best: int) -> Rows:
        """Neighbours of the best that the next point is chosen from; none where it is chosen from everything."""
        if self._stale < _STUCK or self._rng.random() > _NEIGHBOURS:
            return np.zeros(0, np.intp)
        return self._candidates.neighbours(best)

    def _widen(self, rows: Rows) -> None:
        self._outlook = None if len(rows) else self._outlook
        for posterior in (self._posterior, self._chances):
            if posterior is not None:
                posterior.widened(rows, self._candidates.described)

    def _fit(self, told: _Told) -> None:
        """Learn what is new, and look at everything, of which the most promising stay candidates."""
        if len(self._logs) >= (1.0 + _GROWTH) * self._fitted_at:
            self._fit_kernel(told)
        self._left_out = told.least_telling(self._rng)
        told = told.without(self._left_out)
        candidates = self._candidates.fresh(told.good[np.argsort(told.labels, kind="stable")])
        self._posterior = Posterior(self._kernel, self._candidates.described, self._observed(told), candidates)
        self._chances = self._outlook = None
        if len(candidates) > 1.5 * self._short_list:
            keep = np.argpartition(-self._worth(told), self._short_list)[: self._short_list]
            self._posterior.narrowed(keep)
            self._chances = self._outlook = None

    def _fit_kernel(self, told: _Told) -> None:
        described, seen = self._candidates.described, most_telling(told.labels, self._rng)
        self._kernel = self._kernel.fitted(described[told.good[seen]], told.surprises[seen], first=not self._fitted_at)
        self._fitted_at = len(self._logs)

    def _worth(self, told: _Told) -> Doubles:
        """How fast each candidate may be at best, less by the logarithm of its chance where it may fail."""
        posterior = self._posterior
        assert posterior is not None
        posterior.observes(self._observed(told))
        means, deviations = posterior.predicted(told.surprises)
        if self._outlook is None:
            self._outlook = told.offset - self._expected(posterior.candidates, told.trust)
            if not told.ok.all():
                self._outlook += np.log(self._chance(told, posterior.candidates))
        return promise(means, deviations, self._optimism(told.trust)) + self._outlook

    def _observed(self, told: _Told) -> Rows:
        """What succeeded, and what is under way."""
        return np.concatenate([told.good, np.array(list(self._pending), dtype=np.intp)])

    def _optimism(self, trust: Doubles) -> float:
        """Less where the prior knows of elsewhere; one that learns along with what is told here leaves all open."""
        guided = min(1.0, float(trust.sum())) if self._prior.spread else 0.0
        return _OPTIMISM + (_GUIDED_OPTIMISM - _OPTIMISM) * guided

    def _chance(self, told: _Told, candidates: Rows) -> Doubles:
        """The chance of each candidate to succeed."""
        if self._chances is None:
            kernel = self._kernel.of_chances(_FAILURE_NOISE)
            self._chances = Posterior(kernel, self._candidates.described, told.rows, candidates)
        self._chances.observes(told.rows)
        usual = told.ok.mean()
        likely, _ = self._chances.predicted(told.ok - usual)
        return np.asarray(np.clip(usual + likely, _LEAST_CHANCE, 1.0))

    def _less_expected(self, told: _Told) -> _Told:
        """What was told, with surprises: what histories did not say beforehand."""
        if not len(self._prior) or not len(told.good):
            return told
        trust = trusted(self._prior.guesses(told.good), told.labels)
        expected = self._expected(told.good, trust)
        offset = float(expected.mean())
        return replace(told, trust=trust, offset=offset, surprises=told.labels - expected + offset)

    def _expected(self, rows: Rows, trust: Doubles) -> Doubles:
        """The labels that histories promise, as far as they are trusted."""
        return self._prior.guesses(rows) @ trust if len(self._prior) else np.zeros(len(rows))


def promise(means: Doubles, deviations: Doubles, optimism: float) -> Doubles:
    """How fast points may be, the more the faster: their lower confidence bounds, turned around."""
    return optimism * deviations - means


@dataclass(frozen=True)
class _Told:
    """What was told, in order.

    `good`: the rows that succeeded, `labels`: theirs, `surprises`: what histories did not say of these beforehand.
    """

    rows: Rows
    ok: NDArray[np.bool_]
    good: Rows
    labels: Doubles
    surprises: Doubles
    trust: Doubles
    offset: float = 0.0

    @property
    def best(self) -> int:
        return int(self.good[self.labels.argmin()])

    def least_telling(self, rng: np.random.Generator) -> Rows:
        """What is not learnt from where too much was told: of successes mostly slow ones."""
        good = np.delete(self.good, most_telling(self.labels, rng, _MOST_LEARNT))
        failed = self.rows[~self.ok]
        return np.concatenate([good, np.delete(failed, most_telling(np.zeros(len(failed)), rng, _MOST_LEARNT))])

    def without(self, rows: Rows) -> _Told:
        if not len(rows):
            return self
        kept, good = ~np.isin(self.rows, rows), ~np.isin(self.good, rows)
        less = replace(self, rows=self.rows[kept], ok=self.ok[kept])
        return replace(less, good=self.good[good], labels=self.labels[good], surprises=self.surprises[good])

    @staticmethod
    def of(logs: Mapping[int, float], least_spread: float) -> _Told:
        rows, values = np.array(list(logs), dtype=np.intp), np.array(list(logs.values()))
        ok = np.isfinite(values)
        found = labels(values[ok], least_spread) if ok.any() else np.zeros(0)
        return _Told(rows, ok, rows[ok], found, found, np.zeros(0))
