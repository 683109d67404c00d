"""Comparison of records with this version of autosched: exact if it prints the same kernel; nothing is compiled.

A record is exact while its schedule prints its source, and stale otherwise: an edited comment or a moved module leaves
it exact. The schedule of a stale one may still be legal, and have a kernel. A record without a fingerprint of its
source (a failed trial of an earlier version) is exact only if the very same code measured it, or if this version cannot
print its schedule either.
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched import backends
from autosched.backends import spaces
from autosched.backends.backend import CompileError
from autosched.backends.build import bound, render
from autosched.backends.fingerprint import source_fingerprint
from autosched.backends.generator import generator_hash
from search_spaces import AutoschedError, InputError, Schedule, Target, Workload
from tuning_logs import OwnKernel, TuningRecord


def printed(record: TuningRecord, called: Workload) -> str:
    """The source that this version generates for a record's schedule, which needs neither a compiler nor the device.

    `called`: as in `render`.

    Raises:
        AutoschedError: the backend is not installed, or the schedule is not of the search space any more, or cannot be
            printed.
    """
    schedule = bound(record)
    try:
        return render(schedule, record.target, called)
    except CompileError as error:
        raise AutoschedError(f"{record.workload.label}: its schedule cannot be printed: {error}") from error


def fingerprint_of(schedule: Schedule, target: Target) -> str:
    """The fingerprint of the source that this version prints for a bound schedule and its target.

    Raises:
        InputError: its backend is not installed.
        CompileError: its backend cannot print it.
    """
    return source_fingerprint(render(schedule, target), schedule.program)


@dataclass(frozen=True)
class _Made:
    """Result of this version for a schedule: a source with a fingerprint, or the reason that there is none.

    `printable`: false if the schedule is of the space, and legal, but has no text.
    """

    source: str | None = None
    why_not: str = ""
    printable: bool = True


class Reproduction:
    """Distinguishes exact records from stale ones. A schedule is printed once, in 1 to 4 ms, for all of its records.

    No more than `most` schedules are printed: later ones are not examined, and count as stale.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._made: dict[tuple[Workload, Target, Schedule], _Made] = {}

    def is_exact(self, record: TuningRecord) -> bool:
        return self.why_stale(record) is None

    def is_legal(self, record: TuningRecord) -> bool:
        """True if this version makes a kernel of the record's schedule, even another one than was measured."""
        return self._make(record).source is not None

    def why_stale(self, record: TuningRecord) -> str | None:
        """Reason that this version does not make the kernel of a record, or None when it does, byte for byte.

        The comment at the top of the source does not count. A kernel of the user's own is filed under its source: no
        other version of autosched makes another one of it.
        """
        if isinstance(record.subject, OwnKernel):
            return None
        told, measured = record.measurement.source, record.measurement
        if told is None and record.provenance.generator == generator_hash():
            return None
        if told is None and measured.status != "compile_error":
            return "the record does not tell what was compiled"
        made = self._make(record)
        if told is None:
            return "this version prints its schedule" if made.printable else None
        if made.source is None:
            return made.why_not
        return None if made.source == told else "this version makes another kernel of its schedule"

    def _make(self, record: TuningRecord) -> _Made:
        key = record.workload, record.target, record.schedule
        if key not in self._made:
            if self._most is not None and len(self._made) >= self._most:
                return _Made(why_not=f"it comes after {self._most} others that are stale")
            self._made[key] = self._make_anew(record)
        return self._made[key]

    def _make_anew(self, record: TuningRecord) -> _Made:
        try:
            backends.named(record.backend)
        except InputError as error:
            return _Made(why_not=str(error))
        try:
            space = spaces.build(record.workload, record.target)
            schedule = space.bind(record.schedule)
            if reason := space.why_illegal(schedule):
                return _Made(why_not=f"its schedule is no longer legal: {reason}")
            return _Made(fingerprint_of(schedule, record.target))
        except InputError as error:
            return _Made(why_not=f"its schedule is no longer in the search space: {error}")
        except (AutoschedError, CompileError) as error:
            return _Made(why_not=f"its schedule can no longer be printed: {error}", printable=False)
