"""Records for the CPU with another number of threads than PyTorch has: they do not serve, and that is said."""

from __future__ import annotations

import os
import warnings

from autosched.replaying.arguments import log_path
from autosched.tracing import TracedFunction
from search_spaces import InputError, Target, Workload
from tuning_logs import TuningLog


class ThreadsWarning(UserWarning):
    """Kernels were tuned for another number of threads than PyTorch has."""


def why_other_threads(traced: TracedFunction, target: Target, log: str | os.PathLike[str] | None) -> str | None:
    """The number of threads for which the user's log has all kernels of a function, in words; None for none."""
    if target.kind != "cpu":
        return None
    own = TuningLog(log_path(log))
    found = set[int]()
    try:
        cuts = traced.for_target(target).cuts
    except InputError:
        # None has a schedule there.
        return None
    for cut in cuts:
        numbers = [_threads(w, target, own) for w in cut.workloads]
        found |= set.intersection(*numbers) if numbers else set()
    if not found:
        return None
    nearest = min(found, key=lambda threads: (abs(threads - target.threads), threads))
    return (
        f"its kernels were tuned for {_text(nearest)}, and PyTorch has {_text(target.threads)}: call "
        f"torch.set_num_threads({nearest}) before the model is compiled, or tune it as it is"
    )


def warn_of_threads(why: str) -> None:
    """Say that records do not serve."""
    warnings.warn(f"a model's graph is left to PyTorch: {why}", ThreadsWarning, stacklevel=2)


def warn_where_other_threads(tuned: Target, compiled: Target) -> None:
    """Say so where a model is tuned for other threads than those that it is compiled for."""
    if tuned.kind == compiled.kind == "cpu" and tuned.threads != compiled.threads:
        text = (
            f"the model is tuned for {_text(tuned.threads)}; compiled models look up kernels for as many as PyTorch "
            f"has, here {_text(compiled.threads)} (torch.set_num_threads)"
        )
        warnings.warn(text, ThreadsWarning, stacklevel=3)


def _threads(workload: Workload, target: Target, log: TuningLog) -> set[int]:
    """The numbers of threads, other than the target's, of a workload's successful records on this CPU."""
    records = (r for known in (workload, workload.varying) for r in log.records(known))
    found = {r.target.threads for r in records if r.measurement.ok and r.target.device == target.device}
    return found - {target.threads}


def _text(threads: int) -> str:
    return f"{threads} thread{'s' * (threads != 1)}"
