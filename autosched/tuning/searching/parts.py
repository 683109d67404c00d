"""Parts of a search besides its strategy and its measurer: a space, a log, and the choice of finalists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Protocol

from search_spaces import Schedule, Target
from tuning_logs import Subject, TuningRecord
from tuning_logs.ranking import standing


class Space(Protocol):
    """As much of a search space as a search needs: that of a workload, of a user's kernel, or of a recorded table."""

    @property
    def workload(self) -> Subject: ...

    @property
    def target(self) -> Target: ...

    def bind(self, schedule: Schedule) -> Schedule: ...


class Log(Protocol):
    """The part of a tuning log that a search needs."""

    @property
    def path(self) -> Path: ...

    def append(self, *records: TuningRecord) -> None: ...

    def nearest(
        self, workload: Subject, target: Target, limit: int, policy: str | None = ...
    ) -> list[TuningRecord]: ...


@dataclass(frozen=True)
class Finalists:
    """Choice of the schedules to measure again before one is called best: the fastest `most`, if there are `least`.

    The differences among the best are of the size of the noise of single trials, and on a disturbed machine the best
    may look like the tenth. Schedules more than `hopeless` times as slow as the fastest take no part.
    """

    most: int = 16
    least: int = 2
    hopeless: float = inf

    def chosen(self, records: Iterable[TuningRecord]) -> Sequence[Schedule]:
        """The finalists, in the order of the trials, which decides ties; none if there are too few.

        Of schedules that share a binary, the timed one.
        """
        timed = [r for r in standing(records) if r.measurement.ok and r.measurement.timing != "shared"]
        first = sorted(timed, key=lambda r: r.measurement.undisturbed_s)[: self.most]
        fastest = {
            r.schedule
            for r in first
            if r.measurement.undisturbed_s <= self.hopeless * first[0].measurement.undisturbed_s
        }
        chosen = [r.schedule for r in timed if r.schedule in fastest]
        return chosen if len(chosen) >= self.least else ()


# For workloads.
USUAL_FINALISTS = Finalists()
