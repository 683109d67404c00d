"""Scales from figures to positions, and their ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Steps between ticks, times a power of ten.
_STEPS = (1.0, 2.0, 5.0, 10.0)
_MOST_TICKS = 6


@dataclass(frozen=True)
class Scale:
    """Positions from `start` to `end` for figures from `low` to `high`; those outside are at the nearer end."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, figure: float) -> float:
        within = min(max(figure, self.low), self.high)
        low, high, at = (math.log(x) if self.is_log else x for x in (self.low, self.high, within))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int = _MOST_TICKS) -> list[float]:
        """Round figures within the scale, about `most` of them at most."""
        return _log_ticks(self.low, self.high, most) if self.is_log else _linear_ticks(self.low, self.high, most)


def log_scale(figures: Iterable[float], start: float, end: float, margin: float = 1.1) -> Scale:
    """A logarithmic scale of positive figures, with a margin at either end, as a factor."""
    found = list(figures)
    return Scale(min(found) / margin, max(found) * margin, start, end, is_log=True)


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in _STEPS if s * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """1, 2 and 5 times powers of ten; every few powers where there are many, linear ticks where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = max(1, -(-len(powers) // most))
    for steps in (_STEPS[:3], _STEPS[:1]):
        found = [s * 10.0**p for p in powers if p % every == 0 for s in steps if low <= s * 10.0**p <= high]
        if len(found) <= most + 1:
            break
    return found if len(found) > 2 else _linear_ticks(low, high, most)
