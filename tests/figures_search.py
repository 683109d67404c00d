"""How well strategies search: evolutionary with XGBoost against random, several seeds each, as one table.

python tests/figures_search.py                 on a recorded table of an H200, without a GPU
python tests/figures_search.py --table NAME    on another one than the product of 4096³ (tests/recorded_spaces.py)
python tests/figures_search.py --lag 1         the same, each batch asked for before the one before it is known
python tests/figures_search.py --live          on the matmul space of this machine's CPU, measuring every trial
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import best_spaces
import numpy as np
import recorded_spaces

import cost_models
import search_spaces
from autosched import ops, strategies
from autosched.machine import devices
from autosched.measuring import Measurer, RecordedMeasurer, local_measurer
from search_spaces import SearchSpace
from tuning_logs import Measurement, Provenance, TuningRecord

CHECKPOINTS = (50, 100, 200)
BATCH = 16
CONTENDERS = (("evolutionary", "xgboost"), ("evolutionary", "roofline"), ("random", "random"))


def search(
    space: SearchSpace, measurer: Measurer, contender: tuple[str, str], seed: int, trials: int, lag: int = 0
) -> list[float]:
    """The best latency known after every trial of one search; infinite before the first success.

    `contender`: strategy and cost model. `lag`: the outcome of a batch is told after so many more were asked for.
    """
    strategy, model = contender
    searcher = strategies.create(strategy, space, cost_models.create(model, seed), np.random.default_rng(seed))
    best: list[float] = []
    waiting: deque[list[TuningRecord]] = deque()
    while len(best) < trials:
        schedules = searcher.ask(min(BATCH, trials - len(best)))
        if not schedules:
            break
        measurements = [future.result() for future in measurer.submit(space.workload, schedules, seed=seed)]
        for m in measurements:
            best.append(min(best[-1] if best else math.inf, m.latency_s if m.ok else math.inf))
        waiting.append([_record(space, s, m, seed) for s, m in zip(schedules, measurements, strict=True)])
        if len(waiting) > lag:
            searcher.tell(waiting.popleft())
    return best


def _record(space: SearchSpace, schedule: search_spaces.Schedule, m: Measurement, seed: int) -> TuningRecord:
    return TuningRecord(space.workload, space.target, schedule, m, Provenance("", "cold", 0.0, seed, 0))


def medians(curves: Sequence[Sequence[float]]) -> list[float]:
    """The median over the searches of the best latency after each checkpoint, in seconds."""
    return [statistics.median(c[min(n, len(c)) - 1] for c in curves) for n in CHECKPOINTS]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", action="store_true", help="measure on this machine's CPU instead of the table")
    parser.add_argument("--table", choices=recorded_spaces.PARTS, default=recorded_spaces.MATMUL_4096)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--lag", type=int, default=0, help="batches that are out when the next one is asked for")
    parser.add_argument(
        "--no-starts", action="store_true", help="without the points that sketches propose to start from"
    )
    arguments = parser.parse_args()
    if arguments.live:
        space = best_spaces.build(ops.matmul(512, 512, 512), devices.cpu_target())
        print(f"{space.workload.label} on {space.target.device}, {space.size} schedules, every trial measured")
        contenders, optimum = CONTENDERS[::2], None
    else:
        records = recorded_spaces.read_table(arguments.table)
        space, contenders = recorded_spaces.table_space(arguments.table), CONTENDERS
        optimum = min(r.measurement.latency_s for r in records if r.measurement.ok)
        print(f"{space.workload.label} on {space.target.device}, {len(records)} recorded schedules", end="")
        print(f", the best {optimum * 1e6:.1f} µs")
    if arguments.no_starts:
        space = replace(space, sketches=tuple(replace(s, seeds=()) for s in space.sketches))
    curves: dict[tuple[str, str], list[list[float]]] = {c: [] for c in contenders}
    started = time.perf_counter()
    measurer: Measurer = local_measurer(space.target) if arguments.live else RecordedMeasurer(records)
    for seed in range(arguments.seeds):
        # In turn, so that a slow minute of the machine does not fall on one strategy alone.
        for contender in contenders:
            curves[contender].append(search(space, measurer, contender, seed, CHECKPOINTS[-1], arguments.lag))
    head = "".join(f"{f'after {n}':>14}" for n in CHECKPOINTS)
    print(f"median best of {arguments.seeds} seeds, µs{head}   ({time.perf_counter() - started:.0f} s)")
    for (strategy, model), found in curves.items():
        row = "".join(f"{t * 1e6:>14.1f}" for t in medians(found))
        print(f"{strategy + ' + ' + model:28}{row}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
