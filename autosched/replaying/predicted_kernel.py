"""The kernel of a prediction, on a machine that has the device: checked like any other, and given one trial."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from autosched.backends import spaces
from autosched.backends.build import render
from autosched.backends.environment import environment
from autosched.backends.generator import generator_hash
from autosched.kernels import first_use
from autosched.kernels.kernel import Kernel, load_kernel
from autosched.replaying.prediction_file import PredictionFile
from autosched.replaying.predictions import Predictions
from search_spaces import InputError, Schedule, SearchSpace, Target, Workload
from tuning_logs import Provenance


def predicted_kernel(op: Workload, target: Target, log: Path, policy: str) -> Kernel:
    """The first of the schedules predicted for `op` on `target`, which is here, whose kernel is right.

    Its record has what this one trial measured, and nothing of what was predicted.

    Raises:
        InputError: nothing was predicted, or this version has none of those schedules.
        AutoschedError: none of them makes a kernel that is right.
    """
    space, schedules = _schedules(op, target, log, policy)
    origin = Provenance(generator_hash(), policy, time.time(), 0, 0, environment(target))
    return load_kernel(first_use.first_right(space, schedules, origin), op)


def predicted_source(op: Workload, target: Target, log: Path, policy: str) -> str:
    """The source of the first schedule predicted for `op` on `target`, which need not be here.

    Raises:
        InputError: as `predicted_kernel`.
    """
    _, schedules = _schedules(op, target, log, policy)
    return render(schedules[0], target)


def _schedules(op: Workload, target: Target, log: Path, policy: str) -> tuple[SearchSpace, list[Schedule]]:
    """Those that compiled and are still legal, bound, in the order of the prediction."""
    file = PredictionFile(log)
    found = file.latest(op, target, policy)
    call = f'autosched.predict(op, "{target.name}")'
    if found is None:
        raise InputError(f"no prediction of {op.label} on {target.label} in {file.path}; make one with {call}")
    space = spaces.build(found.workload, target)
    schedules = list(_bound(space, found))
    if not schedules:
        raise InputError(f"{file.path}: this version has none of the schedules predicted; make others with {call}")
    return space, schedules


def _bound(space: SearchSpace, found: Predictions) -> Iterator[Schedule]:
    for prediction in found.ranked:
        with contextlib.suppress(InputError):
            schedule = space.bind(prediction.schedule)
            if prediction.facts is not None and space.why_illegal(schedule) is None:
                yield schedule
