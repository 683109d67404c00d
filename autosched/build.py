"""From a schedule to a compiled kernel: the one way, taken when tuning and when replaying; so both make the same."""

from __future__ import annotations

from autosched.backends.backend import Artefact, Backend
from search_spaces import Schedule, Target


def build(schedule: Schedule, target: Target, backend: Backend) -> Artefact:
    """Lower, print and compile a bound schedule. Touches no device.

    Raises:
        CompileError: the printer or the compiler refused it.
    """
    source = backend.render(schedule.program, schedule.one_line)
    return backend.compile(source, schedule.program, target)
