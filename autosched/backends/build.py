"""From a record to its schedule, its source and a compiled kernel: the only way, so that all callers get the same."""

from __future__ import annotations

import dataclasses

from autosched import backends
from autosched.backends import spaces
from autosched.backends.backend import Artefact, Backend
from autosched.backends.fingerprint import source_fingerprint
from autosched.backends.printing.head import tensors_of_call
from search_spaces import Schedule, Target, TileProgram, Workload
from tuning_logs import TuningRecord


def bound(record: TuningRecord) -> Schedule:
    """The schedule of a record, bound to the search space that this version derives for its workload.

    Raises:
        InputError: the schedule is not of that space, or its backend is not installed.
        EmptySearchSpaceError: there is no such space.
    """
    backends.named(record.backend)
    return spaces.build(record.workload, record.target).bind(record.schedule)


def render(schedule: Schedule, target: Target, called: Workload | None = None) -> str:
    """The source that this version generates for a bound schedule and a target; needs no compiler and no device.

    `called`: a workload of the schedule's key; the comment at the top tells its tensors.

    Raises:
        InputError: its backend is not installed.
        CompileError: its backend cannot print it.
    """
    title = "\n".join([schedule.one_line, *(() if called is None else tensors_of_call(called))])
    return backends.named(schedule.backend).render(schedule.program, title, target)


def build(program: TileProgram, title: str, target: Target, backend: Backend) -> Artefact:
    """Print a program under a title, and compile it; the facts include a hash of the source. Touches no device.

    Raises:
        CompileError: the printer or the compiler refused it.
    """
    source = backend.render(program, title, target)
    artefact = backend.compile(source, program, target)
    facts = dataclasses.replace(artefact.facts, source=source_fingerprint(source, program))
    return dataclasses.replace(artefact, facts=facts)
