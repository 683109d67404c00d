"""Schedules proposed together, and their results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from autosched.backends.backend import CompileError
from autosched.backends.reproduction import fingerprint_of
from search_spaces import InputError, Schedule, Target
from tuning_logs import CompileFacts, Measurement, TuningRecord


@dataclass(eq=False)
class Candidate:
    """A schedule from its proposal to its record: one row, filled from left to right.

    `propose_s` is the time to propose it. It is `lost` if it was not measured: cancelled, submitted again, or given up.
    """

    schedule: Schedule
    propose_s: float
    future: Future[Measurement] = field(default_factory=Future)
    record: TuningRecord | None = None
    lost: bool = False


@dataclass(eq=False)
class Batch:
    """Candidates proposed together; `given_again`: only those that were lost before."""

    candidates: Sequence[Candidate]
    given_again: bool = False

    @property
    def open(self) -> int:
        return sum(c.record is None and not c.lost for c in self.candidates)

    @property
    def records(self) -> list[TuningRecord]:
        """In the order in which the schedules were proposed, whatever the timing of the compilers."""
        return [c.record for c in self.candidates if c.record is not None]


def telling_source(measurement: Measurement, schedule: Schedule, target: Target) -> Measurement:
    """The measurement with the fingerprint of the source, which is missing after a failed compilation.

    It is that of the source printed here. A schedule that cannot be printed, or only by the workers, stays without one.
    """
    if measurement.source is not None:
        return measurement
    try:
        source = fingerprint_of(schedule, target)
    except (CompileError, InputError):
        return measurement
    facts = measurement.facts or CompileFacts(seconds=0.0)
    return dataclasses.replace(measurement, facts=dataclasses.replace(facts, source=source))
