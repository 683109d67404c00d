"""A measurer of grouped products whose made-up latencies follow from ends of segments, as `timed_ends` has them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from concurrent.futures import Future

import torch

from autosched.checking.histograms import timed_ends
from autosched.machine.policies import Policy
from search_spaces import Schedule, Workload
from tuning_logs import Measurement

# A device with about the rates of an H200, in bytes and operations a second; those of tiles count their padding.
_MEMORY, _CACHE, _DOTS = 4.8e12, 10e12, 3.5e14
_LAUNCH_S = 2e-6
# The part of what is not the bottleneck that is not hidden behind it.
_SEEN = 0.05
# The number of the ends among the inputs.
_ENDS = 2


def made_up_latency(workload: Workload, schedule: Schedule, ends: torch.Tensor) -> float:
    """Matrices come from memory once for their segment, and from the cache for each of its tiles."""
    told, knobs = dict(workload.arguments), schedule.knobs
    points = int(told["n"] or 0) * int(told["k"] or 0)
    rows, size, long = ends.diff(prepend=ends.new_zeros(1)), knobs.tile("m"), knobs.integer("long")
    is_long = (rows > long // 2) & (long > 0)
    tiles = {size: _tiles(rows[~is_long], size), **({long: _tiles(rows[is_long], long)} if long else {})}
    used, padded = int((rows > 0).sum()), sum(rows_of * n for rows_of, n in tiles.items())
    times = [2 * points * n / rate for n, rate in ((used, _MEMORY), (sum(tiles.values()), _CACHE), (padded, _DOTS))]
    return _LAUNCH_S * (1 + bool(long)) + max(times) + _SEEN * sum(times)


def _tiles(rows: torch.Tensor, size: int) -> int:
    return int(((rows + size - 1) // size).sum())


class SegmentsMeasurer:
    """Measures nothing; a schedule that looks up the matrix of every row fails."""

    capacity = 64
    environment = ()

    def library_s(self, workload: Workload) -> float | None:
        return None

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        for future, measurement in zip(futures, self.remeasure(workload, schedules, 1), strict=True):
            future.set_result(measurement)
        return futures

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        return [self._one(workload, schedule, rounds) for schedule in schedules]

    def cancel(self) -> None:
        pass

    def _one(self, workload: Workload, schedule: Schedule, rounds: int) -> Measurement:
        if schedule.sketch != "segmented_contraction":
            return Measurement("run_timeout")
        ends = timed_ends(workload)
        taken = {name: made_up_latency(workload, schedule, given[_ENDS]) for name, given in ends.items()}
        mean = statistics.geometric_mean(taken.values())
        return Measurement("ok", (mean,) * rounds, by_histogram=tuple(taken.items()))
