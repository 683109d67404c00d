"""What proposing costs: CPU milliseconds per trial that the default strategy and cost model take, split by activity.

python tests/figures/propose.py                      every space, by the best backend alone and by all, 512 trials
python tests/figures/propose.py --trials 1000 --lag 0
python tests/figures/propose.py --trials 10000 --last 1000 --only softmax    the last trials of a long search
python tests/figures/propose.py --records 10000      the cost model alone, of records that ship and made up ones

No device is needed: latencies are the analytic estimate, times effects of knob values that it does not know. Batches
and what is known when are those of `tune`; the time of importing xgboost is not in the figures.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

import cost_models
from autosched import backends, ops, strategies
from autosched.backends import spaces
from cost_models import CostModel, feature_rows
from cost_models.features import FEATURE_NAMES, features
from cost_models.quality.held_out import HeldOutQuality
from search_spaces import Schedule, SearchSpace, Target, TileProgram, target_named
from search_spaces.devices.target import cpu
from search_spaces.schedules.knobs import Values
from search_spaces.schedules.limits import Limits
from tuning_logs import Measurement, Provenance, TuningLog, TuningRecord, shipped_logs

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from chained_workloads import attention

# The CPU of the tables in docs/performance.md: one thread with 16 lanes, 120 GFLOP/s.
CPU = cpu("Cascade Lake", lanes=16, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1.3e11)
H200 = target_named("h200")
SPACES = (
    (ops.matmul(512, 512, 512), CPU),
    (ops.matmul(4096, 4096, 4096, dtype="bfloat16", layout="nt"), H200),
    (attention(64, 2048, 2048, 128, "bfloat16"), H200),
    (ops.softmax(4096, 4096, dtype="bfloat16"), H200),
    (ops.conv(32, 128, 28, 128, 3, padding=1, dtype="bfloat16", layout="channels_last"), H200),
)
PARTS = ("fit", "lower", "features", "predict", "rest")
# As in `autosched.search`: batches grow with what is known.
FIRST_BATCH, LARGEST_BATCH = 16, 64


class Stopwatch:
    """CPU seconds by part (the machine may have other work); what is timed inside another part counts there only."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inner = [0.0]

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        self._inner.append(0.0)
        start = time.process_time()
        try:
            yield
        finally:
            spent = time.process_time() - start
            self.seconds[part] += spent - self._inner.pop()
            self._inner[-1] += spent


class TimedModel:
    """A cost model whose calls are timed."""

    def __init__(self, model: CostModel, watch: Stopwatch) -> None:
        self._model, self._watch = model, watch

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        with self._watch.timed("fit"):
            self._model.fit(space, records)

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> np.ndarray:
        with self._watch.timed("predict"):
            return self._model.predict(space, schedules)

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> np.ndarray:
        with self._watch.timed("predict"):
            return self._model.failure_chance(space, schedules)


def timed_space(space: SearchSpace, watch: Stopwatch) -> SearchSpace:
    """The same space, its lowering timed."""

    def lower(original: Callable[[Values], TileProgram], values: Values) -> TileProgram:
        with watch.timed("lower"):
            return original(values)

    sketches = tuple(dataclasses.replace(s, lower=partial(lower, s.lower)) for s in space.sketches)
    return dataclasses.replace(space, sketches=sketches)


def timed_amounts(watch: Stopwatch) -> Callable[[TileProgram, Target, Limits, str], list[float]]:
    """The reading of features, timed."""
    original = feature_rows.amounts

    def amounts(program: TileProgram, target: Target, limits: Limits, backend: str) -> list[float]:
        with watch.timed("features"):
            return original(program, target, limits, backend)

    return amounts


def simulated(space: SearchSpace, schedule: Schedule, trial: int) -> TuningRecord:
    """The estimate, and an effect of up to a factor of 1.5 for every knob value; one trial in twenty fails."""
    estimate = (
        2.0
        ** float(
            features(space.lower(schedule), space.target, space.backends[schedule.backend])[
                FEATURE_NAMES.index("latency_s")
            ]
        )
        / 1e12
    )
    effects = [
        np.random.default_rng([k, zlib.crc32(repr(v).encode())]).uniform(-0.4, 0.4)
        for k, (_, v) in enumerate(schedule.values)
    ]
    failed = trial % 20 == 19
    latency = estimate * float(np.exp(sum(effects)))
    measurement = Measurement("run_error", detail="simulated") if failed else Measurement("ok", (latency,))
    return TuningRecord(space.workload, space.target, schedule, measurement, Provenance("", "cold", 0.0, 0, trial))


def propose(space: SearchSpace, trials: int, lag: int, last: int) -> Stopwatch:
    """Search, telling the outcome of a batch after `lag` more were asked for; only proposing the `last` is timed."""
    watch, waiting, asked = Stopwatch(), deque[list[TuningRecord]](), 0
    timed = timed_space(space, watch)
    model = TimedModel(cost_models.create("xgboost", 0), watch)
    strategy = strategies.create("evolutionary", timed, model, np.random.default_rng(0))
    with patch.object(feature_rows, "amounts", timed_amounts(watch)):
        while asked < trials:
            if asked <= trials - last:
                watch.seconds.clear()
            before = trials - last - asked if asked < trials - last else trials - asked
            count = min(max(FIRST_BATCH, asked // 4), LARGEST_BATCH, before)
            with watch.timed("rest"):
                batch = strategy.ask(count)
            waiting.append([simulated(space, s, trial) for trial, s in enumerate(batch, asked)])
            asked += len(batch)
            if len(waiting) > lag:
                with watch.timed("rest"):
                    strategy.tell(waiting.popleft())
    return watch


def records_of_several(count: int) -> list[TuningRecord]:
    """What ships, of whatever workloads, and made up records of those above to so many in all."""
    shipped = [r for path in shipped_logs() for r in TuningLog(path)]
    rng, made = np.random.default_rng(0), []
    able = [spaces.build(workload, target, backends.for_target(target)) for workload, target in SPACES]
    while len(shipped) + len(made) < count:
        space = able[len(made) % len(able)]
        made.append(simulated(space, space.sample(rng), len(made)))
    return [*shipped, *made][:count]


def print_model(count: int) -> None:
    cost = HeldOutQuality(records_of_several(count), spaces.build, seed=0).cost()
    assert cost is not None
    print(
        f"the model, ms a record at {cost.records} records that succeeded: {cost.describe_ms:.2f} to describe it, "
        f"{cost.train_ms:.2f} to train once, {cost.predict_ms:.3f} to predict it; {cost.total_ms:.2f} together"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=512)
    parser.add_argument("--last", type=int, help="figures of so many trials at the end only")
    parser.add_argument("--only", default="", help="workloads with this in their names")
    parser.add_argument("--records", type=int, help="instead, the cost model alone with so many records")
    parser.add_argument("--lag", type=int, default=1, help="batches that are out when the next one is asked for")
    arguments = parser.parse_args()
    if arguments.records:
        print_model(arguments.records)
        return 0
    last = arguments.last or arguments.trials
    # Before the clock runs: the first training would.
    importlib.import_module("xgboost")
    head = "".join(f"{part:>10}" for part in (*PARTS, "total"))
    over = f"{arguments.trials} trials" if last == arguments.trials else f"the last {last} of {arguments.trials} trials"
    print(f"{f'CPU ms per trial over {over}':80}{head}")
    for workload, target in (pair for pair in SPACES if arguments.only in pair[0].label):
        makers = backends.for_target(target)
        for able in dict.fromkeys((makers[:1], makers)):
            seconds = propose(spaces.build(workload, target, able), arguments.trials, arguments.lag, last).seconds
            parts = (*(seconds[p] for p in PARTS), seconds.total())
            label = f"{workload.label} on {target.name} by {', '.join(b.name for b in able)}"
            print(f"{label:80}" + "".join(f"{1e3 * t / last:>10.2f}" for t in parts), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
