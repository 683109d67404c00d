"""What more trials would gain: predicted from how often, and by how much, the best was improved so far.

In a search each doubling of the trials brings about as many improvements as the one before, or fewer: drawn at random,
as many (the records of a sequence), steered by a model, many at first and few in the end. So improvements are counted
over the logarithm of the trials, those of long ago for less; their rate has a gamma distribution, from searches like
this one (`_EVENTS`, `_EXPOSURE`) and from what this one has shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# An improvement counts (trial / trials)^this: that at half of the trials a third of one just now.
_FADING = 1.6
# What is known before: so many improvements of more than a hundredth in so many e-folds of the trials, each by so much.
# With these and the above the improvements of the searches of `tests/figures_stop.py` are the most likely.
_EVENTS = 0.8
_EXPOSURE = 3.7
_SIZE = 0.04
# What counts as an improvement of note.
NOTABLE = 0.01
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
        some = f"{100 * self.expected:.1f} % expected of {self.trials} more trials"
        return f"{some} ({100 * self.chance:.0f} % chance of more than {100 * NOTABLE:.0f} %)"


@dataclass(frozen=True)
class Improvements:
    """How the best latency of a search came down over `trials`.

    `notable` counts improvements of more than a hundredth, `gain` sums the logarithms of all; in both what lies back
    has faded.
    """

    trials: int
    notable: float
    gain: float

    @staticmethod
    def of(latencies: Sequence[float | None]) -> Improvements | None:
        """Those of latencies in the order of the trials, None for failures; None when no trial succeeded."""
        best, notable, gain = math.inf, 0.0, 0.0
        for number, latency in enumerate(latencies, 1):
            if latency is None or latency >= best:
                continue
            if best < math.inf:
                faded = (number / len(latencies)) ** _FADING
                step = math.log(best / latency)
                notable += faded * (step > NOTABLE)
                gain += faded * step
            best = latency
        return Improvements(len(latencies), notable, gain) if best < math.inf else None

    @property
    def _exposure(self) -> float:
        """The e-folds of the trials so far, faded likewise: the integral of (t / trials)^_FADING over log t."""
        return (1 - math.pow(self.trials, -_FADING)) / _FADING

    def expected(self, more: int, size: float = _SIZE) -> float:
        """The part of the latency that so many more trials save; an improvement is by about `size`, as far as known."""
        per_e_fold = (_EVENTS * size + self.gain) / (_EXPOSURE + self._exposure)
        return 1 - math.exp(-per_e_fold * math.log1p(more / self.trials))

    @property
    def remaining(self) -> RemainingGain:
        """What twice as many trials again would gain: three times as many in all."""
        return self.after(_AGAIN * self.trials)

    def after(self, more: int) -> RemainingGain:
        """What so many more trials would gain."""
        seen = _EXPOSURE + self._exposure
        nothing = (seen / (seen + math.log1p(more / self.trials))) ** (_EVENTS + self.notable)
        return RemainingGain(more, self.expected(more), 1 - nothing)


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
