"""Queries of a log whose records are all in memory: linear search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from search_spaces import Target
from tuning_logs.ranking import IsGood, any_record, best_of
from tuning_logs.record import Subject, TuningRecord
from tuning_logs.selection import Filter, admitted, nearest


class MemoryLog:
    """Queries of `records`, which yields the records anew, oldest first, whenever it is iterated over."""

    def __init__(self, records: Iterable[TuningRecord]) -> None:
        self._records = records

    def __iter__(self) -> Iterator[TuningRecord]:
        return iter(self._records)

    def records(self, wanted: Filter) -> list[TuningRecord]:
        return admitted(self._records, wanted)

    def best(self, wanted: Filter, is_good: IsGood = any_record) -> TuningRecord | None:
        return best_of(self.records(wanted), is_good)

    def nearest(self, subject: Subject, target: Target, limit: int, policy: str | None = None) -> list[TuningRecord]:
        return nearest(self._records, subject, target, limit, policy)
