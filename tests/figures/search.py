"""How well strategies search: evolutionary with XGBoost against random, several seeds each, as one table.

python tests/figures/search.py                 on a recorded table of an H200, without a GPU
python tests/figures/search.py --table NAME    on another one than the product of 4096³ (recorded_spaces.py)
python tests/figures/search.py --lag 1         the same, each batch asked for before the one before it is known
python tests/figures/search.py --live          on the matmul space of this machine's CPU, measuring every trial
python tests/figures/search.py --variants      on every recorded table, without one piece after the other
python tests/figures/search.py --variants --pretended   on whole spaces, the device being trees (pretended_device.py)
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import Pool
from pathlib import Path
from typing import Protocol
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import cost_models
import search_spaces
from autosched import ops, strategies
from autosched.machine import devices
from autosched.measuring import Measurer, RecordedMeasurer
from autosched.measuring.session import local_measurer
from autosched.strategies.evolution.population import Evolution
from search_spaces import SearchSpace, Workload
from tuning_logs import Measurement, Provenance, TuningRecord
from tuning_logs.text import table_lines

sys.path.append(str(Path(__file__).parents[1]))
sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
import best_spaces
import recorded_spaces
from figures import pretended_device

CHECKPOINTS = (50, 100, 200)
BATCH = 16
CONTENDERS: tuple[tuple[str, str], ...] = (
    ("evolutionary", "xgboost"),
    ("evolutionary", "roofline"),
    ("random", "random"),
)


CORE, EVOLUTION = "autosched.strategies.bayesian.search.", "autosched.strategies.evolution.population."
PRIOR, STRATEGY = "autosched.strategies.evolution.model_prior.", "autosched.strategies.evolutionary."


def nothing_evolves(evolution: Evolution, parents: Sequence[search_spaces.Schedule]) -> list[search_spaces.Schedule]:
    """As many schedules as would have come up, drawn at random."""
    return [evolution._space.sample(evolution._rng) for _ in range(4 * evolution.wanted)]


def expected(means: NDArray[np.float64], deviations: NDArray[np.float64], optimism: float) -> NDArray[np.float64]:
    """What the process expects, without what may be better than that."""
    return -means


def foreseen(means: NDArray[np.float64], deviations: NDArray[np.float64], optimism: float) -> NDArray[np.float64]:
    """Nothing: what is left is what the cost model predicts."""
    return np.zeros(len(means))


# What stands in for a part of the strategy when a piece of it is left out.
VARIANTS: dict[str, dict[str, object]] = {
    "evolutionary": {},
    "by the cost model alone": {CORE + "promise": foreseen},
    "no uncertainty": {CORE + "promise": expected},
    "no cost model": {PRIOR + "ModelPrior.__len__": lambda prior: 0},
    "no steps from the best": {CORE + "_NEIGHBOURS": 0.0},
    "nothing evolves": {EVOLUTION + "Evolution._evolved": nothing_evolves},
    "nothing at random": {STRATEGY + "_RANDOM": 0.0},
}


PRETENDED: dict[str, Callable[[], Workload]] = {
    "1000³": lambda: ops.matmul(1000, 1000, 1000, dtype="bfloat16", layout="nt"),
    "128x4096x4096": lambda: ops.matmul(128, 4096, 4096, dtype="bfloat16", layout="nt"),
    "4096³": lambda: ops.matmul(4096, 4096, 4096, dtype="bfloat16", layout="nt"),
    "16384x3072x768": lambda: ops.matmul(16384, 3072, 768, dtype="float16", layout="nt"),
    "5124x700x2048": lambda: ops.matmul(5124, 700, 2048, dtype="float16", layout="nn"),
    "1021x2039x4093": lambda: ops.matmul(1021, 2039, 4093, dtype="bfloat16", layout="nt"),
}


@dataclass(frozen=True)
class Job:
    """One search of a variant: on a recorded table, or on a pretended device, by name."""

    variant: str
    where: str
    seed: int
    lag: int
    starts: bool
    trials: int

    @property
    def latencies(self) -> list[float]:
        """The best latency after every trial."""
        if self.where in PRETENDED:
            space = pretended_device.product_space(PRETENDED[self.where]())
            measurer: Answers = pretended_device.PretendedDevice(space)
        else:
            space = recorded_spaces.table_space(self.where)
            measurer = RecordedMeasurer(recorded_spaces.read_table(self.where))
        with ExitStack() as stack:
            for name, value in VARIANTS.get(self.variant, {}).items():
                stack.enter_context(mock.patch(name, value))
            contender = ("random", "random") if self.variant == "random" else CONTENDERS[0]
            space = space if self.starts else without_starts(space)
            return search(space, measurer, contender, self.seed, self.trials, self.lag)


def latencies_of(job: Job) -> list[float]:
    return job.latencies


def variants(wheres: Sequence[str], arguments: argparse.Namespace) -> None:
    """Print a row for each: trials to 95 % and 99 % of the best known everywhere, and the mean quality over all."""
    seeds, trials = range(arguments.seeds), CHECKPOINTS[-1]
    whats = [(variant, where) for variant in (*VARIANTS, "random") for where in wheres]
    starts = not arguments.no_starts
    jobs = [Job(*what, seed, arguments.lag, starts, trials) for what in whats for seed in seeds]
    with Pool(arguments.processes) as pool:
        found = pool.map(latencies_of, jobs, chunksize=1)
    best = {
        where: _best_of(where, [c for job, c in zip(jobs, found, strict=True) if job.where == where])
        for where in wheres
    }
    qualities = {
        what: [[best[what[1]] / s for s in found[i * len(seeds) + n]] for n in seeds] for i, what in enumerate(whats)
    }
    rows: list[tuple[str, ...]] = [("", *wheres, *(f"after {n}" for n in CHECKPOINTS))]
    for variant in (*VARIANTS, "random"):
        parts = [qualities[variant, where] for where in wheres]
        reached = [f"{mean_trials(0.95, part):.0f} {mean_trials(0.99, part):.0f}" for part in parts]
        after = [f"{statistics.fmean(c[min(n, len(c)) - 1] for part in parts for c in part):.1%}" for n in CHECKPOINTS]
        rows.append((variant, *reached, *after))
    print(f"trials to 95 % and to 99 % of the best, means of {len(seeds)} seeds ({trials} where it never came)")
    for line in table_lines(rows, right=range(1, len(rows[0]))):
        print(line)


def _best_of(where: str, curves: Sequence[Sequence[float]]) -> float:
    """The best of a recorded table; on a pretended device the best that was found."""
    if where in PRETENDED:
        return min(curve[-1] for curve in curves)
    return min(r.measurement.latency_s for r in recorded_spaces.read_table(where) if r.measurement.ok)


def mean_trials(quality: float, curves: Sequence[Sequence[float]]) -> float:
    """How many it takes to come to a quality; all of them where it never does."""
    return statistics.fmean(next((n for n, best in enumerate(c, 1) if best >= quality), len(c)) for c in curves)


def without_starts(space: SearchSpace) -> SearchSpace:
    """The same space whose sketches propose no points to start from."""
    return replace(space, sketches=tuple(replace(sketch, seeds=()) for sketch in space.sketches))


class Answers(Protocol):
    """As much of a measurer as a search needs."""

    def submit(
        self, workload: Workload, schedules: Sequence[search_spaces.Schedule], *, seed: int = ...
    ) -> list[Future[Measurement]]: ...


def search(
    space: SearchSpace, measurer: Answers, contender: tuple[str, str], seed: int, trials: int, lag: int = 0
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
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--pretended", action="store_true", help="with --variants: on whole spaces of products")
    parser.add_argument("--processes", type=int, default=1, help="for --variants")
    arguments = parser.parse_args()
    if arguments.variants:
        variants(list(PRETENDED if arguments.pretended else recorded_spaces.PARTS), arguments)
        return 0
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
        space = without_starts(space)
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
