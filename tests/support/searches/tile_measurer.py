"""A measurer whose made-up latencies tell how far tiles are from ideal ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from autosched.machine.policies import Policy
from search_spaces import Schedule, Target, Workload, ops
from search_spaces.devices.target import cpu
from tuning_logs import Measurement

HERE = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
ELSEWHERE = replace(HERE, device="A thousand times faster CPU")
OP, OTHER = ops.matmul(512, 256, 384), ops.matmul(256, 512, 256)
# What the best schedule of every shape has.
IDEAL = {"register": 16, "n": 64, "k": 128}


def made_up_latency(op: Workload, schedule: Schedule, target: Target) -> float:
    """Grows by half with every doubling of a tile's distance from the ideal; exact in the six digits of a log."""
    off = sum(abs(math.log2(schedule.knobs.tile(name) / tile)) for name, tile in IDEAL.items())
    off += (schedule.knobs["pack_b"] != "panels") + (schedule.knobs["unroll"] != 4)
    speed = 1e10 if target == HERE else 1e13
    return float(f"{op.flops / speed * 1.5**off:.6g}")


class TileMeasurer:
    """Measures nothing: latencies depend on how far the tiles are from the ideal ones."""

    capacity = 64
    environment = ()

    def __init__(self, op: Workload, target: Target = HERE) -> None:
        self.op, self.target = op, target
        self.measured: list[Schedule] = []

    def library_s(self, workload: Workload) -> float | None:
        return None

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        self.measured.extend(schedules)
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        for schedule, future in zip(schedules, futures, strict=True):
            future.set_result(Measurement("ok", (made_up_latency(self.op, schedule, self.target),)))
        return futures

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        return [Measurement("ok", (made_up_latency(self.op, s, self.target),) * rounds) for s in schedules]

    def cancel(self) -> None:
        pass
