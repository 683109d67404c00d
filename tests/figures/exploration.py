"""Whether a log teaches other devices more if a part of its trials is random: recorded tables, every ordered pair.

python tests/figures/exploration.py TABLE.json.gz … [--parts 0 0.05 0.1 0.2] [--seeds 3]

A search of the source measures as many points whatever the part; what is random is told to it as well. Shown are the
trials that it takes itself to 95 % of its best, and those of the search of the target: cold, with each of the logs, and
with what is exported of the first of them: the fastest quarter, and a quarter as many spread over the slower ones.
Tables are what `autosched simulate` takes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from autosched.bench.simulated.figures import best_so_far, evaluations_to
from autosched.bench.simulated.replayed import ReplayedTable, replay
from autosched.strategies.bayesian import History, plain_search
from search_spaces.schedules.plain_space import Point
from tuning_logs.text import table_lines

sys.path.append(str(Path(__file__).parents[1]))
from figures.bayesian import _trials_to_95, read_table


class Exploring:
    """A search core of whose points a part is replaced by random ones."""

    def __init__(self, table: ReplayedTable, part: float, seed: int) -> None:
        self._search = plain_search(table.space, seed)
        self._rng = np.random.default_rng([seed, 1])
        self._part = part
        self._left = [table.points[place] for place in self._rng.permutation(len(table.points))]

    def ask(self, count: int) -> list[Point]:
        if self._rng.random() >= self._part:
            return self._search.ask(1)
        return [self._left.pop()]

    def tell(self, points: Sequence[Point], seconds: Sequence[float | None]) -> None:
        self._search.tell(points, seconds)
        told = set(points)
        self._left = [point for point in self._left if point not in told]


@cache
def log_of(path: Path, part: float, seed: int, budget: int) -> list[int]:
    """The rows of a log of `budget` trials, in the order of measuring."""
    table = read_table(path)
    return replay(table, Exploring(table, part, 1000 + seed), budget, to_the_end=True)


def own_trials(job: tuple[Path, float, int, int]) -> int:
    table, (_, _, _, budget) = read_table(job[0]), job
    curve = best_so_far(table.ascending[0], table.seconds[log_of(*job)], budget)
    return evaluations_to(curve, 0.95) or budget


def exported(table: ReplayedTable, log: Sequence[int]) -> list[int]:
    """As `tuning_logs.export.worth_shipping` thins a log."""
    fast_first = sorted((row for row in log if np.isfinite(table.seconds[row])), key=lambda row: table.seconds[row])
    best = len(log) // 4
    slower, spread = fast_first[best:], best // 4
    return fast_first[:best] + [slower[(2 * i + 1) * len(slower) // (2 * spread)] for i in range(spread)]


@dataclass(frozen=True)
class Taught:
    """What a search is told of the other table: a log of which a part is random, whole or what is exported of it."""

    part: float
    whole: bool = True

    def __str__(self) -> str:
        return f"{self.part:.0%} random" if self.whole else "exported"


def target_trials(job: tuple[Path, Path, Taught | None, int, int]) -> int:
    """Trials to 95 % on the second table, knowing of the first what is taught."""
    source, target, taught, seed, budget = job
    history: tuple[History, ...] = ()
    if taught is not None:
        known = read_table(source)
        log = log_of(source, taught.part, seed, budget)
        log = log if taught.whole else exported(known, log)
        history = (History(known.name, [known.points[row] for row in log], [float(known.seconds[r]) for r in log]),)
    table = read_table(target)
    return _trials_to_95(table, plain_search(table.space, seed, history), budget)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--parts", nargs="+", type=float, default=[0.0, 0.05, 0.1, 0.2])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=400)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    parts, seeds, budget = arguments.parts, range(arguments.seeds), arguments.budget
    knobs = {path: read_table(path).space.names for path in arguments.tables}
    pairs = [(a, b) for a in knobs for b in knobs if a != b and knobs[a] == knobs[b]]
    lessons = [*map(Taught, parts), Taught(parts[0], whole=False)]
    rows = [("", "cold", *map(str, lessons))]
    with Pool(arguments.processes) as pool:
        for path in dict.fromkeys(a for a, _ in pairs):
            own = [pool.map(own_trials, [(path, part, seed, budget) for seed in seeds]) for part in parts]
            rows.append((f"{_name(path)} itself", "", *(f"{statistics.median(found):g}" for found in own), ""))
        for a, b in pairs:
            jobs = [[(a, b, taught, seed, budget) for seed in seeds] for taught in (None, *lessons)]
            found = [pool.map(target_trials, each) for each in jobs]
            rows.append((f"{_name(a)} -> {_name(b)}", *(f"{statistics.median(trials):g}" for trials in found)))
            print("  ".join(rows[-1]), flush=True)
    for line in table_lines(rows, right=range(1, len(rows[0]))):
        print(line)
    return 0


def _name(path: Path) -> str:
    return path.name.partition(".")[0]


if __name__ == "__main__":
    raise SystemExit(main())
