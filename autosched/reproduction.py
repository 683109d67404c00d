"""Whether this version of autosched makes the kernel that a record describes: lowered and printed, never compiled."""

from __future__ import annotations

from autosched import backends
from autosched.backends import spaces
from autosched.backends.backend import CompileError
from autosched.fingerprint import source_fingerprint
from search_spaces import AutoschedError, InputError
from tuning_logs import TuningRecord


def printed(record: TuningRecord) -> str:
    """The source that this version generates for a record's schedule, which needs neither a compiler nor the device.

    Raises:
        AutoschedError: the backend is not installed, or the schedule is not of the search space any more, or cannot
            be printed.
    """
    backend = backends.named(record.backend)
    schedule = spaces.build(record.workload, record.target).bind(record.schedule)
    try:
        return backend.render(schedule.program, schedule.one_line)
    except CompileError as error:
        raise AutoschedError(f"{record.workload.label}: its schedule cannot be printed: {error}") from error


def why_not_reproduced(record: TuningRecord) -> str | None:
    """Why this version does not make the kernel of a successful record, or None when it does, byte for byte.

    The comment at the top of the source does not count. Takes milliseconds.
    """
    facts = record.measurement.facts
    if facts is None or facts.source is None:
        return "the record does not tell what was compiled"
    try:
        backend = backends.named(record.backend)
    except InputError as error:
        return str(error)
    try:
        space = spaces.build(record.workload, record.target)
        schedule = space.bind(record.schedule)
        if reason := space.why_illegal(schedule):
            return f"its schedule is no longer legal: {reason}"
        source = backend.render(schedule.program, schedule.one_line)
    except InputError as error:
        return f"its schedule is no longer in the search space: {error}"
    except (AutoschedError, CompileError) as error:
        return f"its schedule can no longer be printed: {error}"
    if source_fingerprint(source, schedule.program) != facts.source:
        return "this version makes another kernel of its schedule"
    return None
