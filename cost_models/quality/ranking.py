"""Measures of a ranking: rank correlation, recall of the fastest, regret of the first choices."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's: ties share the mean of their ranks. 0 where one of them is all ties, or there are fewer than two."""
    x, y = _ranks(a), _ranks(b)
    if len(x) < 2 or not x.std() or not y.std():
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def recall(predicted_s: ArrayLike, measured_s: ArrayLike, count: int) -> float:
    """The part of the `count` fastest that is among the `count` predicted to be fastest."""
    best, chosen = (np.argsort(x, kind="stable")[:count] for x in (measured_s, predicted_s))
    return len(np.intersect1d(best, chosen)) / max(1, len(best))


def regret(predicted_s: ArrayLike, measured_s: ArrayLike, count: int) -> float:
    """The excess time of the best of the `count` predicted to be fastest over the best of all, as a fraction of it."""
    measured = np.asarray(measured_s, dtype=np.float64)
    chosen = np.argsort(predicted_s, kind="stable")[:count]
    return float(measured[chosen].min() / measured.min()) - 1.0


def _ranks(values: ArrayLike) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse], dtype=np.float64)
