"""Searches on an imaginary CPU whose measurer makes up latencies."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import autosched
from autosched.machine.policies import Policy
from autosched.tuning.tuner import tune
from search_spaces import Schedule, Workload, ops
from search_spaces.devices.target import cpu
from tuning_logs import Measurement

TARGET = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
OP = ops.matmul(64, 64, 64)


def made_up_latency(schedule: Schedule) -> float:
    """Some microseconds that depend on the schedule alone, exact in the 6 digits of a log."""
    return float(f"{100 + zlib.crc32(schedule.one_line.encode()) % 10_000}e-7")


class FakeMeasurer:
    """Measures nothing: every schedule has a latency of its own; one in five fails to compile."""

    environment = (("torch", "2.9 of another machine"), ("device", "Imaginary CPU"))

    def __init__(self, overlaps: bool = False) -> None:
        self.capacity = 192 if overlaps else 64
        self.measured: list[Schedule] = []
        self.batches = 0
        self.remeasured: list[Schedule] = []

    def library_s(self, workload: Workload) -> float | None:
        return None

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        self.batches += 1
        self.measured.extend(schedules)
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        for schedule, future in zip(schedules, futures, strict=True):
            future.set_result(self.one(schedule))
        return futures

    def one(self, schedule: Schedule) -> Measurement:
        if zlib.crc32(schedule.one_line.encode()) % 5 == 0:
            return Measurement("compile_error", detail="made up")
        return Measurement("ok", (made_up_latency(schedule),))

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        self.remeasured.extend(schedules)
        return [Measurement("ok", (made_up_latency(s),) * rounds) for s in schedules]

    def cancel(self) -> None:
        pass


def search(log: Path, measurer: FakeMeasurer, trials: int, op: Workload = OP, **rest: object) -> autosched.TuneResult:
    arguments = {"strategy": "random", "cost_model": "random", **rest}
    return tune(op, TARGET, trials, log=log, measurer=measurer, **arguments)  # type: ignore[arg-type]
