"""What a log answers whose records are all in memory: they are looked through for every question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from search_spaces import Target
from tuning_logs.ranking import IsGood, any_record, best_of
from tuning_logs.record import Subject, TuningRecord
from tuning_logs.selection import Filter, admitted, nearest


class HeldLog:
    """Answers from `held`, which gives the records anew, oldest first, whenever it is iterated over."""

    def __init__(self, held: Iterable[TuningRecord]) -> None:
        self._held = held

    def __iter__(self) -> Iterator[TuningRecord]:
        return iter(self._held)

    def records(self, wanted: Filter) -> list[TuningRecord]:
        return admitted(self._held, wanted)

    def best(self, wanted: Filter, is_good: IsGood = any_record) -> TuningRecord | None:
        return best_of(self.records(wanted), is_good)

    def nearest(self, subject: Subject, target: Target, limit: int, policy: str | None = None) -> list[TuningRecord]:
        return nearest(self._held, subject, target, limit, policy)
