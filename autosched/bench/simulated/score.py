"""The performance score by which search strategies of auto-tuners are compared: 0 is random, 1 the optimum at once.

At every number of evaluations it is how far the best that was found by then lies between what random search is expected
to have found and the optimum; the score is the mean of it over a range of evaluations that depends on the table.

Source: Willemsen et al., "A Methodology for Comparing Auto-Tuning Optimization Algorithms", Future Generation Computer
Systems 159 (2024), sections 3 and 4; details as in its package, autotuning_methodology.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autosched.bench.simulated.replayed import Seconds

# The range: from where random search is expected to have come this part of the way from the median to the optimum.
_FROM, _TO = 0.01, 0.95


def expected_of_random(ascending: Seconds, evaluations: NDArray[np.int_]) -> Seconds:
    """The best that so many draws without replacement are expected to find.

    Of n values the best of k draws is expected at rank k (n + 1) / (k + 1), counted from the worst.
    """
    n = len(ascending)
    ranks = np.round(evaluations * (n + 1) / (evaluations + 1)).astype(int)
    return np.asarray(ascending[::-1][np.minimum(ranks, n - 1)])


def scored_range(ascending: Seconds) -> tuple[int, int]:
    """The evaluations over which a table is scored, both ends included, at least two apart."""
    first, last = _draws_to(ascending, _FROM), _draws_to(ascending, _TO)
    if last - first >= 2:
        return first, last
    return (first, last + 2) if first == 0 else (first - 1, last + 1)


def _draws_to(ascending: Seconds, part: float) -> int:
    """Draws after which random search is expected to have come so far from the median to the optimum."""
    n, best = len(ascending), ascending[0]
    goal = best + (np.median(ascending) - best) * (1 - part)
    slower = int(np.sum(ascending > goal))
    rank = slower - int(ascending[n - 1 - slower] == best)
    # The rank of the expected best, solved for the number of draws.
    return math.ceil(rank / (n + 1 - rank))


def score(ascending: Seconds, runs: Sequence[Seconds], budget: int) -> float:
    """The score of several runs on one table, from what their evaluations took, in order (infinite: failed).

    The median rank of what the runs have found counts. A run that ended early holds what it had found; where `budget`
    lies within the range, the range ends there.
    """
    first, last = scored_range(ascending)
    evaluations = np.arange(max(first, 1), max(min(last, budget), first + 1) + 1)
    random = expected_of_random(ascending, evaluations)
    found = ascending[_median_ranks(ascending, runs, int(evaluations[-1]))[evaluations - 1]]
    way = random - ascending[0]
    if not way.any():
        # A table in which nearly everything is the optimum.
        return float(np.mean(found == ascending[0]))
    return float(np.mean((random - found)[way != 0] / way[way != 0]))


def _median_ranks(ascending: Seconds, runs: Sequence[Seconds], evaluations: int) -> NDArray[np.int_]:
    """The place among all values of the best so far, after 1 to `evaluations` evaluations: the median of the runs."""
    ranks = np.full((len(runs), evaluations), np.nan)
    for row, seconds in zip(ranks, runs, strict=True):
        best = np.minimum.accumulate(seconds[:evaluations])
        if len(best):
            row[: len(best)] = np.where(np.isfinite(best), np.searchsorted(ascending, best), np.nan)
            row[len(best) :] = row[len(best) - 1]
    with warnings.catch_warnings():
        # Where no run has found anything yet.
        warnings.simplefilter("ignore", RuntimeWarning)
        median = np.nanmedian(ranks, axis=0)
    return np.round(np.where(np.isnan(median), len(ascending) - 1, median)).astype(int)
