"""From a schedule to a compiled kernel: the one way, taken when tuning and when replaying; so both make the same."""

from __future__ import annotations

import dataclasses

from autosched.backends.backend import Artefact, Backend
from autosched.backends.fingerprint import source_fingerprint
from search_spaces import Schedule, Target


def build(schedule: Schedule, target: Target, backend: Backend) -> Artefact:
    """Lower, print and compile a bound schedule; the facts say what was printed. Touches no device.

    Raises:
        CompileError: the printer or the compiler refused it.
    """
    program = schedule.program
    source = backend.render(program, schedule.one_line)
    artefact = backend.compile(source, program, target)
    facts = dataclasses.replace(artefact.facts, source=source_fingerprint(source, program))
    return dataclasses.replace(artefact, facts=facts)
