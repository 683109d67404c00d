"""A measurer that answers from records: searches can be repeated, and strategies compared, without the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from autosched.machine.policies import Policy
from autosched.measuring.measurer import BATCH
from search_spaces import InputError, Schedule
from tuning_logs import Measurement, Subject, TuningRecord, Versions


class RecordedMeasurer:
    """Answers at once with the record of a schedule; the last of several counts.

    With a `capacity` of two batches, a search submits schedules before it has seen the results of the batch before.
    """

    def __init__(self, records: Iterable[TuningRecord], capacity: int = BATCH) -> None:
        recorded = list(records)
        self._measurements = {(r.subject.key, r.schedule): r.measurement for r in recorded}
        self._environment = recorded[-1].provenance.versions if recorded else ()
        self._capacity = capacity

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def environment(self) -> Versions:
        """The last record's versions."""
        return self._environment

    def library_s(self, workload: Subject) -> float | None:
        return None

    def submit(
        self, workload: Subject, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        """The recorded measurements.

        Raises:
            InputError: a schedule was never recorded.
        """
        futures = []
        for measurement in self._found(workload, schedules):
            future = Future[Measurement]()
            future.set_result(measurement)
            futures.append(future)
        return futures

    def remeasure(
        self, workload: Subject, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        """The same answers again."""
        return self._found(workload, schedules)

    def cancel(self) -> None:
        """Nothing to cancel."""

    def _found(self, workload: Subject, schedules: Sequence[Schedule]) -> list[Measurement]:
        for schedule in schedules:
            if (workload.key, schedule) not in self._measurements:
                raise InputError(f"no record of {schedule.one_line}; search only the space that was recorded")
        return [self._measurements[workload.key, s] for s in schedules]
