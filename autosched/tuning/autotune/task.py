"""A tuning task: a kernel for one key on one device; and its records in the log before anything is measured."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autosched.backends.environment import environment
from autosched.replaying.missing_records import nearest_text
from autosched.strategies.bayesian.points import point_of, schedule_of
from autosched.tuning.autotune.configurations import BACKEND, Choices
from autosched.tuning.autotune.kernel_records import POLICY, KernelRecords, best_point
from search_spaces import Schedule, Target
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs import Measurement, OwnKernel, Provenance, TuningRecord, Versions
from tuning_logs.exchange.recorded_table import RecordedTable
from tuning_logs.ranking import standing


@dataclass(frozen=True)
class TuningTask:
    """A kernel for one key on one device, over a space. `trials`: the number of points measured in the end.

    `tables` are others' measurements of the kernel.
    """

    kernel: OwnKernel
    target: Target
    space: PlainSpace
    choices: Choices
    records: KernelRecords
    trials: int
    seed: int
    tables: Sequence[RecordedTable] = ()

    @property
    def workload(self) -> OwnKernel:
        return self.kernel

    def bind(self, schedule: Schedule) -> Schedule:
        """The same schedule: nothing lowers it."""
        return schedule

    @property
    def wanted(self) -> int:
        """Number of trials, or of points if there are fewer."""
        points = self.space.points
        return self.trials if points is None else min(self.trials, len(points))

    @property
    def known(self) -> list[TuningRecord]:
        """The records of this key.

        If nothing succeeded, only those that broke the device: other obstacles may be gone.
        """
        found = self.records.of(self.kernel, self.target, self.space)
        if any(r.measurement.ok for r in standing(found)):
            return found
        return [r for r in found if r.measurement.status == "run_crash"]

    @property
    def found(self) -> Point | None:
        """Result of a finished search; None if there was none, or more trials are wanted now."""
        known = self.known
        last = next((r for r in reversed(known) if r.measurement.ok), None)
        if last is None or not last.provenance.finals or len(standing(known)) < self.wanted:
            return None
        return best_point(known, self.space)

    @property
    def why_unfinished(self) -> str:
        """Reason that there is no result of a finished search; and what the nearest record is of."""
        path, tried = self.records.path, len(standing(self.known))
        if tried:
            return f"{path} has {tried} of {self.wanted} trials, or no finals: its search was not finished"
        absent = "" if path.exists() else ", which does not exist"
        return f"no search of it is in {path}{absent}{nearest_text(self.kernel, self.target, [path], POLICY)}"

    def record(self, point: Point, measurement: Measurement) -> TuningRecord:
        """Record of a point that was tried before any search."""
        provenance = Provenance(self.kernel.fingerprint, POLICY, time.time(), self.seed, 0, self.versions)
        return TuningRecord(self.kernel, self.target, schedule_of(self.space, point, BACKEND), measurement, provenance)

    @cached_property
    def versions(self) -> Versions:
        return environment(self.target)

    def guesses(self) -> Iterator[Point]:
        """Choices without measuring, best first: the best known, those of the nearest keys, the first legal ones."""
        if (best := best_point(self.known, self.space)) is not None:
            yield best
        for record in self.records.elsewhere(self.kernel, self.target, self.space):
            if (point := point_of(self.space, record.schedule)) is not None:
                yield point
        if self.space.points is not None:
            yield from self.space.points
        rng = np.random.default_rng(self.seed)
        while True:
            yield self.space.sample(rng)
