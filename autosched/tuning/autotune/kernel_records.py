"""Records of a user's kernel in a log, for the current values of its key and for others; and recorded tables of it.

Where the log cannot be written, records are kept until the process ends: a kernel must run all the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from autosched.strategies.bayesian import History
from autosched.strategies.bayesian.points import outcomes, point_of
from search_spaces import InputError, LogError, Target
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs import OwnKernel, Subject, TuningLog, TuningRecord
from tuning_logs.exchange.files import read_tables
from tuning_logs.exchange.recorded_table import RecordedTable
from tuning_logs.ranking import best_of, standing
from tuning_logs.selection import MOST_LOOKED_THROUGH, MOST_TOLD, nearest, telling

# Records of other keys and devices for a warm start: knobs are cheap to describe, and of two of eight pairs of recorded
# tables a search was worse off with 62 records of the other than with 125.
_MOST_TOLD = 2 * MOST_TOLD
# The only timing policy of these kernels.
POLICY = "cold"


class KernelRecords:
    """The records of one kernel, in a log and in memory."""

    def __init__(self, path: Path) -> None:
        self._log = TuningLog(path)
        self._unwritten: list[TuningRecord] = []

    @property
    def path(self) -> Path:
        return self._log.path

    def append(self, *records: TuningRecord) -> None:
        """Write them to the log; if that fails, warn once and keep them."""
        try:
            self._log.append(*records)
        except LogError as error:
            if not self._unwritten:
                warnings.warn(f"what is measured of your kernels is lost when the process ends: {error}", stacklevel=2)
            self._unwritten += records

    def of(self, kernel: OwnKernel, target: Target, space: PlainSpace) -> list[TuningRecord]:
        """The records of this key on this device whose configuration still exists, oldest first."""
        kept = (r for r in self._unwritten if r.key == (kernel.key, target.key))
        found = [*self._read(kernel, target), *kept]
        return [r for r in found if point_of(space, r.schedule) is not None]

    def _read(self, kernel: OwnKernel, target: Target) -> list[TuningRecord]:
        try:
            return self._log.records(kernel, target, POLICY)
        except LogError:
            return []

    def nearest(self, kernel: Subject, target: Target, limit: int, policy: str | None = POLICY) -> list[TuningRecord]:
        """As of a log; none if it cannot be read."""
        try:
            return self._log.nearest(kernel, target, limit, policy)
        except LogError:
            return []

    def elsewhere(self, kernel: OwnKernel, target: Target, space: PlainSpace) -> list[TuningRecord]:
        """Successful records of other keys and devices whose configuration exists here, too, nearest first."""
        found = self.nearest(kernel, target, MOST_LOOKED_THROUGH + len(self._read(kernel, target)))
        others = [r for r in [*found, *self._unwritten] if r.key != (kernel.key, target.key)]
        others = telling(nearest(others, kernel, target, MOST_LOOKED_THROUGH), _MOST_TOLD)
        return [r for r in others if point_of(space, r.schedule) is not None]


def histories(records: list[TuningRecord], space: PlainSpace) -> list[History]:
    """Histories for the search's warm start, one for every key and device."""
    groups: dict[tuple[str, str], list[TuningRecord]] = {}
    for record in records:
        groups.setdefault(record.key, []).append(record)
    # The nearest come fast before slow: of several records of one schedule, the last that is left is the fastest.
    return [History(group[0].target.key, *outcomes(standing(reversed(group)), space)) for group in groups.values()]


def best_point(records: list[TuningRecord], space: PlainSpace) -> Point | None:
    """The winning configuration among records of one key and device."""
    best = best_of(records)
    return point_of(space, best.schedule) if best else None


def tables_of_kernel(paths: Sequence[Path], kernel: str) -> list[RecordedTable]:
    """The tables of the files; of a tuning log, those of kernels of that name.

    Raises:
        LogError: one cannot be read, or is no recorded table.
    """
    return [table for path in paths for table in read_tables(path) if _is_of(table, kernel)]


def _is_of(table: RecordedTable, kernel: str) -> bool:
    """True if a table may be of the kernel: only tables from tuning logs name theirs."""
    if table.origin is None:
        return True
    subject = table.origin.subject
    return isinstance(subject, OwnKernel) and subject.name == kernel


def told_elsewhere(tables: Sequence[RecordedTable], space: PlainSpace) -> list[History]:
    """The tables as history of a search of the space, with a warning if something is left out.

    Raises:
        InputError: one lacks a knob.
    """
    found = []
    for table in tables:
        try:
            there = table.fitted_to(space)
        except InputError as error:
            raise InputError(f"history= {table.label}: {error}") from None
        for remark in there.remarks:
            warnings.warn(f"history= {table.label}: {remark}", stacklevel=2)
        found.append(History(table.device, there.points, there.seconds))
    return found
