"""What searches of several kernels are tried with: operators, functions, and a measurer that makes latencies up."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch

import autosched
from autosched.machine.policies import Policy
from autosched.measuring import UnfitWorkloadError
from search_spaces import Schedule, Workload, ops
from search_spaces.devices.target import cpu
from tuning_logs import Measurement, TuningLog, TuningRecord

TARGET = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
SMALL, LARGE = ops.matmul(64, 64, 64), ops.matmul(256, 256, 256)
ROWS = ops.softmax(64, 256)


class FakeMeasurer:
    """Answers at once: a latency of microseconds that the schedule alone decides, and the flops of the workload."""

    environment = (("device", "Imaginary CPU"),)

    def __init__(self, overlaps: bool = False, unfit: Sequence[Workload] = (), broken: Sequence[Workload] = ()) -> None:
        self.capacity = 192 if overlaps else 64
        self.submitted: list[Workload] = []
        self.remeasured: list[Workload] = []
        self._unfit = {workload.key for workload in unfit}
        self._broken = {workload.key for workload in broken}

    def library_s(self, workload: Workload) -> float | None:
        return None

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        self.submitted += [workload] * len(schedules)
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        for schedule, future in zip(schedules, futures, strict=True):
            if workload.key in self._unfit:
                future.set_exception(UnfitWorkloadError(f"{workload.label}: too large"))
            else:
                future.set_result(self._one(workload, schedule))
        return futures

    def _one(self, workload: Workload, schedule: Schedule) -> Measurement:
        if workload.key in self._broken:
            return Measurement("compile_error", detail="made up")
        made_up = 1000 + zlib.crc32(schedule.one_line.encode()) % 9000
        return Measurement("ok", (float(f"{made_up * workload.flops * 1e-14:.6g}"),))

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        self.remeasured.append(workload)
        return [self._one(workload, schedule) for schedule in schedules]

    def cancel(self) -> None:
        pass


def softmax_and_sum(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """In one kernel, or in two."""
    return torch.softmax(x, -1), torch.logsumexp(x, -1)


def apart(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """In two kernels."""
    return torch.softmax(x, -1), torch.cumsum(y, 0)


def search(log: Path, measurer: FakeMeasurer, trials: int, *given: Any, **rest: Any) -> autosched.TuneManyResult:
    arguments: dict[str, Any] = {"strategy": "random", "cost_model": "random", **rest}
    return autosched.tune_many(given, TARGET, trials, log=log, measurer=measurer, **arguments)


def trials_of(log: Path, workload: Workload) -> list[TuningRecord]:
    return [r for r in TuningLog(log).records(workload, TARGET) if not r.provenance.finals]


def tune_apart(log: Path, trials: int, measurer: FakeMeasurer, **rest: Any) -> autosched.TracedTuneResult:
    traced = autosched.trace(apart, torch.empty(64, 128), torch.empty(128, 32))
    arguments: dict[str, Any] = {"strategy": "random", "cost_model": "random", **rest}
    return autosched.tune(traced, TARGET, trials, log=log, measurer=measurer, **arguments)
