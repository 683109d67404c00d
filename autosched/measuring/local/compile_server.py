"""Job of a compile worker: print and compile. It touches no device."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.backends.backend import Backend
from autosched.backends.build import build
from autosched.machine import memory
from autosched.measuring.local.jobs import Job, Reply, Trial, one_line
from search_spaces import Target
from search_spaces.errors import unknown_name
from tuning_logs import Measurement, Status


class CompileServer:
    """Serves `Trial`s, each of which may take `memory_bytes` more than the process has."""

    def __init__(self, backends: Mapping[str, Backend], target: Target, memory_bytes: int) -> None:
        self._backends = backends
        self._target = target
        self._memory_bytes = memory_bytes

    def serve(self, job: Job) -> Reply:
        assert isinstance(job, Trial)
        try:
            with memory.limited(self._memory_bytes):
                backend = self._named(job.schedule.backend)
                return build(job.program, job.schedule.one_line, self._target, backend)
        except Exception as error:
            # Whatever a compiler raises over one candidate is that candidate's failure, and goes into its record.
            status: Status = "out_of_memory" if memory.ran_out(error) else "compile_error"
            return Measurement(status, detail=one_line(error))

    def _named(self, name: str) -> Backend:
        if name not in self._backends:
            raise unknown_name("backend of the workers", name, self._backends)
        return self._backends[name]
