"""Kernels of workloads with several outputs, out of programs written by hand."""

from __future__ import annotations

import torch

from autosched.backends.backend import Launcher
from autosched.backends.llvm.backend import LlvmBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from autosched.machine.element_types import torch_dtype
from search_spaces import Schedule, Target, Workload
from several_outputs import program_of
from tuning_logs import Measurement, Provenance, TuningRecord

HERE, LLVM = devices.cpu_target(), LlvmBackend()


def schedule_of(workload: Workload, backend: str) -> Schedule:
    """The program by hand, as if a sketch had made it."""
    return Schedule("by_hand", (), lambda _: program_of(workload, HERE.lanes), backend)


def loaded(workload: Workload) -> Launcher:
    """Machine code of this processor."""
    program = program_of(workload, HERE.lanes)
    return LLVM.load(LLVM.compile(LLVM.render(program, "", HERE), program, HERE), program)


def kernel_of(workload: Workload, target: Target = HERE, backend: str = "llvm") -> Kernel:
    program, schedule = program_of(workload, HERE.lanes), schedule_of(workload, backend)
    artefact = LLVM.compile(LLVM.render(program, "", HERE), program, HERE)
    return Kernel(record_of(workload, schedule, target), schedule, artefact, LLVM.load(artefact, program))


def record_of(workload: Workload, schedule: Schedule, target: Target) -> TuningRecord:
    provenance = Provenance("by hand", "cold", 0.0, 0, 0)
    return TuningRecord(workload, target, schedule, Measurement("ok", (1e-6,)), provenance)


def assert_right(workload: Workload, inputs: list[torch.Tensor], made: tuple[torch.Tensor, ...]) -> None:
    for tensor, expectation, output in zip(made, expect(workload, inputs), workload.outputs, strict=True):
        assert tensor.dtype == torch_dtype(output.dtype)
        assert error_ratio(tensor, expectation) <= 1, output.name
