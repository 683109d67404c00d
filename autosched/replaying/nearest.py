"""Kernels at sizes that were not tuned: by the schedules of the nearest sizes that were, on the same device.

A schedule of another size is adapted (`strategies.evolution.transfer`), and its kernel has to pass a trial in a process
of its own before its first use, once on a machine: a tenth of a second for each kernel, and seconds for the first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from autosched.backends import spaces
from autosched.backends.environment import environment
from autosched.backends.generator import generator_hash
from autosched.kernels import first_use
from autosched.kernels.kernel import Kernel, load_kernel
from autosched.kernels.strict import is_strict
from autosched.kernels.tier import Tier
from autosched.replaying.replay import find_best, log_paths
from autosched.strategies.evolution.transfer import adapted
from autosched.tracing import TracedFunction, TracedKernel
from search_spaces import InputError, Schedule, SearchSpace, Target, Workload
from tuning_logs import Provenance, TuningLog
from tuning_logs.storage.packed_log import nearest_packed

# Schedules tried, of as many records: after that many failures the next one would fail as well.
_MOST_TRIED, _MOST_RECORDS = 8, 64
_POLICY = "cold"


def nearest_kernels(
    traced: TracedFunction, target: Target, *, log: str | os.PathLike[str] | None = None
) -> TracedKernel:
    """A traced function's kernels: those of records, as far as logs have them, and else by the nearest schedules.

    Raises:
        InputError: no log has a record of a kernel, nor one of its family on that target; or no exact one of its own,
            with `AUTOSCHED_STRICT=1`. And as `replay`.
    """
    function, paths = traced.for_target(target), log_paths(log)
    kernel = TracedKernel(function, {w.key: _kernel(w, target, paths) for w in function.workloads})
    kernel.ensure_right()
    return kernel


def trials_of_nearest(
    traced: TracedFunction, target: Target, *, log: str | os.PathLike[str] | None = None
) -> Callable[[], None] | None:
    """The trials that `nearest_kernels` needs, as a function that another thread may call meanwhile; None for none."""
    paths = log_paths(log)
    spaces_of = [s for w in traced.for_target(target).workloads if (s := _space_without_record(w, target, paths))]
    tried = [(space, schedules) for space in spaces_of if (schedules := _nearest(space, paths))]
    if len(tried) < len(spaces_of) or not tried:
        # One of them has no kernel: the others need no trial.
        return None

    def make() -> None:
        for space, schedules in tried:
            first_use.first_right(space, schedules, _origin(target))

    return make


def _kernel(op: Workload, target: Target, paths: Sequence[Path]) -> Kernel:
    try:
        return load_kernel(find_best(op, target, paths, _POLICY), op)
    except InputError:
        if is_strict():
            raise
        space = spaces.build(op, target)
        schedules = _nearest(space, paths)
        if not schedules:
            raise
    return load_kernel(first_use.first_right(space, schedules, _origin(target)), op, Tier.OTHER_SHAPE)


def _space_without_record(op: Workload, target: Target, paths: Sequence[Path]) -> SearchSpace | None:
    try:
        find_best(op, target, paths, _POLICY)
    except InputError:
        return spaces.build(op, target)
    return None


def _origin(target: Target) -> Provenance:
    return Provenance(generator_hash(), _POLICY, time.time(), 0, 0, environment(target))


def _nearest(space: SearchSpace, paths: Sequence[Path]) -> list[Schedule]:
    return list(islice(dict.fromkeys(_schedules(space, paths)), _MOST_TRIED))


def _schedules(space: SearchSpace, paths: Sequence[Path]) -> Iterator[Schedule]:
    """The schedules of the nearest workloads, fast before slow, as far as the space has them."""
    op, target, (own, *shipped) = space.workload, space.target, paths
    records = TuningLog(own).nearest(op, target, _MOST_RECORDS, _POLICY)
    for record in (*records, *nearest_packed(shipped, op, target, _MOST_RECORDS, _POLICY)):
        schedule = adapted(space, record.schedule) if record.target.key == target.key else None
        if schedule is not None:
            yield schedule
