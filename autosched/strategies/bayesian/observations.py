"""What was measured, as labels that a model learns from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.gaussian_process import Doubles
from search_spaces.schedules.plain_space import Point

# The least spread of logarithms: times that differ by less are equal.
_LEAST_SPREAD = 1e-3
# The least deviation of pressed logarithms where the spread is known from elsewhere.
_LEAST_DEVIATION = 0.2


@dataclass(frozen=True)
class History:
    """What was measured elsewhere: on another device, at another shape, with another key.

    `points` are of the space that is searched, and may be illegal here; a failure has None or infinity for its seconds.
    """

    device: str
    points: Sequence[Point]
    seconds: Sequence[float | None]


def logarithms(seconds: Sequence[float | None]) -> Doubles:
    """log(seconds), infinite for what failed: where there is no positive number."""
    return np.array([math.log(s) if s is not None and 0 < s < math.inf else math.inf for s in seconds])


def spread(logs: Doubles) -> float:
    """How far the median of successes is from the best."""
    return max(float(np.median(logs - logs.min())), _LEAST_SPREAD)


def labels(logs: Doubles, least_spread: float = 0.0) -> Doubles:
    """Labels of mean 0 and variance 1 for logarithms of successes, in the same order, lower being faster.

    The slow end is pressed together, the more the slower: how slow is of no use, and must not drown differences at the
    fast end. What is as far from the best as the median keeps two thirds of its distance. `least_spread`: what the
    median's distance is taken for where it is less, as where nothing but the best of another device was tried.
    """
    pressed = np.log1p((logs - logs.min()) / max(spread(logs), least_spread))
    scale = max(float(pressed.std()), _LEAST_DEVIATION if least_spread else 1e-9)
    return np.asarray((pressed - pressed.mean()) / scale)
