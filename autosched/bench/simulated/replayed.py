"""A recorded table in the place of a device: the loop of all searches, on a measurer that answers from the table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autosched.measuring.recorded import RecordedMeasurer
from autosched.strategies.bayesian.points import PointSearch, PointStrategy, outcomes, schedule_of
from autosched.tuning.searching.interruption import Interruption
from autosched.tuning.searching.loop import Alone, Loop
from autosched.tuning.searching.search import SearchOf
from autosched.tuning.searching.sources import Sources
from search_spaces import InputError, Schedule, Target
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs import Measurement, OwnKernel, Provenance, Subject, TuningRecord
from tuning_logs.exchange.recorded_table import RecordedTable

Seconds = NDArray[np.float64]

# Tables do not name the backend, nor the time and the policy of their measurements.
_BACKEND = ""
_PROVENANCE = Provenance("", "cold", 0.0, 0, 0)


@dataclass(frozen=True)
class ReplayedTable:
    """The part of a recorded table that a search needs, small enough to send to every process.

    `seconds` are those of `points`, infinite for failures.
    """

    name: str
    device: str
    names: tuple[str, ...]
    values: tuple[Point, ...]
    points: tuple[Point, ...]
    seconds: Seconds

    @staticmethod
    def of(table: RecordedTable, name: str) -> ReplayedTable:
        """The table, with that name in reports.

        Raises:
            InputError: nothing in it succeeded.
        """
        seconds = np.array([np.inf if trial.seconds is None else trial.seconds for trial in table.trials])
        if not np.isfinite(seconds).any():
            raise InputError(f"{name}: none of its {len(seconds)} configurations succeeded; there is nothing to search")
        return ReplayedTable(
            name, table.device, table.names, table.values, tuple(t.point for t in table.trials), seconds
        )

    @cached_property
    def space(self) -> PlainSpace:
        return PlainSpace(dict(zip(self.names, self.values, strict=True)), configurations=self.points)

    @cached_property
    def ascending(self) -> Seconds:
        """Seconds of the successful points, the fastest first."""
        return np.sort(self.seconds[np.isfinite(self.seconds)])

    # As a space of schedules (`autosched.tuning.searching.parts.Space`): of a kernel and a device of which nothing is
    # known but how they are called.
    @cached_property
    def workload(self) -> OwnKernel:
        return OwnKernel(self.name, fingerprint="")

    @cached_property
    def target(self) -> Target:
        return Target(self.device, self.device, "gpu", 0, 1, 1, 1, 1, 1, 1, 1.0, 1.0, 1.0, 1.0)

    def bind(self, schedule: Schedule) -> Schedule:
        """The same schedule: nothing lowers it."""
        return schedule

    @cached_property
    def measurer(self) -> RecordedMeasurer:
        """Answers what the points took."""
        taken = (Measurement("ok", (s,)) if np.isfinite(s) else Measurement("run_error") for s in self.seconds.tolist())
        schedules = (schedule_of(self.space, point, _BACKEND) for point in self.points)
        return RecordedMeasurer(
            TuningRecord(self.workload, self.target, schedule, measurement, _PROVENANCE)
            for schedule, measurement in zip(schedules, taken, strict=True)
        )

    @cached_property
    def rows(self) -> dict[Point, int]:
        return {point: row for row, point in enumerate(self.points)}


class _NoLog:
    """Keeps no record, and knows of none."""

    path = Path(os.devnull)

    def append(self, *records: TuningRecord) -> None: ...

    def nearest(self, workload: Subject, target: Target, limit: int, policy: str | None = None) -> list[TuningRecord]:
        return []


def replay(table: ReplayedTable, search: PointSearch, budget: int, to_the_end: bool = False) -> list[int]:
    """Let a search measure at most `budget` points of the table; returns their rows, in the order of measuring.

    It ends where the optimum was measured, from which on nothing can be found, unless it is to go `to_the_end`.
    """
    strategy = PointStrategy(table.space, search, _BACKEND)
    one = SearchOf(table, strategy, _NoLog(), _PROVENANCE, budget, [], sources=Sources(cold=True))
    enough_s = 0.0 if to_the_end else float(table.ascending[0])
    Loop(table.measurer, Interruption(), Alone(one, enough_s)).run()
    return [table.rows[point] for point in outcomes(one.trials, table.space)[0]]
