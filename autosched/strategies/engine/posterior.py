"""What a Gaussian process says of candidates, kept up to date one observation after the other."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autosched.strategies.engine.candidates import Rows
from cost_models.gaussian_process import Described, Kernel, factored
from cost_models.trees import Floats

Doubles = NDArray[np.float64]

# Observations for which room is made at once.
_ROOM = 64


class Posterior:
    """Means and deviations at `candidates`, given observations at other points.

    With L the Cholesky factor of the observations' covariances, it holds L⁻¹ and L⁻¹·K(observations, candidates): one
    more observation is one more row of both (Rasmussen and Williams 2006, algorithm 2.1).
    """

    def __init__(self, kernel: Kernel, described: Described, observed: Rows, candidates: Rows) -> None:
        self.kernel = kernel
        self.candidates = candidates
        self.observed = observed
        self._described = described
        covariance = kernel.between(described[observed], described[observed]).astype(np.float64)
        self._inverse = np.linalg.inv(factored(covariance, kernel.noise))
        self._explained = self._of(candidates)
        self._variance = kernel.variance - np.einsum("ij,ij->j", self._explained, self._explained)

    def narrowed(self, keep: NDArray[np.intp]) -> None:
        """Leave all candidates but these places out."""
        self.candidates = self.candidates[keep]
        self._explained = np.ascontiguousarray(self._explained[:, keep])
        self._variance = self._variance[keep]

    def widened(self, rows: Rows, described: Described) -> None:
        """Add candidates; those that are there already stay as they are."""
        self._described = described
        rows = np.setdiff1d(rows, self.candidates)
        if len(rows):
            explained = self._of(rows)
            self.candidates = np.concatenate([self.candidates, rows])
            self._explained = np.concatenate([self._explained, explained], axis=1)
            variance = self.kernel.variance - np.einsum("ij,ij->j", explained, explained)
            self._variance = np.concatenate([self._variance, variance])

    def observes(self, rows: Rows) -> None:
        """Make `rows` the observations: what begins as before is kept."""
        same = 0
        while same < min(len(rows), len(self.observed)) and rows[same] == self.observed[same]:
            same += 1
        if same < len(self.observed):
            self.observed = self.observed[:same]
            self._inverse = self._inverse[:same, :same]
            self._explained = self._explained[:same]
            self._variance = self.kernel.variance - np.einsum("ij,ij->j", self._explained, self._explained)
        for row in rows[same:]:
            self._observe(row)

    def predicted(self, labels: Doubles) -> tuple[Doubles, Doubles]:
        """Means and deviations at the candidates, where the observations have these labels."""
        means = (self._inverse @ labels).astype(np.float32) @ self._explained
        return means.astype(np.float64), np.sqrt(np.maximum(self._variance, 1e-6)).astype(np.float64)

    def mean_at(self, rows: Rows, labels: Doubles) -> Doubles:
        """Means at any points."""
        return np.asarray((self._inverse @ labels) @ self._of(rows), dtype=np.float64)

    def _of(self, rows: Rows) -> Floats:
        covariance = self.kernel.between(self._described[self.observed], self._described[rows])
        return np.asarray(self._inverse.astype(np.float32) @ covariance, dtype=np.float32)

    def _observe(self, row: int) -> None:
        known, here = self._described[self.observed], self._described[np.array([row])]
        column = self._inverse @ self.kernel.between(known, here)[:, 0]
        own = math.sqrt(max(self.kernel.variance + self.kernel.noise - float(column @ column), self.kernel.noise))
        covariance = self.kernel.between(here, self._described[self.candidates])[0]
        explained = (covariance - column.astype(np.float32) @ self._explained) / np.float32(own)
        size = len(self.observed)
        inverse = np.zeros((size + 1, size + 1))
        inverse[:size, :size] = self._inverse
        inverse[size] = np.append(-(column @ self._inverse), 1.0) / own
        self._inverse = inverse
        self._explained = np.concatenate([self._explained, explained[None]])
        self._variance = self._variance - explained**2
        self.observed = np.append(self.observed, row)
