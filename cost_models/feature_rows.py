"""A cache of schedules' features, shared by models and queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import search_spaces
from cost_models.features import FEATURE_NAMES, amounts, scaled
from cost_models.trees import Floats
from search_spaces import AutoschedError, Schedule, SearchSpace, Target, Workload
from tuning_logs import TuningRecord

# Equal workloads of different spelling have kernels of their own: their axes may be split differently.
Key = tuple[Workload, str]


class FeatureRows:
    """One row per schedule, `FEATURE_NAMES` columns; kept for as long as this object lives, 600 bytes each."""

    def __init__(self, build: Callable[[Workload, Target], SearchSpace] | None = None) -> None:
        """`build` makes the spaces of records; by default they have the backends of the space in the query."""
        self._build = build
        self._rows: dict[Key, dict[Schedule, Floats | None]] = {}

    def of_schedules(self, space: SearchSpace, schedules: Sequence[Schedule]) -> Floats:
        """The features of schedules of `space`, shape (len(schedules), len(FEATURE_NAMES))."""
        known = self._rows.setdefault(key_of(space), {})
        new = [s for s in dict.fromkeys(schedules) if known.get(s) is None]
        if new:
            values = [_amounts(space, s) for s in new]
            known.update(zip((s.unbound for s in new), scaled(np.array(values, dtype=np.float64)), strict=True))
        rows = [known[s] for s in schedules]
        return np.array(rows, dtype=np.float32).reshape(len(rows), len(FEATURE_NAMES))

    def of_records(self, space: SearchSpace, records: Sequence[TuningRecord]) -> tuple[list[TuningRecord], Floats]:
        """The records whose schedules their spaces still have, and a row for each; `space` is one of those spaces.

        Records of other backends than those of their space are left out.
        """
        kept: list[TuningRecord] = []
        rows: list[Floats] = []
        for record in records:
            row = self._row_of(record, space)
            if row is not None:
                kept.append(record)
                rows.append(row)
        return kept, np.array(rows, dtype=np.float32).reshape(len(rows), len(FEATURE_NAMES))

    def _row_of(self, record: TuningRecord, asked: SearchSpace) -> Floats | None:
        known = self._rows.setdefault((record.workload, record.target.key), {})
        if record.schedule not in known:
            known[record.schedule.unbound] = self._lowered(record, asked)
        return known[record.schedule]

    def _lowered(self, record: TuningRecord, asked: SearchSpace) -> Floats | None:
        """The features of a record's schedule; None when its space no longer has it."""
        try:
            space = self._space_of(record, asked)
            bound = space.bind(record.schedule)
        except AutoschedError:
            return None
        return scaled(np.array(_amounts(space, bound)))

    def _space_of(self, record: TuningRecord, asked: SearchSpace) -> SearchSpace:
        if (record.workload, record.target.key) == key_of(asked):
            return asked
        if self._build:
            return self._build(record.workload, record.target)
        return search_spaces.build(record.workload, record.target, asked.backends)


def key_of(space: SearchSpace) -> Key:
    """The key under which records of this space are filed."""
    return space.workload, space.target.key


def _amounts(space: SearchSpace, schedule: Schedule) -> list[float]:
    return amounts(schedule.program, space.target, space.backends[schedule.backend], schedule.backend)
