"""What more trials would gain: predicted from how many there were, and from how large the improvements among them were.

In a sequence of random draws the chance that trial t is the best so far is 1/t, whatever came before (Rényi 1962), and
so improvements at one time say nothing of those at another. In a search that is steered they come sooner: over the
searches of `tests/figures/stop.py` the chance falls with the square of t. How many there were before tells nothing
more, but when the last one was does: where nothing came for long, less is to come. How large they are differs from
space to space: that is learnt as the search goes on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# An improvement of note is by more than this part of the latency: less nobody misses, and may be noise.
NOTABLE = 0.01
# The chance of one at trial t is this / t² · √(last / t), where `last` is the trial of the last one before. Without the
# root, searches of spaces that it was not fitted to surprise more (0.48 in place of 0.45, and 0.69 is a coin's).
_RATE = 60.0
# What is known of their size before a search has any: as much as so many of them tell, of this mean (a logarithm). With
# 0.032 twelve cold searches of products end after 32 % of their trials and lose 1.5 %, with this after 41 %: 0.5 %.
_KNOWN = 4.0
SIZE = 0.05
# Those of the first trials are left out: they are as large as the first trial was bad.
_FIRST = 4
# What is told ahead: a search that stops at a third of the trials should have lost no more than was said.
_AGAIN = 2


@dataclass(frozen=True)
class RemainingGain:
    """What `trials` more would make of the best latency.

    `expected` is the part of it that they would save, `chance` the probability that they save more than a hundredth.
    """

    trials: int
    expected: float
    chance: float

    def __str__(self) -> str:
        some = f"{100 * self.expected:.1f} % gain expected of {self.trials} more trials"
        return f"{some} ({100 * self.chance:.0f} % chance of more than {100 * NOTABLE:.0f} %)"


@dataclass(frozen=True)
class Improvements:
    """How the best latency of a search came down over `trials`.

    `notable` are the improvements of more than a hundredth, the first few trials left out; `gain` is the sum of their
    logarithms, `last` the trial of the last one.
    """

    trials: int
    notable: int
    gain: float
    last: int

    @staticmethod
    def of(latencies: Sequence[float | None]) -> Improvements | None:
        """Those of latencies in the order of the trials, None for failures; None when no trial succeeded."""
        best, steps, last = math.inf, list[float](), _FIRST
        for number, latency in enumerate(latencies, 1):
            if latency is None or latency >= best:
                continue
            if number > _FIRST and (step := math.log(best / latency)) > NOTABLE and best < math.inf:
                steps.append(step)
                last = number
            best = latency
        return Improvements(len(latencies), len(steps), sum(steps), last) if best < math.inf else None

    def expected(self, more: int, size: float = SIZE) -> float:
        """The part of the latency that so many more trials save; `size` is that of an improvement as known before."""
        mean = (_KNOWN * size + self.gain) / (_KNOWN + self.notable)
        return 1 - math.exp(-mean * self._to_come(more))

    @property
    def remaining(self) -> RemainingGain:
        """What twice as many trials again would gain: three times as many in all."""
        more = _AGAIN * self.trials
        return RemainingGain(more, self.expected(more), 1 - math.exp(-self._to_come(more)))

    def _to_come(self, more: int) -> float:
        """How many improvements of note so many more trials should bring, if the first to come changes no chance."""
        return _RATE * math.sqrt(self.last / self.trials) * (1 / self.trials - 1 / (self.trials + more))


@dataclass(frozen=True)
class StopRule:
    """Stops a search where less than `gain` of the latency is expected of twice as many trials again.

    That is after `least` trials: three batches, of which the second and third are chosen by what was learnt; and after
    `most` in any case.
    """

    least: int = 48
    most: int = 1000
    gain: float = 0.01

    def stops(self, improvements: Improvements | None) -> bool:
        if improvements is None:
            return False
        done = improvements.trials
        return done >= self.most or (done >= self.least and improvements.remaining.expected < self.gain)
