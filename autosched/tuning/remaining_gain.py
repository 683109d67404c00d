"""Expected gain of more trials: predicted from the number of trials, and the size of the improvements among them.

In a sequence of random draws the chance that trial t is the best so far is 1/t, whatever came before (Rényi 1962), and
so improvements at one time say nothing of those at another. In a guided search they come sooner: over the searches of
`tests/figures/stop.py` the chance falls with the square of t. The number of earlier ones adds no information, but the
time of the last one does: after a long time without any, fewer are to come. Their size differs from space to space: it
is learnt as the search goes on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# An improvement of note is by more than this part of the latency: less does not matter, and may be noise.
NOTABLE = 0.01
# The chance of one at trial t is this / t² · √(last / t), where `last` is the trial of the last one before. Without the
# root, the log loss on spaces that it was not fitted to is larger (0.48 in place of 0.45; a coin's is 0.69).
_RATE = 60.0
# Prior of their size: as much evidence as so many improvements, of this mean (a logarithm). With 0.032 twelve cold
# searches of products end after 32 % of their trials and lose 1.5 %, with this after 41 %: 0.5 %.
_KNOWN = 4.0
SIZE = 0.05
# The first trials are left out: improvements there only show how bad the first trial was.
_FIRST = 4
# Horizon of the prediction: a search that stops at a third of the trials should have lost no more than predicted.
_AGAIN = 2


@dataclass(frozen=True)
class RemainingGain:
    """Effect of `trials` more on the best latency.

    `expected` is the expected part of it that they save, `chance` the probability that they save more than a hundredth.
    """

    trials: int
    expected: float
    chance: float

    def __str__(self) -> str:
        some = f"{100 * self.expected:.1f} % gain expected of {self.trials} more trials"
        return f"{some} ({100 * self.chance:.0f} % chance of more than {100 * NOTABLE:.0f} %)"


@dataclass(frozen=True)
class Improvements:
    """Improvements of a search's best latency over `trials`.

    `notable` is the number of improvements of more than a hundredth, without the first few trials; `gain` is the sum of
    their logarithms, `last` the trial of the last one.
    """

    trials: int
    notable: int
    gain: float
    last: int

    @staticmethod
    def of(latencies: Sequence[float | None]) -> Improvements | None:
        """From latencies in the order of the trials, None for failures; None if no trial succeeded."""
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
        """The part of the latency that so many more trials save; `size` is the prior of an improvement's size."""
        mean = (_KNOWN * size + self.gain) / (_KNOWN + self.notable)
        return 1 - math.exp(-mean * self._to_come(more))

    @property
    def remaining(self) -> RemainingGain:
        """Gain of twice as many trials again: three times as many in all."""
        more = _AGAIN * self.trials
        return RemainingGain(more, self.expected(more), 1 - math.exp(-self._to_come(more)))

    def _to_come(self, more: int) -> float:
        """Expected number of notable improvements in so many more trials, if the first to come changes no chance."""
        return _RATE * math.sqrt(self.last / self.trials) * (1 / self.trials - 1 / (self.trials + more))


@dataclass(frozen=True)
class StopRule:
    """Stops a search when less than `gain` of the latency is expected of twice as many trials again.

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
