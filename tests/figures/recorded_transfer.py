"""What transfer saves on the recorded table of the H200's matmul space: from other shapes and another element type.

python tests/figures/recorded_transfer.py [--seeds 8]    trials to 95 % and 99 % of the table's best, without a GPU

The points that sketches propose are left out. The records are those that ship, but for those of its own workload.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import cost_models
from autosched.measuring import RecordedMeasurer
from autosched.strategies.evolutionary import Evolutionary
from search_spaces import SearchSpace
from tuning_logs import TuningLog, TuningRecord, shipped_logs
from tuning_logs.selection import MOST_LOOKED_THROUGH, nearest, telling
from tuning_logs.text import table_lines

sys.path.append(str(Path(__file__).parents[1]))
sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
import figures.search
import recorded_spaces

TRIALS, BATCH = 160, 16
QUALITIES = (0.95, 0.99)
# By what they are to the table's workload, 4096³ in bfloat16: the labels of the workloads that are learnt from.
SOURCES = {
    "half its size": "matmul m=2048 n=2048 k=2048 layout=nt bfloat16",
    "twice its size": "matmul m=8192 n=8192 k=8192 layout=nt bfloat16",
    "float16, another layout": "matmul m=4096 n=4096 k=4096 layout=nn float16",
}


def sources(space: SearchSpace) -> Iterator[tuple[str, list[TuningRecord]]]:
    shipped = [r for path in shipped_logs() for r in TuningLog(path) if r.provenance.policy == "cold"]
    others = [r for r in shipped if r.subject.key != space.workload.key]
    yield "nothing", []
    for name, label in SOURCES.items():
        yield name, [r for r in others if r.subject.label == label]
    yield "all other shapes", telling(nearest(others, space.workload, space.target, MOST_LOOKED_THROUGH))


def search(
    space: SearchSpace, measurer: RecordedMeasurer, told: Sequence[TuningRecord], seed: int
) -> tuple[list[float], Evolutionary]:
    """The best after every trial, and the strategy that searched."""
    strategy = Evolutionary(space, cost_models.create("xgboost", seed), np.random.default_rng(seed))
    strategy.tell(told, elsewhere=True)
    latencies: list[float] = []
    while len(latencies) < TRIALS:
        asked = strategy.ask(BATCH)
        found = [future.result() for future in measurer.submit(space.workload, asked)]
        strategy.tell([figures.search._record(space, s, m, seed) for s, m in zip(asked, found, strict=True)])
        latencies += [m.latency_s if m.ok else math.inf for m in found]
    return list(np.minimum.accumulate(latencies)), strategy


def row(space: SearchSpace, records: Sequence[TuningRecord], told: Sequence[TuningRecord], seeds: int) -> list[str]:
    measurer = RecordedMeasurer(records)
    best_s = min(r.measurement.latency_s for r in records if r.measurement.ok)
    found = [search(space, measurer, told, seed) for seed in range(seeds)]
    cells = [str(len(told))]
    for quality in QUALITIES:
        needed = [1 + sum(best > best_s / quality for best in curve) for curve, _ in found]
        cells += [f"{statistics.median(needed):g}", f"{max(needed)}"]
    seen = [strategy.transfer for _, strategy in found if strategy.transfer is not None]
    trust = [transfer.trust for transfer in seen if told]
    return [*cells, f"{statistics.fmean(trust):.0%}" if trust else ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    seeds = parser.parse_args().seeds
    records, whole = recorded_spaces.read_table(), recorded_spaces.table_space()
    space = dataclasses.replace(whole, sketches=tuple(dataclasses.replace(s, seeds=()) for s in whole.sketches))
    rows: list[tuple[str, ...]] = [("learnt from", "records", "to 95 %", "at most", "to 99 %", "at most", "believed")]
    rows += [(name, *row(space, records, told, seeds)) for name, told in sources(space)]
    for line in table_lines(rows, right=range(1, 7)):
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
