"""The records of a log by task: workload or own kernel, target and timing policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from autosched.reporting.winners import check_select, is_selected, named
from autosched.tuning.history import tuning_clock
from search_spaces import InputError, Target
from tuning_logs import TuningLog, TuningRecord
from tuning_logs.intervals import Interval, paired_ratio, ratio_interval
from tuning_logs.ranking import best_of
from tuning_logs.record import Subject
from tuning_logs.several.merging import logs_at, merged

# Tasks that an error names.
_MOST_NAMED = 5


@dataclass(frozen=True)
class Task:
    """The records of one task, oldest first, and the log that has them, the last one where several have some."""

    log: Path
    records: tuple[TuningRecord, ...]

    @property
    def subject(self) -> Subject:
        return self.records[-1].subject

    @property
    def target(self) -> Target:
        return self.records[-1].target

    @property
    def policy(self) -> str:
        return self.records[-1].provenance.policy

    @cached_property
    def trials(self) -> tuple[TuningRecord, ...]:
        """All records but those of finals."""
        return tuple(record for record in self.records if not record.provenance.finals)

    @cached_property
    def best(self) -> TuningRecord | None:
        """The record that a replay rebuilds; None where no trial succeeded."""
        return best_of(self.records)

    @cached_property
    def clock_s(self) -> list[float]:
        """Seconds of tuning up to each record, without pauses."""
        return tuning_clock(self.records)

    @cached_property
    def against_library(self) -> Speedup | None:
        """The speedup of the best kernel over the vendor's library; None where that was not timed with it."""
        return None if self.best is None else speedup(self.best.measurement.library_s, self.best.measurement.paired_s)


@dataclass(frozen=True)
class Speedup:
    """The median ratio of paired rounds, and its 95 % confidence interval; None with fewer than six rounds."""

    ratio: float
    interval: Interval | None


def speedup(slow: Sequence[float], fast: Sequence[float]) -> Speedup | None:
    """The speedup of `fast`; None where the rounds are none, or not the same."""
    if not slow or len(slow) != len(fast):
        return None
    return Speedup(paired_ratio(slow, fast), ratio_interval(slow, fast))


def median_interval(latencies_s: Sequence[float]) -> Interval | None:
    """The 95 % confidence interval of a median latency, in seconds; None with fewer than six."""
    return ratio_interval(latencies_s, [1.0] * len(latencies_s))


def tasks_at(path: Path, select: Sequence[str] = ()) -> list[Task]:
    """The tasks of a log, or of all compressed logs in a folder, in the order of their first records.

    With `select` only those that `is_selected`.

    Raises:
        InputError: there is no log, it is empty, or nothing in it is selected.
        LogError: it is no tuning log, or one of which no record can be read.
    """
    check_select(select)
    found = list(_tasks(logs_at(path)))
    if not found:
        raise InputError(f"{path} holds no tuning record; make some with `autosched tune`")
    chosen = [task for task in found if is_selected(task.records[-1], select)]
    if not chosen:
        raise InputError(f"{path} holds no {' or '.join(map(repr, select))}; it holds {_names(found)}")
    return chosen


def _tasks(logs: Iterable[TuningLog]) -> Iterator[Task]:
    found: dict[tuple[str, str, str], dict[Path, list[TuningRecord]]] = {}
    for log in logs:
        for record in log.readable():
            of_task = found.setdefault((*record.key, record.provenance.policy), {})
            of_task.setdefault(log.path, []).append(record)
    for by_log in found.values():
        last = next(reversed(by_log))
        records = by_log[last] if len(by_log) == 1 else merged(r for part in by_log.values() for r in part)
        yield Task(last, tuple(records))


def _names(found: Sequence[Task]) -> str:
    names = [named(task.records[-1]) for task in found]
    more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
