"""Posterior of a Gaussian process at candidates, updated one observation at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autosched.strategies.bayesian.candidates import Rows
from cost_models.gaussian_process import CovarianceKernel, Described, Doubles, factored, inverted
from cost_models.trees import Floats

# Allocation grows by so many observations.
_ROOM = 64
# Least predicted variance: rounding leaves no more at observed points.
_LEAST_VARIANCE = 1e-6


class Posterior:
    """Means and deviations at `candidates`, given observations at other points.

    With L the Cholesky factor of the observations' covariances, it keeps L⁻¹ and L⁻¹·K(observations, candidates): one
    more observation is one more row of both (Rasmussen and Williams 2006, algorithm 2.1), and the first rows are those
    of the first observations alone.
    """

    def __init__(self, kernel: CovarianceKernel, described: Described, observed: Rows, candidates: Rows) -> None:
        self.kernel = kernel
        self.candidates = candidates
        self.observed = observed
        self._described = described
        known = described[observed].precise()
        size = len(observed)
        self._inverse = np.zeros((size + _ROOM, size + _ROOM))
        covariance = np.asarray(kernel.between(known, known), dtype=np.float64)
        self._inverse[:size, :size] = inverted(factored(covariance, kernel.noise))
        self._explained = np.zeros((size + _ROOM, len(candidates)), np.float32)
        self._explained[:size] = self._of(candidates)
        self._variance = self._left(self._explained[:size])

    def narrowed(self, keep: NDArray[np.intp]) -> None:
        """Keep only the candidates at these positions."""
        self.candidates = self.candidates[keep]
        self._explained = np.ascontiguousarray(self._explained[:, keep])
        self._variance = self._variance[keep]

    def widened(self, rows: Rows, described: Described) -> None:
        """Add candidates; those already present stay."""
        self._described = described
        rows = np.setdiff1d(rows, self.candidates)
        if len(rows):
            explained = np.zeros((len(self._explained), len(rows)), np.float32)
            explained[: len(self.observed)] = self._of(rows)
            self.candidates = np.concatenate([self.candidates, rows])
            self._explained = np.concatenate([self._explained, explained], axis=1)
            self._variance = np.concatenate([self._variance, self._left(explained)])

    def observes(self, rows: Rows) -> None:
        """Make `rows` the observations; the common prefix with the former ones is kept."""
        both = min(len(rows), len(self.observed))
        other = np.flatnonzero(rows[:both] != self.observed[:both])
        same = int(other[0]) if len(other) else both
        self._variance = self._variance + _squares(self._explained[same : len(self.observed)])
        self.observed = self.observed[:same]
        for row in rows[same:]:
            self._observe(row)

    def predicted(self, labels: Doubles) -> tuple[Doubles, Doubles]:
        """Means and deviations at the candidates; the first observations have these labels, the rest are pending.

        Kriging believer (Ginsbourger et al. 2010): pending points are observed at their posterior mean, so that the
        variance near them falls and the mean stays.
        """
        known = len(labels)
        weights = (self._inverse[:known, :known] @ labels).astype(np.float32)
        means = weights @ self._explained[:known]
        return means.astype(np.float64), np.sqrt(np.maximum(self._variance, _LEAST_VARIANCE))

    def _of(self, rows: Rows) -> Floats:
        size = len(self.observed)
        covariance = self.kernel.between(self._described[self.observed], self._described[rows])
        return np.asarray(self._inverse[:size, :size].astype(np.float32) @ covariance, dtype=np.float32)

    def _left(self, explained: Floats) -> Doubles:
        """Variance left after the explained part."""
        return self.kernel.variance - _squares(explained)

    def _observe(self, row: int) -> None:
        here, size = self._described[np.array([row])], len(self.observed)
        if size == len(self._inverse):
            self._inverse = np.pad(self._inverse, (0, _ROOM))
            self._explained = np.pad(self._explained, ((0, _ROOM), (0, 0)))
        inverse = self._inverse[:size, :size]
        known = self._described[self.observed].precise()
        column = inverse @ np.asarray(self.kernel.between(known, here.precise())[:, 0], dtype=np.float64)
        own = math.sqrt(max(self.kernel.variance + self.kernel.noise - float(column @ column), self.kernel.noise))
        covariance = self.kernel.between(here, self._described[self.candidates])[0]
        explained = (covariance - column.astype(np.float32) @ self._explained[:size]) / np.float32(own)
        self._inverse[size, :size] = -(column @ inverse) / own
        self._inverse[size, size] = 1.0 / own
        self._explained[size] = explained
        self._variance = self._variance - explained.astype(np.float64) ** 2
        self.observed = np.append(self.observed, row)


def _squares(explained: Floats) -> Doubles:
    """Variance explained by observations, a row each."""
    return np.asarray(np.einsum("ij,ij->j", explained, explained), dtype=np.float64)
