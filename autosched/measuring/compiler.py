"""What a compile worker does: print and compile. It touches no device."""

from __future__ import annotations

import dataclasses

from autosched.backends.backend import Backend
from autosched.build import build
from autosched.measuring.jobs import CompileFailure, CompileJob, Job, Reply, one_line
from search_spaces import Target


class Compiler:
    """Serves `CompileJob`s."""

    def __init__(self, backend: Backend, target: Target) -> None:
        self._backend = backend
        self._target = target

    def serve(self, job: Job) -> Reply:
        assert isinstance(job, CompileJob)
        schedule = dataclasses.replace(job.schedule, lowering=lambda _: job.program)
        try:
            return build(schedule, self._target, self._backend)
        except Exception as error:
            # Whatever a compiler raises over one candidate is that candidate's failure, and its record says which.
            return CompileFailure(one_line(error))
