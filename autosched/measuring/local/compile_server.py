"""What a compile worker does: print and compile. It touches no device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from autosched.backends.backend import Backend
from autosched.backends.build import build
from autosched.machine import memory
from autosched.measuring.local.jobs import CompileFailure, CompileJob, Job, Reply, one_line
from search_spaces import Schedule, Target
from search_spaces.errors import unknown_name


class CompileServer:
    """Serves `CompileJob`s, each of which may take `memory_bytes` more than the process has."""

    def __init__(self, backends: Mapping[str, Backend], target: Target, memory_bytes: int) -> None:
        self._backends = backends
        self._target = target
        self._memory_bytes = memory_bytes

    def serve(self, job: Job) -> Reply:
        assert isinstance(job, CompileJob)
        schedule = dataclasses.replace(job.schedule, lowering=lambda _: job.program)
        try:
            with memory.limited(self._memory_bytes):
                return build(schedule, self._target, self._backend_of(schedule))
        except Exception as error:
            # Whatever a compiler raises over one candidate is that candidate's failure, and its record says which.
            return CompileFailure(one_line(error), "out_of_memory" if memory.ran_out(error) else "compile_error")

    def _backend_of(self, schedule: Schedule) -> Backend:
        if schedule.backend not in self._backends:
            raise unknown_name("backend of the workers", schedule.backend, self._backends)
        return self._backends[schedule.backend]
