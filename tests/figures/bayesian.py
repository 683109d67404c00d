"""How few trials the search core needs on recorded tables, against the plain recipe and random search; and ablations.

python tests/figures/bayesian.py TABLE.json.gz …                     score and trials to 95 %, medians of the seeds
python tests/figures/bayesian.py TABLE.json.gz … --variants all      without one piece after the other
python tests/figures/bayesian.py TABLE.json.gz … --transfer          every ordered pair, from a log of the other
python tests/figures/bayesian.py TABLE.json.gz … --speed             what the search itself takes for a trial

TABLE.json.gz~ is a table without what is fast, but for the one corner in which the best lies. Tables are what
`autosched simulate` takes, which has the score, and what else it tells of one search.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import islice
from multiprocessing import Pool
from pathlib import Path
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from autosched.bench.simulated.figures import Figures, best_so_far, evaluations_to, figures
from autosched.bench.simulated.replayed import ReplayedTable, replay
from autosched.bench.simulated.score import score
from autosched.bench.simulated.strategies import STRATEGIES, strategy_named
from autosched.strategies.bayesian import BayesianSearch, History, plain_search
from autosched.strategies.bayesian.candidates import Rows
from autosched.strategies.bayesian.plain import InBatches
from autosched.strategies.bayesian.points import PointSearch
from autosched.strategies.bayesian.search import _Observations
from cost_models.gaussian_process import CovarianceKernel
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs.exchange.files import read_tables

Doubles = NDArray[np.float64]


# A name with this at its end is that of a table whose best lie in one corner.
NARROW = "~"
# What is faster than this part of a table is left out, but where it differs from the best in so many knobs at most.
FAST_PART, CORNER = 0.1, 2


@cache
def read_table(path: Path) -> ReplayedTable:
    whole = path.name.removesuffix(NARROW)
    (table,) = read_tables(path.with_name(whole))
    found = ReplayedTable.of(table, whole.partition(".")[0])
    return found if path.name == whole else narrowed(found)


def narrowed(table: ReplayedTable) -> ReplayedTable:
    """The table without what is fast, but for what is nearly the best in its knobs: a space with one narrow corner."""
    codes, seconds = table.space.codes(table.points), table.seconds
    away = (codes != codes[seconds.argmin()]).sum(axis=1)
    kept = (away <= CORNER) | (seconds >= np.quantile(seconds[np.isfinite(seconds)], FAST_PART))
    points = tuple(point for point, stays in zip(table.points, kept, strict=True) if stays)
    return replace(table, name=table.name + NARROW, points=points, seconds=seconds[kept])


def unpressed(logs: Doubles, least_spread: float = 0.0) -> Doubles:
    """Labels whose slow end keeps its distances."""
    return np.asarray((logs - logs.mean()) / max(float(logs.std()), 1e-9))


def expected_improvement(means: Doubles, deviations: Doubles, optimism: float) -> Doubles:
    """Its logarithm, on the least of the means; far below it by the usual approximation of the normal tail."""
    z = (means.min() - means) / deviations
    near = np.maximum(z, -5.0)
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in near])
    gained = near * below + np.exp(-0.5 * near * near) / math.sqrt(2.0 * math.pi)
    tail = -0.5 * z * z - 2.0 * np.log(np.maximum(-z, 1.0)) - 0.5 * math.log(2.0 * math.pi)
    return np.asarray(np.log(deviations) + np.where(z > -5.0, np.log(np.maximum(gained, 1e-300)), tail))


# Trials without improvement after which restarts begin, and how many of those that follow are one.
RESTARTS_AFTER, RESTARTS_EVERY = 20, 5
STEPS, FIT, OPTIMISM = BayesianSearch._near, BayesianSearch._fit, BayesianSearch._optimism


def far_away(strategy: BayesianSearch[Point], best: int) -> Rows:
    """A restart: what is next is the candidate of which least is known; steps from the best between restarts."""
    if strategy._stale < RESTARTS_AFTER or strategy._stale % RESTARTS_EVERY:
        return STEPS(strategy, best)
    posterior = strategy._posterior
    assert posterior is not None
    _, deviations = posterior.predicted(np.zeros(len(posterior.observed)))
    left = np.where(strategy._candidates.is_open(posterior.candidates), deviations, -1.0)
    return posterior.candidates[[int(left.argmax())]]


def fitted_from_nothing(strategy: BayesianSearch[Point], known: _Observations) -> None:
    """A restart: what was believed of the kernel is forgotten, where nothing better was found for long."""
    if strategy._stale >= RESTARTS_AFTER:
        strategy._kernel, strategy._fitted_at = CovarianceKernel.usual(len(strategy._kernel.lengths)), 0
    FIT(strategy, known)


def to_the_quarter(logs: Doubles) -> float:
    """How far the slowest of the fastest quarter of successes is from the best."""
    return max(float(np.quantile(logs - logs.min(), 0.25)), 1e-3)


def two_knobs(strategy: BayesianSearch[Point], best: int) -> Rows:
    """Where the search is stuck: what differs from the best in one or two knobs, found by two steps."""
    near = STEPS(strategy, best)
    further = [strategy._candidates.neighbours(int(row)) for row in near]
    return np.unique(np.concatenate([near, *further]))


def by_turns(strategy: BayesianSearch[Point], trust: Doubles) -> float:
    """One deviation for every third point, four for the others."""
    return OPTIMISM(strategy, trust) if len(strategy._logs) % 3 else 1.0


CORE, KERNEL = "autosched.strategies.bayesian.search.", "cost_models.gaussian_process."
# What stands in for a part of the search core when a piece of it is left out; and pieces that it has not.
VARIANTS: dict[str, dict[str, object]] = {
    "whole": {},
    "no uncertainty": {CORE + "_OPTIMISM": 0.0},
    "one deviation": {CORE + "_OPTIMISM": 1.0},
    "three deviations": {CORE + "_OPTIMISM": 3.0},
    "noise and lengths free": {KERNEL + "_NOISE_SPREAD": 1.5, KERNEL + "_NOISE": 1e-2, KERNEL + "_LENGTH_SPREAD": 0.8},
    "expected improvement": {CORE + "promise": expected_improvement},
    "no steps from the best": {CORE + "_NEIGHBOURS": 0.0},
    "no effects of knobs": {KERNEL + "_EACH": 1e-9, KERNEL + "_PAIRS": 1e-9},
    "nothing but effects": {KERNEL + "_JOINT": 1e-9},
    "no pairs of knobs": {KERNEL + "_PAIRS": 1e-9},
    "slow end not pressed": {CORE + "labels": unpressed},
    "pressed by a quarter": {"autosched.strategies.bayesian.observations.spread": to_the_quarter},
    "steps of two knobs": {CORE + "BayesianSearch._near": two_knobs},
    "steps soon": {CORE + "_STUCK": 6, CORE + "_NEIGHBOURS": 0.5},
    "optimism by turns": {CORE + "BayesianSearch._optimism": by_turns},
    "begins at random": {"autosched.strategies.bayesian.candidates._SPREAD_OVER": 1},
    "no factors of two": {"search_spaces.schedules.plain_features._MANY_VALUES": math.inf},
    "failures not learnt": {CORE + "_LEAST_CHANCE": 1.0},
    "restarts far away": {CORE + "BayesianSearch._near": far_away},
    "restarts of the kernel": {CORE + "BayesianSearch._fit": fitted_from_nothing},
}
# The search, where so many points are always under way together.
BATCHES = {"batches of 8": 8, "batches of 16": 16, "batches of 32": 32}


def one_run(job: tuple[str, Path, int, int]) -> tuple[list[int], float]:
    """The rows that were measured, in order, and the seconds that the search itself took."""
    variant, path, seed, budget = job
    table = read_table(path)
    started = time.process_time()
    with ExitStack() as stack:
        for name, value in VARIANTS.get(variant, {}).items():
            stack.enter_context(mock.patch(name, value))
        rows = replay(table, search_of(variant, table.space, seed), budget)
    return rows, time.process_time() - started


def search_of(variant: str, space: PlainSpace, seed: int) -> PointSearch:
    if variant in BATCHES:
        return InBatches(plain_search(space, seed), BATCHES[variant])
    return strategy_named("evolutionary" if variant in VARIANTS else variant)(space, seed, ())


def one_transfer(job: tuple[Path, Path, int, int]) -> tuple[int, int, int]:
    """Trials to 95 % by the recipe and by the search core alone, and with its own log of another device."""
    source, target, seed, budget = (*map(read_table, job[:2]), *job[2:])
    log = replay(source, plain_search(source.space, 1000 + seed), budget, to_the_end=True)
    seconds = [float(s) for s in source.seconds[log]]
    history = History(source.name, [source.points[row] for row in log], seconds)
    recipe, core = STRATEGIES["recipe"], STRATEGIES["evolutionary"]
    runs = [(recipe, ()), (core, ()), (core, (history,))]
    to95 = [_trials_to_95(target, make(target.space, seed, told), budget) for make, told in runs]
    return to95[0], to95[1], to95[2]


def _trials_to_95(table: ReplayedTable, search: PointSearch, budget: int) -> int:
    curve = best_so_far(table.ascending[0], table.seconds[replay(table, search, budget)], budget)
    return evaluations_to(curve, 0.95) or budget


def transfers(paths: Sequence[Path], seeds: int, budget: int, processes: int) -> None:
    print(f"trials to 95 %, medians of {seeds} seeds: the recipe, cold, with a log of {budget} trials of the other")
    knobs = {path: read_table(path).space.names for path in paths}
    pairs = [(a, b) for a in paths for b in paths if a != b and knobs[a] == knobs[b]]
    with Pool(processes) as pool:
        for a, b in pairs:
            runs = pool.map(one_transfer, [(a, b, seed, budget) for seed in range(seeds)], chunksize=1)
            recipe, cold, warm = (statistics.median(run) for run in zip(*runs, strict=True))
            saved = f"saved {1 - warm / recipe:5.0%} of the recipe's, {1 - warm / cold:5.0%} of its own"
            name = f"{a.name.partition('.')[0]} -> {b.name.partition('.')[0]}"
            print(f"{name:32}{recipe:8.1f}{cold:8.1f}{warm:8.1f}   {saved}", flush=True)


def one_speed(job: tuple[Path, int]) -> float:
    """Seconds of the search itself for each of a sixth more trials, where so many random ones were told before."""
    table, told = read_table(job[0]), job[1]
    order = np.random.default_rng(0).permutation(len(table.points))[:told]
    known = [table.points[row] for row in order]
    started = time.process_time()
    strategy = plain_search(table.space, 0)
    strategy.tell(known, table.seconds[order].tolist())
    for _ in range(trials := told // 6):
        asked = strategy.ask(1)
        strategy.tell(asked, [float(table.seconds[table.rows[point]]) for point in asked])
    return (time.process_time() - started) / trials


def speeds(paths: Sequence[Path], processes: int) -> None:
    told = (200, 1000, 3000)
    print(f"milliseconds of the search for each trial, after {', '.join(map(str, told))} trials")
    with Pool(processes) as pool:
        each = iter(pool.map(one_speed, [(path, count) for path in paths for count in told], chunksize=1))
    for path in paths:
        print(f"{read_table(path).name:24}{''.join(f'{1e3 * next(each):8.1f}' for _ in told)}", flush=True)


def row_of(found: Sequence[Figures]) -> str:
    scores, trials = [f.score for f in found], [f.evaluations[0.95] for f in found]
    cells = "".join(f"{score:>8.3f}{count:>6.0f}" for score, count in zip(scores, trials, strict=True))
    each = 1e3 * statistics.mean(f.seconds_each for f in found)
    return f"{cells}{statistics.mean(scores):8.4f}{min(scores):8.4f}{statistics.median(trials):8.1f}{each:8.1f}"


def ablations(variants: Sequence[str], paths: Sequence[Path], seeds: int, budget: int, processes: int) -> None:
    tables = [read_table(path) for path in paths]
    print(f"score / trials to 95 %, medians of {seeds} seeds, budget {budget}; mean score, that of the worst table,")
    print(
        "median trials, ms per trial; of the scores that each seed has alone the mean, and the mean on the worst table"
    )
    print(f"{'':24}{''.join(f'{t.name[:13]:>14}' for t in tables)}")
    for variant in variants:
        jobs = [(variant, path, seed, budget) for path in paths for seed in range(seeds)]
        # Spaces keep their features: each variant has processes of its own.
        with Pool(processes) as pool:
            runs = iter(pool.map(one_run, jobs, chunksize=1))
        found, alone = [], []
        for table in tables:
            rows, seconds = zip(*islice(runs, seeds), strict=True)
            found.append(figures(table, variant, rows, budget, sum(seconds)))
            alone.append(statistics.mean(score(table.ascending, [table.seconds[one]], budget) for one in rows))
        print(f"{variant:24}{row_of(found)}{statistics.mean(alone):8.4f}{min(alone):8.4f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--variants", default="whole,recipe,random", help="comma-separated, or all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=400)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--transfer", action="store_true")
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    if arguments.speed:
        speeds(arguments.tables, arguments.processes)
        return 0
    if arguments.transfer:
        transfers(arguments.tables, arguments.seeds, arguments.budget, arguments.processes)
        return 0
    every = [*VARIANTS, *BATCHES, "recipe", "random"]
    variants = every if arguments.variants == "all" else arguments.variants.split(",")
    ablations(variants, arguments.tables, arguments.seeds, arguments.budget, arguments.processes)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
