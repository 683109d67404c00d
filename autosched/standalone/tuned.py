"""A tuned or predicted workload for a stand-alone file, which needs no device to be written."""

from __future__ import annotations

import os
from dataclasses import dataclass

from autosched import backends
from autosched.backends import spaces
from autosched.backends.printing.scope import Identifiers
from autosched.machine import devices
from autosched.machine.policies import Policy, policy_text
from autosched.replaying.arguments import check_policy, check_workload
from autosched.replaying.predicted_kernel import Predicted, first_predicted
from autosched.replaying.replay import find_best, log_paths, refuse_prediction
from autosched.standalone.cubin_kernels import CubinKernels
from autosched.standalone.cuda_kernels import CudaKernels
from autosched.standalone.launchers import FileKernels
from autosched.standalone.triton_kernels import TritonKernels
from search_spaces import InputError, Schedule, Target, Workload
from tuning_logs import TuningRecord
from tuning_logs.text import duration_text

# Backends whose kernels run without autosched.
_ALONE = ("triton", "cuda")
_EXPECTED = " or ".join(map(repr, _ALONE))


@dataclass(frozen=True)
class Tuned:
    """A workload with the schedule of its kernels, bound to the search space.

    `workload` is the one that the kernels are called as. `seconds`: their latency, measured with `policy`, or
    `predicted`; `origin` describes its source. `cubins`: the file has compiled code in the place of text.
    """

    workload: Workload
    schedule: Schedule
    target: Target
    seconds: float
    policy: str
    origin: str
    predicted: bool = False
    cubins: bool = False

    def __post_init__(self) -> None:
        if self.backend not in _ALONE:
            raise InputError(
                f"{self.workload.label}: the kernel for {self.target.device} was made by the backend "
                f"{self.backend!r}, whose code needs autosched to run; expected one by {_EXPECTED}, for a GPU, "
                'such as target="h200"'
            )

    @staticmethod
    def of(record: TuningRecord, schedule: Schedule, workload: Workload) -> Tuned:
        """From a record. Raises InputError: kernels of its backend do not run without autosched."""
        made, taken = record.provenance, record.measurement.latency_s
        versions = ", ".join(f"{name} {version}" for name, version in made.versions if name != "device")
        origin = (
            f"Tuned on {record.target.device}: {duration_text(taken)} with {policy_text(made.policy)} "
            f"({versions or 'versions unknown'}; generator {made.generator})."
        )
        return Tuned(workload, schedule, record.target, taken, made.policy, origin)

    @staticmethod
    def foretold(op: Workload, found: Predicted) -> Tuned:
        """From a prediction. Raises InputError: as `of`."""
        expected, within = found.prediction.predicted_s, found.prediction.within_s
        interval = f", within {' to '.join(map(duration_text, within))}" if within else ""
        origin = (
            f"PREDICTED for {found.target.device}, never measured: {duration_text(expected)} with "
            f"{policy_text(found.policy)}{interval}."
        )
        return Tuned(op, found.schedule, found.target, expected, found.policy, origin, predicted=True)

    @property
    def backend(self) -> str:
        return self.schedule.backend


def look_up(
    op: Workload,
    target: str | Target | None,
    log: str | os.PathLike[str] | None,
    policy: Policy,
    predicted: bool,
) -> Tuned:
    """The kernel that `replay` would build, for a GPU that need not be here if it is named.

    `predicted`: the first of the schedules that `predict` ranked and compiled.

    Raises:
        InputError, TargetUnavailableError, LogError: as `replay`.
    """
    check_workload(op)
    check_policy(policy)
    device = devices.described(target)
    makers = [backend.name for backend in backends.for_target(device)]
    if not any(name in _ALONE for name in makers):
        raise InputError(
            f"{op.label}: kernels for {device.label} are made by the backend {', '.join(map(repr, makers))}, whose "
            "code needs autosched to run; expected a GPU: tune first there, with autosched.tune(…, trials=100), then "
            'export with its name, such as target="h200"'
        )
    if predicted:
        refuse_prediction()
        return Tuned.foretold(op, first_predicted(op, device, log_paths(log)[0], policy))
    record = find_best(op, device, log_paths(log), policy)
    return Tuned.of(record, spaces.build(record.workload, record.target).bind(record.schedule), op)


def file_kernels(tuned: Tuned, names: Identifiers) -> FileKernels:
    """The kernels for a file, under unique names.

    Raises:
        InputError: they are to be compiled, and cannot be here.
    """
    program = tuned.schedule.program
    if tuned.cubins:
        return CubinKernels.named(program, tuned.target, tuned.backend, names)
    if tuned.backend == "cuda":
        return CudaKernels.named(program, tuned.target, names)
    return TritonKernels.named(program, names)
