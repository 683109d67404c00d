"""Bayesian optimisation by ask and tell: Gaussian process, lower confidence bound, local steps where it is stuck."""

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

# Initial design: points far from each other that are measured before anything is predicted.
_FIRST = 6
# With seeds, so many of them replace the initial design.
_SEEDS = 3
# Kernel and candidates are renewed when the number of observations has grown by this part.
_GROWTH = 0.15
# Candidates kept until then: the most promising.
_SHORT_LIST = 2_500
# After so many trials without improvement, this part of trials are neighbours of the best.
_STUCK = 12
_NEIGHBOURS = 0.33
# Lower confidence bound: mean minus so many deviations; the point with the lowest bound is measured next (Srinivas et
# al. 2010). With a smaller factor, or by expected improvement, some searches stay in the region that they came to
# first.
_OPTIMISM = 4.0
# The factor where histories are fully trusted: they leave less uncertain.
_GUIDED_OPTIMISM = 1.0
# Successes that are learnt from (half of them the best), and as many failures: an update takes time quadratic in their
# number for every trial, a refit cubic time.
_MOST_LEARNT = 400
# Noise of the label success (1) or failure (0): similar points mostly end the same.
_FAILURE_NOISE = 0.05
# Least chance of success: what is known of failures may be wrong.
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
        """`seeds`: points to measure first, if any; `short_list`: number of candidates kept between refits."""
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
        # Caches until the next observation: the observations, and the expectations of the candidates.
        self._known: _Observations | None = None
        self._outlook: Doubles | None = None

    def ask(self, count: int, least: int = 1) -> list[P]:
        """At most `count` points to measure next: legal, all different, neither asked for nor observed before.

        Often fewer, so that their results choose the next; `least` is the number needed to keep all workers busy. None
        only when nothing is left.
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
        """Observe the seconds of points, asked for or not; None, infinity or NaN for failures."""
        rows = self._candidates.rows(points)
        self._candidates.close(rows)
        self._known = self._outlook = None
        for row, log in zip(rows.tolist(), logarithms(seconds), strict=True):
            self._stale = 0 if log < self._best_log else self._stale + 1
            self._best_log = min(self._best_log, float(log))
            self._pending.pop(row, None)
            self._logs[row] = float(log)

    def look_anew(self) -> None:
        """Choose the next point among fresh candidates, with the prior's present guesses."""
        self._known = self._posterior = None

    def measures(self, points: Sequence[P]) -> None:
        """Mark points that others chose as pending."""
        self._out(self._candidates.rows(points))

    def _out(self, rows: Rows) -> None:
        self._candidates.close(rows)
        self._pending.update(dict.fromkeys(rows.tolist()))

    def _first(self, count: int, least: int) -> Rows:
        """Initial design: the best points of histories, or points far from each other.

        Both where the histories are too short to predict anything.
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
        """The one point to measure next; empty where nothing is left."""
        if self._known is None:
            self._known = self._less_expected(_Observations.of(self._logs, self._prior.spread))
        known = self._known
        if not len(known.good):
            return self._candidates.spread(1)
        if self._posterior is None or len(self._logs) >= (1.0 + _GROWTH) * self._fitted_at:
            self._fit(known)
        posterior = self._posterior
        assert posterior is not None
        known = known.without(self._left_out)
        near = self._near(known.best)
        self._widen(near)
        allowed = self._candidates.is_open(posterior.candidates)
        if len(near):
            allowed &= np.isin(posterior.candidates, near)
        if not allowed.any():
            return self._candidates.spread(1)
        worth = np.where(allowed, self._worth(known), -np.inf)
        return posterior.candidates[[int(worth.argmax())]]

    def _near(self, best: int) -> Rows:
        """Neighbours of the best, for a local step; empty for a choice among all candidates."""
        if self._stale < _STUCK or self._rng.random() > _NEIGHBOURS:
            return np.zeros(0, np.intp)
        return self._candidates.neighbours(best)

    def _widen(self, rows: Rows) -> None:
        self._outlook = None if len(rows) else self._outlook
        for posterior in (self._posterior, self._chances):
            if posterior is not None:
                posterior.widened(rows, self._candidates.described)

    def _fit(self, known: _Observations) -> None:
        """Refit, score all candidates, and keep the most promising."""
        if len(self._logs) >= (1.0 + _GROWTH) * self._fitted_at:
            self._fit_kernel(known)
        self._left_out = known.left_out(self._rng)
        known = known.without(self._left_out)
        candidates = self._candidates.fresh(known.good[np.argsort(known.labels, kind="stable")])
        self._posterior = Posterior(self._kernel, self._candidates.described, self._observed(known), candidates)
        self._chances = self._outlook = None
        if len(candidates) > 1.5 * self._short_list:
            keep = np.argpartition(-self._worth(known), self._short_list)[: self._short_list]
            self._posterior.narrowed(keep)
            self._chances = self._outlook = None

    def _fit_kernel(self, known: _Observations) -> None:
        described, most = self._candidates.described, most_telling(known.labels, self._rng)
        self._kernel = self._kernel.fitted(
            described[known.good[most]], known.surprises[most], first=not self._fitted_at
        )
        self._fitted_at = len(self._logs)

    def _worth(self, known: _Observations) -> Doubles:
        """Optimistic speed of each candidate, plus the logarithm of its chance of success where it may fail."""
        posterior = self._posterior
        assert posterior is not None
        posterior.observes(self._observed(known))
        means, deviations = posterior.predicted(known.surprises)
        if self._outlook is None:
            self._outlook = known.offset - self._expected(posterior.candidates, known.trust)
            if not known.ok.all():
                self._outlook += np.log(self._chance(known, posterior.candidates))
        return promise(means, deviations, self._optimism(known.trust)) + self._outlook

    def _observed(self, known: _Observations) -> Rows:
        """Successful points, then pending ones."""
        return np.concatenate([known.good, np.array(list(self._pending), dtype=np.intp)])

    def _optimism(self, trust: Doubles) -> float:
        """Factor of the confidence bound, lower where histories guide (not a prior that learns during the search)."""
        guided = min(1.0, float(trust.sum())) if self._prior.spread else 0.0
        return _OPTIMISM + (_GUIDED_OPTIMISM - _OPTIMISM) * guided

    def _chance(self, known: _Observations, candidates: Rows) -> Doubles:
        """Probability of success of each candidate."""
        if self._chances is None:
            kernel = self._kernel.of_chances(_FAILURE_NOISE)
            self._chances = Posterior(kernel, self._candidates.described, known.rows, candidates)
        self._chances.observes(known.rows)
        usual = known.ok.mean()
        likely, _ = self._chances.predicted(known.ok - usual)
        return np.asarray(np.clip(usual + likely, _LEAST_CHANCE, 1.0))

    def _less_expected(self, known: _Observations) -> _Observations:
        """The observations with their residuals: the part of the labels that the prior did not predict."""
        if not len(self._prior) or not len(known.good):
            return known
        trust = trusted(self._prior.guesses(known.good), known.labels)
        expected = self._expected(known.good, trust)
        offset = float(expected.mean())
        return replace(known, trust=trust, offset=offset, surprises=known.labels - expected + offset)

    def _expected(self, rows: Rows, trust: Doubles) -> Doubles:
        """Labels predicted by the prior, weighted by trust."""
        return self._prior.guesses(rows) @ trust if len(self._prior) else np.zeros(len(rows))


def promise(means: Doubles, deviations: Doubles, optimism: float) -> Doubles:
    """Acquisition value: the negated lower confidence bound; higher is more promising."""
    return optimism * deviations - means


@dataclass(frozen=True)
class _Observations:
    """The observations, in order.

    `good`: rows that succeeded; `labels`: their labels; `surprises`: their residuals from the prior's predictions.
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

    def left_out(self, rng: np.random.Generator) -> Rows:
        """Rows left out of training where there are too many: among successes mostly slow ones."""
        good = np.delete(self.good, most_telling(self.labels, rng, _MOST_LEARNT))
        failed = self.rows[~self.ok]
        return np.concatenate([good, np.delete(failed, most_telling(np.zeros(len(failed)), rng, _MOST_LEARNT))])

    def without(self, rows: Rows) -> _Observations:
        if not len(rows):
            return self
        kept, good = ~np.isin(self.rows, rows), ~np.isin(self.good, rows)
        less = replace(self, rows=self.rows[kept], ok=self.ok[kept])
        return replace(less, good=self.good[good], labels=self.labels[good], surprises=self.surprises[good])

    @staticmethod
    def of(logs: Mapping[int, float], least_spread: float) -> _Observations:
        rows, values = np.array(list(logs), dtype=np.intp), np.array(list(logs.values()))
        ok = np.isfinite(values)
        found = labels(values[ok], least_spread) if ok.any() else np.zeros(0)
        return _Observations(rows, ok, rows[ok], found, found, np.zeros(0))
