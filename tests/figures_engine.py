"""How few trials the search core needs on recorded tables, against the plain recipe and random search; and ablations.

python tests/figures_engine.py TABLE.json.gz …                     score and trials to 95 %, in the median of the seeds
python tests/figures_engine.py TABLE.json.gz … --variants all      without one piece after the other
python tests/figures_engine.py TABLE.json.gz … --transfer          every ordered pair, from a log of the other

Tables are caches of Kernel Tuner. The score is the community's (Willemsen et al. 2025): 0 is what random search is
expected to reach, 1 the optimum at once, on average over the trials in which random search comes 95 % of the way.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Protocol
from unittest import mock

import numpy as np
from plain_recipe import PlainRecipe

from autosched.strategies.engine import Engine, History
from search_spaces.schedules.plain_space import PlainSpace, Point


class Searcher(Protocol):
    def ask(self, count: int) -> list[Point]: ...

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None: ...


@dataclass(frozen=True)
class Table:
    """A space that was measured whole: seconds for each point, infinite where it failed."""

    name: str
    space: PlainSpace
    seconds: dict[Point, float]

    @property
    def best(self) -> float:
        return min(self.seconds.values())


@cache
def read_table(path: Path) -> Table:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        data = json.load(file)
    names = data["tune_params_keys"]
    points = [tuple(entry[name] for name in names) for entry in data["cache"].values()]
    times = [entry["time"] for entry in data["cache"].values()]
    seconds = [t / 1e3 if isinstance(t, int | float) and 0 < t < 1e19 else math.inf for t in times]
    space = PlainSpace({name: data["tune_params"][name] for name in names}, configurations=points)
    return Table(path.name.partition(".")[0], space, dict(zip(points, seconds, strict=True)))


class Drawn:
    """Random search."""

    def __init__(self, space: PlainSpace, seed: int) -> None:
        self._left = [space.points[i] for i in np.random.default_rng(seed).permutation(space.size)]

    def ask(self, count: int) -> list[Point]:
        now, self._left = self._left[:count], self._left[count:]
        return now

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None:
        pass


CORE = "autosched.strategies.engine.engine."
# What stands in for a constant of the search core when a piece of it is left out.
VARIANTS: dict[str, dict[str, object]] = {
    "engine": {},
}


def searched(table: Table, searcher: Searcher, budget: int, to_the_end: bool = False) -> list[tuple[Point, float]]:
    """The points that were measured, in order, until the budget is spent or the best of all was found."""
    tried: list[tuple[Point, float]] = []
    while len(tried) < budget and (points := searcher.ask(budget - len(tried))):
        seconds = [table.seconds[p] for p in points]
        searcher.tell(points, seconds)
        tried += zip(points, seconds, strict=True)
        if min(seconds) <= table.best and not to_the_end:
            break
    return tried


def trials_to(tried: Sequence[float], best: float, part: float, budget: int) -> int:
    """After how many trials the first was so good; the budget where none was."""
    return next((n for n, seconds in enumerate(tried, 1) if best / seconds >= part - 1e-12), budget)


def score(table: Table, runs: Sequence[Sequence[float]], budget: int) -> float:
    """The community's score of the median of the runs."""
    known = np.sort([s for s in table.seconds.values() if math.isfinite(s)])
    first, last = (_random_needs(known, part) for part in (0.01, 0.95))
    trials = np.arange(max(first, 1), max(min(last, budget), first + 1) + 1)
    slow_first, n = known[::-1], len(known)
    expected = np.array([slow_first[min(n - 1, round(k * (n + 1) / (k + 1)))] for k in trials])
    places = np.full((len(runs), int(trials[-1])), np.nan)
    for run, row in zip(runs, places, strict=True):
        best = np.minimum.accumulate(np.array([*run, *[math.inf] * len(row)])[: len(row)])
        row[:] = np.where(np.isfinite(best), np.searchsorted(known, best), np.nan)
    median = np.nanmedian(places[:, trials - 1], axis=0)
    reached = known[np.round(np.where(np.isnan(median), n - 1, median)).astype(int)]
    differ = expected != known[0]
    return float(np.mean((expected - reached)[differ] / (expected - known[0])[differ]))


def _random_needs(known: np.ndarray[tuple[int], np.dtype[np.float64]], part: float) -> int:
    """Trials that random search is expected to need for this part of the way from the median to the best."""
    goal = known[0] + (np.median(known) - known[0]) * (1 - part)
    place = int(np.argmax(known[::-1] <= goal))
    place -= known[::-1][place] == known[0]
    return math.ceil(place / (len(known) + 1 - place))


def made(variant: str, table: Table, seed: int, budget: int, history: Sequence[History] = ()) -> Searcher:
    if variant == "random":
        return Drawn(table.space, seed)
    return PlainRecipe(table.space, seed) if variant == "recipe" else Engine(table.space, seed, budget, history)


def one_run(job: tuple[str, Path, int, int]) -> tuple[list[float], float]:
    """The seconds of the trials in order, and what the searcher itself took for each."""
    variant, path, seed, budget = job
    table = read_table(path)
    started = time.process_time()
    with ExitStack() as stack:
        for name, value in VARIANTS.get(variant, {}).items():
            stack.enter_context(mock.patch(name, value))
        tried = searched(table, made(variant, table, seed, budget), budget)
    return [seconds for _, seconds in tried], (time.process_time() - started) / len(tried)


def one_transfer(job: tuple[Path, Path, int, int]) -> tuple[int, int, int]:
    """Trials to 95 % by the recipe and by the search core alone, and with its own log of another device."""
    source, target, seed, budget = (*map(read_table, job[:2]), *job[2:])
    log = searched(source, Engine(source.space, 1000 + seed, budget), budget, to_the_end=True)
    history = History(source.name, [p for p, _ in log], [s for _, s in log])
    searchers = PlainRecipe(target.space, seed), *(Engine(target.space, seed, budget, h) for h in ((), (history,)))
    runs = ([s for _, s in searched(target, searcher, budget)] for searcher in searchers)
    recipe, cold, warm = (trials_to(run, target.best, 0.95, budget) for run in runs)
    return recipe, cold, warm


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--variants", default="engine,recipe,random", help="comma-separated, or all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=400)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--transfer", action="store_true")
    arguments = parser.parse_args()
    if arguments.transfer:
        transfers(arguments.tables, arguments.seeds, arguments.budget, arguments.processes)
        return 0
    variants = [*VARIANTS, "recipe", "random"] if arguments.variants == "all" else arguments.variants.split(",")
    tables = [read_table(path) for path in arguments.tables]
    print(f"score / trials to 95 %, medians of {arguments.seeds} seeds, budget {arguments.budget}")
    print(f"{'':24}{''.join(f'{t.name:>14}' for t in tables)}   mean score, median trials, ms per trial")
    with Pool(arguments.processes) as pool:
        for variant in variants:
            row, scores, trials, spent = "", [], [], []
            for path, table in zip(arguments.tables, tables, strict=True):
                jobs = [(variant, path, seed, arguments.budget) for seed in range(arguments.seeds)]
                runs = pool.map(one_run, jobs, chunksize=1)
                scores.append(score(table, [r for r, _ in runs], arguments.budget))
                to95 = [trials_to(r, table.best, 0.95, arguments.budget) for r, _ in runs]
                trials.append(statistics.median(to95))
                spent.append(1e3 * statistics.mean(ms for _, ms in runs))
                row += f"{scores[-1]:>8.3f}{trials[-1]:>6.0f}"
            summary = f"{statistics.mean(scores):8.4f}{statistics.median(trials):8.1f}{statistics.mean(spent):8.1f}"
            print(f"{variant:24}{row}{summary}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
