"""A tuned workload as far as a stand-alone file goes: no cubin, so that no device is needed to write one."""

from __future__ import annotations

import os
from dataclasses import dataclass

from autosched import backends
from autosched.backends import spaces
from autosched.backends.printing.scope import Identifiers
from autosched.machine import devices
from autosched.machine.timing import Policy
from autosched.replaying.arguments import check_policy, check_workload
from autosched.replaying.replay import find_best, log_paths
from autosched.standalone.cuda_kernels import CudaKernels
from autosched.standalone.file_kernels import FileKernels
from autosched.standalone.triton_kernels import TritonKernels
from search_spaces import InputError, Schedule, Target, Workload
from tuning_logs import TuningRecord

# Backends whose kernels run without autosched.
_ALONE = ("triton", "cuda")
_EXPECTED = " or ".join(map(repr, _ALONE))


@dataclass(frozen=True)
class Tuned:
    """A record, its schedule, bound to the search space, and what the kernel is called as: a workload of its key."""

    record: TuningRecord
    schedule: Schedule
    workload: Workload

    def __post_init__(self) -> None:
        if self.record.backend not in _ALONE:
            raise InputError(
                f"{self.workload.label}: the kernel for {self.record.target.device} was made by the backend "
                f"{self.record.backend!r}, whose code needs autosched to run; expected one by {_EXPECTED}, for a GPU, "
                'such as target="h200"'
            )


def look_up(
    op: Workload,
    target: str | Target | None,
    log: str | os.PathLike[str] | None,
    policy: Policy,
    allow_stale: bool,
) -> Tuned:
    """What `replay` would build, for a GPU that need not be here if it is named.

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
    record = find_best(op, device, log_paths(log), policy, allow_stale)
    return Tuned(record, spaces.build(record.workload, record.target).bind(record.schedule), op)


def file_kernels(tuned: Tuned, names: Identifiers) -> FileKernels:
    """Its kernels as a file has them, under names of their own."""
    program, record = tuned.schedule.program, tuned.record
    if record.backend == "cuda":
        return CudaKernels.named(program, record.target, names)
    return TritonKernels.named(program, names)
