"""Compiling schedules for a target that need not be here: nothing is loaded, and no device is touched."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.machine.devices import usable_cores
from autosched.measuring.local.compile_pool import CompilePool
from autosched.measuring.local.fork_server import shared_server
from autosched.measuring.local.jobs import Candidate
from autosched.measuring.local.worker_process import wait_for
from autosched.measuring.worker_setups import DEFAULT_BACKEND, TrialLimits, compile_setups
from search_spaces import Schedule, Target
from tuning_logs import CompileFacts, Measurement


def compile_all(
    target: Target, schedules: Sequence[Schedule], backend: str = DEFAULT_BACKEND
) -> list[CompileFacts | Measurement]:
    """What the compiler says of each bound schedule, in order, or why it did not compile: in processes of their own.

    Raises:
        TargetUnavailableError: the worker processes do not start.
    """
    limits = TrialLimits(compile_workers=max(1, min(len(usable_cores()), len(schedules))))
    pool = CompilePool(shared_server(), compile_setups(target, limits, backend), limits.compile_timeout_s)
    results: dict[int, CompileFacts | Measurement] = {}
    ready: list[object] = []
    try:
        for number, schedule in enumerate(schedules):
            pool.submit(number, schedule)
        while len(results) < len(schedules):
            for compiled in pool.step(ready):
                found = compiled.result
                results[compiled.number] = found.artefact.facts if isinstance(found, Candidate) else found
            if pool.busy:
                ready = wait_for(pool.workers)
    finally:
        pool.close()
    return [results[number] for number in range(len(schedules))]
