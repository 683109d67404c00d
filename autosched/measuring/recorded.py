"""A measurer that answers from records: a search can be repeated, and strategies compared, without the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autosched.measuring.measurer import OnDone
from search_spaces import InputError, Schedule
from tuning_logs import Measurement, TuningRecord


class RecordedMeasurer:
    """Answers with what was recorded of a schedule; of several records of one schedule the last counts."""

    def __init__(self, records: Iterable[TuningRecord]) -> None:
        self._measurements = {r.schedule: r.measurement for r in records}

    def measure(self, schedules: Sequence[Schedule], on_done: OnDone | None = None) -> list[Measurement]:
        """The recorded measurements, in order.

        Raises:
            InputError: a schedule was never recorded.
        """
        found = []
        for number, schedule in enumerate(schedules):
            if schedule not in self._measurements:
                raise InputError(f"no record of {schedule.one_line}; search only the space that was recorded")
            found.append(self._measurements[schedule])
            if on_done is not None:
                on_done(number, found[-1])
        return found

    def remeasure(self, schedules: Sequence[Schedule], rounds: int) -> list[Measurement]:
        """The same answers again."""
        return self.measure(schedules)

    def close(self) -> None:
        """Nothing to end."""
