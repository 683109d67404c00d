"""What was measured, as labels that a model learns from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_spaces.schedules.plain_space import Point

Doubles = NDArray[np.float64]

# The least spread of logarithms: times that differ by less are equal.
_LEAST_SPREAD = 1e-3


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


def labels(logs: Doubles) -> Doubles:
    """Labels of mean 0 and variance 1 for logarithms of successes, in the same order, lower being faster.

    The slow end is pressed together, the more the slower: how slow is of no use, and must not drown differences at the
    fast end. Two thirds of the median's distance to the best keep their scale.
    """
    above = logs - logs.min()
    scale = max(float(np.median(above)), _LEAST_SPREAD)
    pressed = np.log1p(above / scale)
    return np.asarray((pressed - pressed.mean()) / max(float(pressed.std()), 1e-9))
