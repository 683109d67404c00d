"""Timing of calls whose latency depends on data: one figure for several settings of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from autosched.machine.timing import Run, Timer


class MeanTimer:
    """A timer whose samples are geometric means over several settings of the data that the calls read.

    It is the mean by which two calls are ranked alike whatever the times under each setting are relative to, be it a
    library's or the best known (Fleming and Wallace, "How not to lie with statistics", CACM 29(3), 1986): to be
    twice as slow in one setting counts as much as in another that takes a hundred times as long. And it is a figure of
    one call alone, which a record can hold, unlike the worst ratio to the best known, which later trials change.
    """

    def __init__(self, timer: Timer, settings: Mapping[str, Run]) -> None:
        """`settings`: each changes the data to one of the settings, in which it stays; at least one."""
        self._timer, self._settings = timer, settings
        self._taken: dict[Run, dict[str, list[float]]] = {}
        self.slowdown = 1.0

    def sample(self, runs: Sequence[Run]) -> list[float]:
        rows, slowdowns = [], []
        for name, setting in self._settings.items():
            setting()
            rows.append(self._timer.sample(runs))
            slowdowns.append(self._timer.slowdown)
            for run, seconds in zip(runs, rows[-1], strict=True):
                self._taken.setdefault(run, {}).setdefault(name, []).append(seconds)
        self.slowdown = statistics.geometric_mean(slowdowns)
        return [statistics.geometric_mean(taken) for taken in zip(*rows, strict=True)]

    def medians_s(self, run: Run) -> dict[str, float]:
        """Median seconds of a call under each setting so far."""
        return {name: statistics.median(taken) for name, taken in self._taken[run].items()}
