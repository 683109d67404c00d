"""A measurer whose made-up latencies prefer one tile at small sizes of a product, and another one at large sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future

from autosched.machine.policies import Policy
from search_spaces import Schedule, Workload
from tuning_logs import Measurement

# Tiles of k that are best up to so many rows, and above.
TURN, SMALL_K, LARGE_K = 40, 16, 128


def rows_of(workload: Workload) -> int:
    return workload.outputs[0].shape[0]


def made_up_latency(workload: Workload, schedule: Schedule) -> float:
    """Grows by half with every doubling of the distance of the tile of k from the best one."""
    ideal = SMALL_K if rows_of(workload) <= TURN else LARGE_K
    off = abs(math.log2(schedule.knobs.tile("k") / ideal)) + (schedule.knobs["unroll"] != 1)
    return float(f"{workload.flops * 1e-10 * 1.5**off:.6g}")


class SizedMeasurer:
    """Measures nothing; notes what it was asked for, by rows."""

    capacity = 64
    environment = ()

    def __init__(self) -> None:
        self.tried: list[tuple[int, Schedule]] = []
        self.compared: list[tuple[int, tuple[Schedule, ...]]] = []

    def library_s(self, workload: Workload) -> float | None:
        return None

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        for schedule, future in zip(schedules, futures, strict=True):
            self.tried.append((rows_of(workload), schedule))
            future.set_result(Measurement("ok", (made_up_latency(workload, schedule),)))
        return futures

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        self.compared.append((rows_of(workload), tuple(schedules)))
        return [Measurement("ok", (made_up_latency(workload, s),) * rounds) for s in schedules]

    def cancel(self) -> None:
        pass
