"""Measured seconds as labels for a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.gaussian_process import Doubles
from search_spaces.schedules.plain_space import Point

# Least spread of logarithms: times closer than this count as equal.
_LEAST_SPREAD = 1e-3
# Least deviation of compressed logarithms where the spread is known from elsewhere.
_LEAST_DEVIATION = 0.2


@dataclass(frozen=True)
class History:
    """Measurements from elsewhere (another device, shape or key) for a warm start.

    `points` are of the searched space, and may be illegal here; a failure has None or infinity for its seconds.
    """

    device: str
    points: Sequence[Point]
    seconds: Sequence[float | None]


def logarithms(seconds: Sequence[float | None]) -> Doubles:
    """log(seconds); infinite for failures (no positive number)."""
    return np.array([math.log(s) if s is not None and 0 < s < math.inf else math.inf for s in seconds])


def spread(logs: Doubles) -> float:
    """Distance of the median of successes from the best."""
    return max(float(np.median(logs - logs.min())), _LEAST_SPREAD)


def labels(logs: Doubles, least_spread: float = 0.0) -> Doubles:
    """Labels of mean 0 and variance 1 for logarithms of successes, in the same order; lower is faster.

    Compresses the slow end, the more the slower: how slow a slow kernel is does not matter, and must not drown
    differences between fast ones. A point as far from the best as the median keeps two thirds of its distance.
    `least_spread`: lower bound of the median's distance, for points chosen as the best of another device.
    """
    pressed = np.log1p((logs - logs.min()) / max(spread(logs), least_spread))
    scale = max(float(pressed.std()), _LEAST_DEVIATION if least_spread else 1e-9)
    return np.asarray((pressed - pressed.mean()) / scale)
