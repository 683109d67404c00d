"""A Gaussian process over knob values: predictions of all points from a few measurements, with variances.

The kernel is a sum of three: one of all features together, by which points alike in everything are alike (Matérn 5/2, a
length for each feature; Rasmussen and Williams 2006, section 4.2); one of the knobs each for itself, by which an effect
that a value has in one corner of the space is expected in all others; and the square of that, for pairs of knobs. In
logarithms of latency, effects that multiply add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.trees import Floats

Doubles = NDArray[np.float64]
# In single or in double precision.
Numbers = NDArray[np.floating[Any]]

# Initial hyperparameters and their priors: the features are within 0 and 1, the labels have a variance of 1. Little
# noise, and no length far from the usual one: noise, or a single knob, explains a dozen measurements as well as the
# true causes, and a search that believes it explores nothing else.
_LENGTH, _LENGTH_SPREAD = 0.7, 0.5
_JOINT, _EACH, _PAIRS = 0.5, 0.3, 0.3
_WEIGHT_SPREAD = 1.0
_NOISE, _NOISE_SPREAD = 1e-3, 0.7
# Added to the diagonal, so that it can be factored whatever the noise: covariances in single precision are wrong by
# some millionths of the variance.
_JITTER = 1e-5
# The length, in features of one knob, within which the effects of its values are alike.
_EFFECT_LENGTH = 0.5
# The features of a value's effect: as many as the knob has values, up to this many; for more values as few as leave at
# most this residual of a variance of 1. That takes ten along a line, and fifty where divisors are features too: memory
# and time grow linearly with the number of values.
_MOST_EFFECTS = 64
_RESIDUAL = 1e-3
# Gradient steps of a fit that starts from nothing, and of one that starts from the fit before.
_FIRST_STEPS, _NEXT_STEPS = 30, 12
# Covariances computed at once: these and their inputs stay in a core's cache.
_BLOCK = 1 << 16
# If rounding spoils covariances, they are factored with ten times the noise, at most this many times.
_MOST_TENFOLD = 12
# Triangles up to this size are inverted at once.
_LEAST_HALVED = 96
# Points of a fit, half of them the best: its time is their number cubed.
_MOST_FITTED = 150


@dataclass(frozen=True)
class Described:
    """Points in the kernel's representation, a row each.

    `columns` are their features within 0 and 1; the inner product of two rows of `effects` is the mean similarity of
    the values of their knobs, knob by knob.
    """

    columns: Numbers
    effects: Numbers

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, rows: NDArray[np.intp]) -> Described:
        return Described(self.columns[rows], self.effects[rows])

    def precise(self) -> Described:
        """The same in double precision: for covariances that are factored."""
        return Described(self.columns.astype(np.float64), self.effects.astype(np.float64))


class Description:
    """The kernel's representation of the points of one space, from the features of the values of its knobs."""

    def __init__(self, columns: Sequence[Doubles]) -> None:
        """`columns`: for every knob, the features of its values, shape (values, features)."""
        self._knobs = [knob for knob, table in enumerate(columns) if table.shape[1]]
        self._columns = [columns[knob].astype(np.float32) for knob in self._knobs]
        self._effects = [_effects(columns[knob]) / np.sqrt(len(self._knobs)) for knob in self._knobs]

    def __call__(self, codes: NDArray[np.int32]) -> Described:
        """`codes`: the positions of knob values, shape (points, knobs)."""
        return Described(self._gathered(self._columns, codes), self._gathered(self._effects, codes))

    def _gathered(self, tables: Sequence[Floats], codes: NDArray[np.int32]) -> Floats:
        parts = [table[codes[:, knob]] for knob, table in zip(self._knobs, tables, strict=True)]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(codes), 1), np.float32)


def _effects(columns: Doubles) -> Floats:
    """Rows whose inner products are the kernel of one knob's values, shape (values, at most `_MOST_EFFECTS`)."""
    if len(columns) > _MOST_EFFECTS:
        return _effects_of_many(columns)
    return np.linalg.cholesky(_alike(columns, columns) + 1e-6 * np.eye(len(columns))).astype(np.float32)


def _effects_of_many(columns: Doubles) -> Floats:
    """An approximation for many values: columns of a pivoted Cholesky factor, each at the largest residual.

    Fine and Scheinberg 2001, figure 2. Scaling makes up for the residual: every value has similarity 1 with itself.
    """
    found = np.zeros((_MOST_EFFECTS, len(columns)), np.float32)
    residual = np.ones(len(columns))
    used = 0
    while used < _MOST_EFFECTS and residual.max() > _RESIDUAL:
        pivot = int(residual.argmax())
        rest = _alike(columns, columns[[pivot]])[:, 0] - found[:used, pivot] @ found[:used]
        found[used] = rest / np.sqrt(residual[pivot])
        residual = np.maximum(residual - found[used].astype(np.float64) ** 2, 0.0)
        used += 1
    return np.ascontiguousarray((found[:used] / np.linalg.norm(found[:used], axis=0)).T)


def _alike(a: Doubles, b: Doubles) -> Doubles:
    """Similarity of the effects of values, by the features of these: shape (len(a), len(b))."""
    apart = np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=2)) / _EFFECT_LENGTH
    return _matern(np.sqrt(5.0) * apart)


def _matern(r: Doubles) -> Doubles:
    """Matérn 5/2 of r = sqrt(5) · distance."""
    return np.asarray((1.0 + r + r * r / 3.0) * np.exp(-r))


@dataclass(frozen=True)
class CovarianceKernel:
    """Covariances of labels whose variance is about 1; hyperparameters in logarithms.

    `lengths`: one for each feature. `weights`: of all features together, of each knob, of pairs of knobs.
    """

    lengths: Doubles
    weights: Doubles
    log_noise: float

    @staticmethod
    def usual(features: int) -> CovarianceKernel:
        """The prior hyperparameters."""
        return CovarianceKernel(
            np.full(features, np.log(_LENGTH)), np.log([_JOINT, _EACH, _PAIRS]), float(np.log(_NOISE))
        )

    @property
    def variance(self) -> float:
        """The prior variance of a point."""
        return float(np.exp(self.weights).sum())

    @property
    def noise(self) -> float:
        return float(np.exp(self.log_noise)) + _JITTER * max(1.0, self.variance)

    def between(self, a: Described, b: Described) -> Numbers:
        """The covariances of points, shape (len(a), len(b)), in the precision of the description."""
        if len(a) * len(b) <= _BLOCK:
            return self._between(a, b)
        width = max(1, _BLOCK // len(a))
        blocks = [np.arange(at, min(at + width, len(b))) for at in range(0, len(b), width)]
        return np.concatenate([self._between(a, b[block]) for block in blocks], axis=1)

    def _between(self, a: Described, b: Described) -> Numbers:
        precision = a.columns.dtype
        lengths: Numbers = np.exp(self.lengths).astype(precision)
        x, y = a.columns / lengths, b.columns / lengths
        # For one point and several hundred, OpenBLAS flags a product of finite numbers as invalid though it is finite.
        with np.errstate(invalid="ignore"):
            products = x @ y.T
        squared = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1) - 2.0 * products
        joint, each, pairs = (precision.type(np.exp(weight)) for weight in self.weights)
        alike = a.effects @ b.effects.T
        r = np.sqrt(5.0 * np.maximum(squared, 0.0))
        return np.asarray(joint * _matern(r) + (each + pairs * alike) * alike, dtype=precision)

    def of_chances(self, noise: float) -> CovarianceKernel:
        """The same similarity for success (1) and failure (0) as labels, with a variance of 1."""
        return replace(self, weights=self.weights - np.log(self.variance), log_noise=float(np.log(noise)))

    def fitted(self, points: Described, labels: Doubles, first: bool) -> CovarianceKernel:
        """The most probable hyperparameters for these labels, starting from those of this kernel.

        Steps by the signs of slopes: Rprop (Riedmiller and Braun 1993). Slopes: Rasmussen and Williams, equation 5.9.
        """
        theta = np.concatenate([self.lengths, self.weights, [self.log_noise]])
        evidence = _Evidence(points, labels)
        best, step, before = (np.inf, theta), np.full(len(theta), 0.25), np.zeros(len(theta))
        for _ in range(_FIRST_STEPS if first else _NEXT_STEPS):
            try:
                loss, slope = evidence.loss_and_slope(theta)
            except np.linalg.LinAlgError:
                break
            if loss < best[0]:
                best = loss, theta
            agreement = np.sign(slope * before)
            step = np.clip(step * np.where(agreement > 0, 1.3, np.where(agreement < 0, 0.5, 1.0)), 1e-3, 0.6)
            theta, before = theta - step * np.sign(slope), slope
        found = best[1]
        return replace(self, lengths=found[:-4], weights=found[-4:-1], log_noise=float(found[-1]))


class _Evidence:
    """The negative log posterior of hyperparameters, and its gradient."""

    def __init__(self, points: Described, labels: Doubles) -> None:
        columns = points.columns.astype(np.float64)
        self._squares = ((columns[:, None] - columns[None]) ** 2).reshape(-1, columns.shape[1])
        self._alike = points.effects.astype(np.float64) @ points.effects.T
        self._labels = labels
        usual = CovarianceKernel.usual(columns.shape[1])
        self._usual = np.concatenate([usual.lengths, usual.weights, [usual.log_noise]])
        spreads = [_LENGTH_SPREAD] * columns.shape[1] + [_WEIGHT_SPREAD] * 3 + [_NOISE_SPREAD]
        self._spreads = np.array(spreads)

    def loss_and_slope(self, theta: Doubles) -> tuple[float, Doubles]:
        """Minus the logarithm of the posterior of `theta`: of lengths, weights and noise, all in logarithms."""
        n = len(self._labels)
        scales, (joint, each, pairs), noise = np.exp(-2.0 * theta[:-4]), np.exp(theta[-4:-1]), np.exp(theta[-1])
        r = np.sqrt(5.0 * (self._squares @ scales).reshape(n, n))
        decay = np.exp(-r)
        parts = (
            joint * (1.0 + r + r * r / 3.0) * decay,
            each * self._alike,
            pairs * self._alike**2,
        )
        lower = np.linalg.cholesky(sum(parts) + (noise + _JITTER) * np.eye(n))
        inverse = np.linalg.inv(lower)
        precision = inverse.T @ inverse
        solved = precision @ self._labels
        pull = precision - np.outer(solved, solved)
        by_squares = (pull * (joint * 5.0 / 3.0) * (1.0 + r) * decay).ravel() @ self._squares
        slope = 0.5 * np.concatenate(
            [by_squares * scales, [(pull * part).sum() for part in parts], [noise * np.trace(pull)]]
        )
        away = (theta - self._usual) / self._spreads
        loss = 0.5 * self._labels @ solved + np.log(np.diag(lower)).sum() + 0.5 * away @ away
        return float(loss), slope + away / self._spreads


def factored(covariance: Doubles, noise: float) -> Doubles:
    """The Cholesky factor of covariances with noise on their diagonal: more of it where rounding needs more.

    Raises:
        numpy.linalg.LinAlgError: these are no covariances.
    """
    for _ in range(_MOST_TENFOLD):
        try:
            return np.asarray(np.linalg.cholesky(covariance + noise * np.eye(len(covariance))), dtype=np.float64)
        except np.linalg.LinAlgError:
            noise *= 10.0
    raise np.linalg.LinAlgError("expected covariances, whose factor exists with enough noise on their diagonal")


def inverted(lower: Doubles) -> Doubles:
    """The inverse of a lower triangle, by halves: a quarter of the time of a general inverse."""
    size, half = len(lower), len(lower) // 2
    if size <= _LEAST_HALVED:
        return np.asarray(np.linalg.inv(lower))
    found = np.zeros_like(lower)
    found[:half, :half] = first = inverted(lower[:half, :half])
    found[half:, half:] = last = inverted(lower[half:, half:])
    found[half:, :half] = -last @ (lower[half:, :half] @ first)
    return found


def most_telling(labels: Doubles, rng: np.random.Generator, most: int = _MOST_FITTED) -> NDArray[np.intp]:
    """The points of a fit, among many: the best, and as many others drawn at random."""
    order = np.argsort(labels, kind="stable")
    if len(order) <= most:
        return np.sort(order)
    others = rng.permutation(order[most // 2 :])[: most - most // 2]
    return np.sort(np.concatenate([order[: most // 2], others]))
