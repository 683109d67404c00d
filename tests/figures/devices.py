"""Whether the figures of devices help a model of several to rank the schedules of another: recorded tables.

python tests/figures/devices.py TABLE.json.gz … [--seeds 6]

Of every table the others of its kernel teach 400 points each, a quarter of them the fastest and the rest random, and it
itself none or a few random ones; labels are relative to the best known of each device. The trees are those that rank
candidates in a search, on the knobs. Shown are the rank correlation over all points of the table, and how much longer
the best of the ten first choices takes than the optimum, without and with the figures of devices as features.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autosched.bench.simulated.replayed import ReplayedTable
from cost_models import fitted_rows
from cost_models.quality.ranking import rank_correlation, regret
from cost_models.trees import Floats, train
from tuning_logs.text import table_lines

sys.path.append(str(Path(__file__).parents[1]))
from figures.bayesian import read_table

# By a part of the name: multiprocessors, bytes/s, float32 operations/s, shared memory of a block and L2 in KiB; as the
# makers' data sheets have them.
DEVICES = {
    "A4000": (48, 448e9, 19.2e12, 99, 4096),
    "A6000": (84, 768e9, 38.7e12, 99, 6144),
    "MI250X": (110, 1638e9, 23.9e12, 64, 8192),
    "3060L": (30, 336e9, 10.9e12, 99, 3072),
    "3090": (82, 936e9, 35.6e12, 99, 6144),
}
TAUGHT, FIRST = 400, 10
OWN = (0, 16, 64)


class Recorded:
    """What succeeded of a table: a row of features for each point, with the figures of its device at the end."""

    def __init__(self, path: Path) -> None:
        table = read_table(path)
        ok = np.isfinite(table.seconds)
        self.name, self.knobs, self.seconds = table.name, table.names, table.seconds[ok]
        figures = np.log2(next(figures for part, figures in DEVICES.items() if part in table.name))
        self.knobs_seen = _numbers(table)[ok]
        self.rows = np.concatenate([self.knobs_seen, np.tile(figures, (ok.sum(), 1))], axis=1).astype(np.float32)

    def like_a_log(self, rng: np.random.Generator) -> np.ndarray:
        fast = np.argsort(self.seconds)[: TAUGHT // 4]
        return np.union1d(fast, rng.choice(len(self.seconds), TAUGHT - len(fast), replace=False))


def _numbers(table: ReplayedTable) -> Floats:
    codes = [
        [
            float(v) if isinstance(v, int | float) else float(known.index(v))
            for v, known in zip(point, table.values, strict=True)
        ]
        for point in table.points
    ]
    return np.log2(np.abs(np.array(codes, np.float32)) + 1)


def judged(
    target: Recorded, others: Sequence[Recorded], own: int, with_figures: bool, seed: int
) -> tuple[float, float]:
    rng = np.random.default_rng(seed)
    taught = [(other, other.like_a_log(rng)) for other in others]
    taught.append((target, rng.choice(len(target.seconds), own, replace=False)))
    seen = slice(None) if with_figures else slice(target.knobs_seen.shape[1])
    ratios = [table.seconds[places].min() / table.seconds[places] for table, places in taught if len(places)]
    weights = np.maximum(np.concatenate(ratios), fitted_rows._LOWEST_WEIGHT).astype(np.float32)
    labels = np.log2(np.maximum(np.concatenate(ratios), 2.0**fitted_rows._LOWEST)).astype(np.float32)
    rows = np.concatenate([table.rows[places] for table, places in taught])[:, seen]
    trees = train(rows, labels, {**fitted_rows._TREES, "seed": seed}, fitted_rows._ROUNDS, weights)
    slow_last = -trees.predict(target.rows[:, seen])
    return rank_correlation(slow_last, target.seconds), regret(slow_last, target.seconds, FIRST)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=6)
    arguments = parser.parse_args()
    tables = [Recorded(path) for path in arguments.tables]
    rows = [("device held out", "own trials", "correlation", "with figures", f"best of {FIRST}", "with figures")]
    for target in tables:
        others = [t for t in tables if t is not target and t.knobs == target.knobs]
        for own in OWN if others else ():
            cells = [target.name, str(own)]
            both = [
                [judged(target, others, own, figures, seed) for seed in range(arguments.seeds)]
                for figures in (False, True)
            ]
            cells += [f"{statistics.fmean(correlation for correlation, _ in found):.2f}" for found in both]
            cells += [f"+{statistics.fmean(more for _, more in found):.0%}" for found in both]
            rows.append(tuple(cells))
    for line in table_lines(rows, right=range(1, len(rows[0]))):
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
