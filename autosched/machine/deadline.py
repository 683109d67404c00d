"""Deadlines: ends of time that are handed down, so that what is done one after the other shares one limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

Clock = Callable[[], float]


@dataclass(frozen=True)
class Deadline:
    """A moment `end_s` of a clock in seconds; infinite for none."""

    end_s: float
    clock: Clock = time.perf_counter

    @staticmethod
    def after(seconds: float | None, clock: Clock = time.perf_counter) -> Deadline:
        """So many seconds from now; None for no deadline."""
        return NEVER if seconds is None else Deadline(clock() + seconds, clock)

    @property
    def left_s(self) -> float:
        """Seconds until then, 0 afterwards."""
        return max(0.0, self.end_s - self.clock()) if self.end_s < math.inf else math.inf

    @property
    def over(self) -> bool:
        return self.left_s == 0.0

    def within(self, seconds: float) -> Deadline:
        """The deadline, or the moment in so many seconds, whichever is earlier."""
        return replace(self, end_s=min(self.end_s, self.clock() + seconds))

    def part(self, part: float) -> Deadline:
        """The end of a part, between 0 and 1, of the time left."""
        return self if self.end_s == math.inf else replace(self, end_s=self.clock() + part * self.left_s)


NEVER = Deadline(math.inf)
