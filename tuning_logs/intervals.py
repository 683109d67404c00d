"""Speed-ups of one kernel over another with confidence intervals: ratios over paired rounds.

Kernels that are timed interleaved have one latency each from every round, and whatever slows a whole round (clocks,
power, neighbours) slows all of them: the ratio within a round is steadier than either latency. This module computes the
median of these ratios, and its 95 % confidence interval.

The interval is that of the percentile bootstrap over the rounds (Efron 1979, "Bootstrap methods: another look at the
jackknife", section 3). For a median it needs no resampling: the median of n drawn with replacement is at most the k-th
smallest ratio with the probability of a binomial distribution, so both ends are order statistics that n alone decides.
With few rounds the bootstrap is too narrow. There the ends move outwards to the distribution-free interval of a median
(David and Nagaraja 2003, "Order Statistics", section 7.1), which has its 95 % for any number and distribution.
"""

from __future__ import annotations

import functools
import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
# With fewer, even the smallest and the largest ratio have the median between them in less than 95 of 100 cases.
LEAST_ROUNDS = 6


@dataclass(frozen=True)
class Interval:
    """The 95 % confidence interval of a ratio."""

    low: float
    high: float

    def __contains__(self, ratio: float) -> bool:
        return self.low <= ratio <= self.high

    @property
    def width(self) -> float:
        """The excess of the high end over the low one, as a fraction."""
        return self.high / self.low - 1


def paired_ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """The slow-down of the first: the median of the ratios of every round.

    Raises:
        ValueError: they have not the same number of rounds.
    """
    return statistics.median(_ratios(slow, fast))


def ratio_interval(slow: Sequence[float], fast: Sequence[float]) -> Interval | None:
    """The 95 % confidence interval of `paired_ratio`; None with fewer than six rounds, too few for one.

    Raises:
        ValueError: as `paired_ratio`.
    """
    ratios = sorted(_ratios(slow, fast))
    if len(ratios) < LEAST_ROUNDS:
        return None
    rank = _rank(len(ratios))
    return Interval(ratios[rank - 1], ratios[-rank])


def _ratios(slow: Sequence[float], fast: Sequence[float]) -> list[float]:
    return [s / f for s, f in zip(slow, fast, strict=True)]


@functools.cache
def _rank(rounds: int) -> int:
    """The rank, among this many sorted ratios, of the interval's low end, counted from 1; its high end has that rank
    from the end.

    With an even number the median lies between two ratios. The lower one decides here, which errs to the safe side.
    """
    middle = (rounds + 1) // 2
    ranks = range(1, middle + 1)
    bootstrap = ranks[bisect_left(ranks, _TAIL, key=lambda k: _at_least(middle, rounds, k / rounds))]
    # The probability that fewer than k of the ratios are below the true median, equal to that of k above.
    exact = bisect_left(ranks, _TAIL, key=lambda k: _at_least(rounds - k + 1, rounds, 0.5))
    return min(bootstrap, exact)


def _at_least(least: int, trials: int, probability: float) -> float:
    """The binomial probability of at least `least` successes. In logarithms: the coefficients overflow from 1,030."""
    yes, no = math.log(probability), math.log1p(-probability)
    ways = math.lgamma(trials + 1)
    return sum(
        math.exp(ways - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * yes + (trials - k) * no)
        for k in range(least, trials + 1)
    )
