"""The kernel of a prediction, on a machine that has the device: checked like any other, and given one trial."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autosched.backends import spaces
from autosched.backends.build import render
from autosched.backends.environment import environment
from autosched.backends.generator import generator_hash
from autosched.kernels import first_use
from autosched.kernels.kernel import Kernel, load_kernel
from autosched.kernels.tier import Tier
from autosched.replaying.prediction_file import PredictionFile
from autosched.replaying.predictions import Prediction, Predictions
from search_spaces import InputError, Schedule, SearchSpace, Target, Workload
from tuning_logs import Provenance


@dataclass(frozen=True)
class Predicted:
    """A prediction with its `schedule` bound to the search space; `workload` has the requested key."""

    workload: Workload
    target: Target
    policy: str
    schedule: Schedule
    prediction: Prediction


def predicted_kernel(op: Workload, target: Target, log: Path, policy: str) -> Kernel:
    """Kernel of the first right schedule among those predicted for `op` on `target`, which is here.

    Its record has the measurement of its one trial, and nothing of the prediction.

    Raises:
        InputError: nothing was predicted, or this version has none of those schedules.
        AutoschedError: none of them makes a kernel that is right.
    """
    space, found = _still_legal(op, target, log, policy)
    origin = Provenance(generator_hash(), policy, time.time(), 0, 0, environment(target))
    record = first_use.first_right(space, [p.schedule for p in found], origin)
    return load_kernel(record, op, Tier.PREDICTED)


def first_predicted(op: Workload, target: Target, log: Path, policy: str) -> Predicted:
    """The first schedule predicted for `op` on `target`, which need not be here.

    Raises:
        InputError: as `predicted_kernel`.
    """
    _, found = _still_legal(op, target, log, policy)
    return found[0]


def predicted_source(op: Workload, target: Target, log: Path, policy: str) -> str:
    """The source of the first schedule predicted for `op` on `target`, which need not be here.

    Raises:
        InputError: as `predicted_kernel`.
    """
    return render(first_predicted(op, target, log, policy).schedule, target, op)


def _still_legal(op: Workload, target: Target, log: Path, policy: str) -> tuple[SearchSpace, list[Predicted]]:
    """The predictions that compiled and are still legal, in their order."""
    file = PredictionFile(log)
    found = file.latest(op, target, policy)
    call = f'autosched.predict(op, "{target.name}")'
    if found is None:
        raise InputError(f"no prediction of {op.label} on {target.label} in {file.path}; make one with {call}")
    space = spaces.build(found.workload, target)
    bound = [Predicted(found.workload, target, found.policy, s, p) for s, p in _bound(space, found)]
    if not bound:
        raise InputError(f"{file.path}: this version has none of the schedules predicted; make others with {call}")
    return space, bound


def _bound(space: SearchSpace, found: Predictions) -> Iterator[tuple[Schedule, Prediction]]:
    for prediction in found.ranked:
        with contextlib.suppress(InputError):
            schedule = space.bind(prediction.schedule)
            if prediction.facts is not None and space.why_illegal(schedule) is None:
                yield schedule, prediction
