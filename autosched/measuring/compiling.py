"""Compilation of schedules for a target that need not be here: nothing is loaded, and no device is touched."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.backend import Artefact
from autosched.machine.cores import usable_cores
from autosched.measuring.local.compile_pool import CompilePool
from autosched.measuring.local.fork_server import shared_server
from autosched.measuring.local.jobs import Task, Trial
from autosched.measuring.local.worker_process import wait_for
from autosched.measuring.worker_setups import DEFAULT_BACKEND, TrialLimits, compile_setups
from search_spaces import Schedule, Target, Workload
from tuning_logs import CompileFacts, Measurement


def compile_all(
    op: Workload, target: Target, schedules: Sequence[Schedule], backend: str = DEFAULT_BACKEND
) -> list[CompileFacts | Measurement]:
    """The compile facts of each bound schedule, in order, or its failure.

    Raises:
        TargetUnavailableError: the worker processes do not start.
    """
    found = artefacts(op, target, schedules, backend)
    return [one.facts if isinstance(one, Artefact) else one for one in found]


def artefacts(
    op: Workload, target: Target, schedules: Sequence[Schedule], backend: str = DEFAULT_BACKEND
) -> list[Artefact | Measurement]:
    """Each bound schedule compiled, in order, or its failure; compiled in processes of their own.

    Raises:
        TargetUnavailableError: the worker processes do not start.
    """
    limits = TrialLimits(compile_workers=max(1, min(len(usable_cores()), len(schedules))))
    pool = CompilePool(shared_server(), compile_setups(target, limits, backend), limits.compile_timeout_s)
    trials = [Trial(Task(op, "cold"), schedule, schedule.program) for schedule in schedules]
    ready: list[object] = []
    try:
        for trial in trials:
            pool.submit(trial)
        pool.step(ready)
        while pool.busy:
            ready = wait_for(pool.workers)
            pool.step(ready)
    finally:
        pool.close()
    return [trial.measurement or trial.compiled for trial in trials]
