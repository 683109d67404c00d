"""Performance score for comparing search strategies of auto-tuners: 0 is random, 1 the optimum at once.

At every number of evaluations it is the position of the best so far between the expectation of random search and the
optimum; the score is its mean over a range of evaluations that depends on the table.

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

# The range: where random search is expected to have come this part of the distance from the median to the optimum.
_FROM, _TO = 0.01, 0.95


def expected_of_random(ascending: Seconds, evaluations: NDArray[np.int_]) -> Seconds:
    """Expected best of so many draws without replacement.

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
    """Number of draws for which random search is expected this part of the way from the median to the optimum."""
    n, best = len(ascending), ascending[0]
    goal = best + (np.median(ascending) - best) * (1 - part)
    slower = int(np.sum(ascending > goal))
    rank = slower - int(ascending[n - 1 - slower] == best)
    # The rank of the expected best, solved for the number of draws.
    return math.ceil(rank / (n + 1 - rank))


def score(ascending: Seconds, runs: Sequence[Seconds], budget: int) -> float:
    """The score of several runs on one table, from the seconds of their evaluations, in order (infinite: failed).

    Uses the median rank over the runs. A run that ended early keeps its best; a `budget` within the range ends the
    range there.
    """
    first, last = scored_range(ascending)
    evaluations = np.arange(max(first, 1), max(min(last, budget), first + 1) + 1)
    random = expected_of_random(ascending, evaluations)
    found = ascending[_median_ranks(ascending, runs, int(evaluations[-1]))[evaluations - 1]]
    way = random - ascending[0]
    if not way.any():
        # Nearly all of the table is the optimum.
        return float(np.mean(found == ascending[0]))
    return float(np.mean((random - found)[way != 0] / way[way != 0]))


def _median_ranks(ascending: Seconds, runs: Sequence[Seconds], evaluations: int) -> NDArray[np.int_]:
    """Rank, among all values, of the best so far after 1 to `evaluations` evaluations: the median of the runs."""
    ranks = np.full((len(runs), evaluations), np.nan)
    for row, seconds in zip(ranks, runs, strict=True):
        best = np.minimum.accumulate(seconds[:evaluations])
        if len(best):
            row[: len(best)] = np.where(np.isfinite(best), np.searchsorted(ascending, best), np.nan)
            row[len(best) :] = row[len(best) - 1]
    with warnings.catch_warnings():
        # No run has found anything yet there.
        warnings.simplefilter("ignore", RuntimeWarning)
        median = np.nanmedian(ranks, axis=0)
    return np.round(np.where(np.isnan(median), len(ascending) - 1, median)).astype(int)
