"""A tuned workload as far as a stand-alone file goes: no cubin, so that no device is needed to write one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass

from autosched import backends
from autosched.backends import spaces
from autosched.backends.printing.scope import Identifiers
from autosched.backends.triton.source import print_module
from autosched.machine import devices
from autosched.machine.timing import Policy
from autosched.replaying.arguments import check_policy, check_workload
from autosched.replaying.replay import find_best, log_paths
from search_spaces import InputError, Schedule, Target, TileProgram, Workload
from tuning_logs import TuningRecord

# How `print_module` sets its parts apart: comment and imports, then functions.
_BETWEEN = "\n\n\n"


@dataclass(frozen=True)
class Tuned:
    """A record, its schedule, bound to the search space, and what the kernel is called as: a workload of its key."""

    record: TuningRecord
    schedule: Schedule
    workload: Workload

    def __post_init__(self) -> None:
        if self.record.backend != "triton":
            raise InputError(
                f"{self.workload.label}: the kernel for {self.record.target.device} was made by the backend "
                f"{self.record.backend!r}, whose code needs autosched to run; expected one by 'triton', for a GPU, "
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
    if "triton" not in makers:
        raise InputError(
            f"{op.label}: kernels for {device.label} are made by the backend {', '.join(map(repr, makers))}, whose "
            "code needs autosched to run; expected a GPU: tune first there, with autosched.tune(…, trials=100), then "
            'export with its name, such as target="h200"'
        )
    record = find_best(op, device, log_paths(log), policy, allow_stale)
    return Tuned(record, spaces.build(record.workload, record.target).bind(record.schedule), op)


def named_kernels(program: TileProgram, names: Identifiers) -> TileProgram:
    """The program with names of their own, in the file, for its kernels: `matmul` becomes `matmul_kernel`."""
    kernels = tuple(
        dataclasses.replace(k, name=names.of((program, k.name), f"{k.name}_kernel")) for k in program.kernels
    )
    return dataclasses.replace(program, kernels=kernels)


def kernel_texts(programs: Sequence[TileProgram]) -> tuple[list[str], list[str]]:
    """Import lines, and functions: the kernels of the programs and what they call, each once."""
    imports: dict[str, None] = {}
    functions: dict[str, None] = {}
    for program in programs:
        head, *parts = print_module(program, "").rstrip("\n").split(_BETWEEN)
        imports |= dict.fromkeys(line for line in head.splitlines() if line and not line.startswith("#"))
        functions |= dict.fromkeys(parts)
    return list(imports), list(functions)
