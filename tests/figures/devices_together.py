"""What searches for several devices save by hearing of each other: trials until a kernel is within 2 % of the best.

python tests/figures/devices_together.py [--trials 128] [--seeds 3] [--own 0.3] [--smoke]

Two searches at once, for an H200 and an A100 whose latencies are made up: the roofline's estimate, times an effect of
every value of a decision that both devices share, and one that each has for itself (`--own`: its standard deviation by
that of the shared one). A few decisions matter much, most of them little. Without transfer each has a log of its own;
with it they share one, and batches are measured at the same time. Neither knows of shipped records. The best is that of
all searches for a device.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import statistics
import sys
import tempfile
import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import numpy as np

import autosched
import cost_models
from autosched.backends import spaces
from autosched.machine.policies import Policy
from autosched.tuning.searching import warm_start
from search_spaces import Schedule, Target, Workload, ops, target_named
from tuning_logs import Measurement
from tuning_logs.text import table_lines

TARGETS = (target_named("h200"), target_named("a100"))
OPS = (
    ops.softmax(8192, 4096, dtype="float16"),
    ops.layernorm(8192, 4096, dtype="float16"),
    ops.matmul(4096, 4096, 4096, dtype="float16"),
)
# Of the decision that matters most: its standard deviation in logarithms.
SHARED = 0.3
WITHIN = 1.02


class MadeUp:
    """Makes latencies up; a batch is measured once the other device's is there, or its search has ended."""

    capacity = 64

    def __init__(self, op: Workload, target: Target, own: float, together: threading.Barrier) -> None:
        self.environment = (("device", target.device),)
        self.latencies: list[float] = []
        self._space, self._device, self._own = spaces.build(op, target), target.device, own
        self._roofline = cost_models.create("roofline", 0)
        self._together = together

    def library_s(self, workload: Workload) -> float | None:
        return None

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        # It is broken once the other search has ended.
        with contextlib.suppress(threading.BrokenBarrierError):
            self._together.wait()
        futures: list[Future[Measurement]] = [Future() for _ in schedules]
        for future, latency_s in zip(futures, self._latencies(schedules), strict=True):
            self.latencies.append(latency_s)
            future.set_result(Measurement("ok", (latency_s,)))
        return futures

    def remeasure(
        self, workload: Workload, schedules: Sequence[Schedule], rounds: int, *, policy: Policy = "cold", seed: int = 0
    ) -> list[Measurement]:
        return [Measurement("ok", (latency_s,) * rounds) for latency_s in self._latencies(schedules)]

    def cancel(self) -> None:
        """Nothing to cancel."""

    def _latencies(self, schedules: Sequence[Schedule]) -> list[float]:
        scores = self._roofline.predict(self._space, schedules)
        return [1e-4 / float(score) * math.exp(self._effects(s)) for score, s in zip(scores, schedules, strict=True)]

    def _effects(self, schedule: Schedule) -> float:
        return sum(
            _drawn(name).random() ** 3 * SHARED * (_normal(f"{name}={value}") + self._own * _normal(f"{here}={value}"))
            for name, value in schedule.values
            for here in [f"{self._device} {name}"]
        )


def _drawn(text: str) -> np.random.Generator:
    """A generator of numbers that the text decides."""
    return np.random.default_rng(zlib.crc32(text.encode()))


def _normal(text: str) -> float:
    return float(_drawn(text).standard_normal())


def searched(op: Workload, trials: int, seed: int, own: float, shared: bool) -> dict[str, list[float]]:
    """The latencies of the trials for each device, in order."""
    together = threading.Barrier(len(TARGETS))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(TARGETS)) as threads:

        def search(target: Target) -> list[float]:
            log = Path(folder) / ("log.jsonl" if shared else f"{target.name}.jsonl")
            measurer = MadeUp(op, target, own, together)
            try:
                autosched.tune(op, target, trials, seed=seed, log=log, measurer=measurer)
            finally:
                together.abort()
            return measurer.latencies

        with patch.object(warm_start, "shipped_logs", tuple):
            found = list(threads.map(search, TARGETS))
        return {target.name: latencies for target, latencies in zip(TARGETS, found, strict=True)}


def reached(latencies: Sequence[float], best_s: float) -> int:
    """The number of trials until one was within 2 % of the best; one more than there were, if none was."""
    return next((n for n, s in enumerate(latencies, 1) if s <= WITHIN * best_s), len(latencies) + 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--own", type=float, default=0.3)
    parser.add_argument("--smoke", action="store_true", help="one small product alone")
    given = parser.parse_args()
    rows = [("", "device", "alone", "together", "alone, each seed", "together, each seed")]
    all_counts: dict[bool, list[int]] = {False: [], True: []}
    for op in OPS[:1] if given.smoke else OPS:
        pairs = itertools.product(range(given.seeds), (False, True))
        runs = {pair: searched(op, given.trials, pair[0], given.own, pair[1]) for pair in pairs}
        for target in TARGETS:
            best_s = min(min(run[target.name]) for run in runs.values())
            counts = {
                shared: [reached(runs[seed, shared][target.name], best_s) for seed in range(given.seeds)]
                for shared in (False, True)
            }
            told = [f"{statistics.median(counts[shared]):.0f}" for shared in (False, True)]
            each = [", ".join(map(str, counts[shared])) for shared in (False, True)]
            rows.append((op.label, target.name, *told, *each))
            print(*rows[-1], file=sys.stderr, sep="; ", flush=True)
            for shared, found in counts.items():
                all_counts[shared] += found
    print(f"trials until within 2 % of the best, median of {given.seeds} seeds; {given.trials + 1}: never")
    print(*table_lines(rows, right=(2, 3)), sep="\n")
    alone, both = (statistics.mean(all_counts[shared]) for shared in (False, True))
    print(f"mean of all: {alone:.0f} alone, {both:.0f} together")


if __name__ == "__main__":
    main()
