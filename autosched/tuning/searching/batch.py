"""Schedules that were asked for together, and what became of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from autosched.backends.backend import CompileError
from autosched.backends.reproduction import fingerprint_of
from search_spaces import InputError, Schedule, Target
from tuning_logs import CompileFacts, Measurement, TuningRecord


@dataclass(eq=False)
class Batch:
    """Schedules that were asked for together, what asking took of each, and what became of them so far.

    `lost` are those that were not measured: they were cancelled, or cannot be.
    """

    schedules: Sequence[Schedule]
    propose_s: float
    records: dict[int, TuningRecord] = field(default_factory=dict)
    lost: int = 0

    @property
    def open(self) -> int:
        return len(self.schedules) - len(self.records) - self.lost

    @property
    def in_order(self) -> list[TuningRecord]:
        """The records in the order in which the schedules were proposed, whatever the timing of the compilers."""
        return [self.records[number] for number in sorted(self.records)]


# A trial that has ended: its batch, its number there, and what came of it.
Ended = tuple[Batch, int, Measurement]


def telling_source(measurement: Measurement, schedule: Schedule, target: Target) -> Measurement:
    """The measurement with the fingerprint of what was compiled, which a compiler that failed does not tell.

    It is that of what is printed here. What cannot be printed stays without, and so does what only the workers can.
    """
    if measurement.source is not None:
        return measurement
    try:
        source = fingerprint_of(schedule, target)
    except (CompileError, InputError):
        return measurement
    facts = measurement.facts or CompileFacts(seconds=0.0)
    return dataclasses.replace(measurement, facts=dataclasses.replace(facts, source=source))
