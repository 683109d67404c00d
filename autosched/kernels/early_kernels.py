"""Kernels for plans that begin while the one before them ends (programmatic dependent launch).

They are the kernels of the same schedules, compiled once more with a wait before the first access to memory. A batch of
launches lets them begin early where they follow on a kernel; elsewhere their wait returns at once.
"""

from __future__ import annotations

from dataclasses import replace

from autosched import backends
from autosched.backends.backend import Artefact
from autosched.kernels.kernel import Kernel, checked_kernel
from autosched.measuring.compiling import compile_trials
from autosched.measuring.local.jobs import Task, Trial
from search_spaces.devices.features import EARLY_LAUNCH


def may_begin_early(kernel: Kernel) -> bool:
    """True if its device has such launches, and it is launched in batches."""
    return kernel.batched is not None and kernel.target.features.has(EARLY_LAUNCH)


def compiled_early(kernels: list[Kernel]) -> list[Artefact | None]:
    """Their code with the wait, in order, compiled in processes of its own; None where a compiler refuses it.

    Raises:
        TargetUnavailableError: the worker processes do not start.
    """
    if not kernels:
        return []
    trials = [Trial(Task(k.record.workload, "cold"), k.schedule, k.schedule.program.launched_early) for k in kernels]
    compile_trials(trials, kernels[0].target)
    return [trial.artefact for trial in trials]


def loaded_early(kernel: Kernel, artefact: Artefact) -> Kernel:
    """The kernel of code with the wait, loaded, and checked before its first use: here, as the ordinary one ran here.

    Raises:
        LoadError: the device refuses it.
        AutoschedError: its results are wrong; its code is unloaded.
        OutOfMemoryError: there is no memory for the check.
    """
    program = kernel.schedule.program.launched_early
    schedule = replace(kernel.schedule, lowering=lambda _: program)
    launcher = backends.named(kernel.record.backend).load(artefact, program)
    return checked_kernel(kernel.record, schedule, artefact, launcher, kernel.workload, tried=True)
