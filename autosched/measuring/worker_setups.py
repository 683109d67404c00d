"""Number of workers for a target, their cores, and their time limits."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.machine.cores import usable_cores
from autosched.measuring.local.jobs import Setup
from search_spaces import Target

# The function that returns a target's backends, as a worker process imports it.
DEFAULT_BACKEND = "autosched.backends:for_target"
# More compile workers keep a GPU no busier: it times about as many candidates a second as they compile.
_MOST_COMPILE_WORKERS = 16


@dataclass(frozen=True)
class TrialLimits:
    """Limits after which a candidate is given up.

    `run_timeout_s` is for a whole trial; it is longer where a hundred runs at the roofline take longer. A candidate is
    abandoned after two repeats that are `abandon_factor` times slower than the best so far. `compile_workers`: number
    of compile processes; 0: one for every core on a CPU, and for all but one (at most 16) with a GPU.
    """

    compile_timeout_s: float = 30.0
    run_timeout_s: float = 10.0
    abandon_factor: float = 1.25
    compile_workers: int = 0


DEFAULT_LIMITS = TrialLimits()


def measuring_setup(target: Target, limits: TrialLimits, backend: str) -> Setup:
    """Setup of the measuring worker: on a CPU it gets the last cores of the list, one for each thread."""
    cores, threads = ((), 1) if target.kind == "gpu" else (tuple(usable_cores()[-target.threads :]), target.threads)
    return Setup("measure", backend, target, limits.abandon_factor, cores, threads)


def compile_setups(target: Target, limits: TrialLimits, backend: str) -> list[Setup]:
    """Setups of the compile workers: with a GPU one fewer than cores."""
    cores = tuple(usable_cores())
    most = len(cores) if target.kind == "cpu" else max(1, len(cores) - 1)
    count = limits.compile_workers or min(most, _MOST_COMPILE_WORKERS)
    return [Setup("compile", backend, target, limits.abandon_factor, cores)] * count
