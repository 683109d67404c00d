"""One search for several sizes of a product, against each size alone in as many seconds: what both found, interleaved.

python tests/figures/sizes.py FOLDER [--target cpu] [--seconds 60] [--points 1 16 …] [--n 4096 --k 4096 --experts 64]
    [--histogram skewed]

With --experts the product is grouped: rows of that many experts, distributed as --histogram says. Everything starts
cold. "one for all" is the schedule of the largest point at all sizes. FOLDER keeps the logs; a second call goes on with
them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import autosched
from autosched import DynamicOperator, DynamicOperatorKernel
from autosched.backends import spaces
from autosched.machine import devices
from autosched.measuring.session import local_measurer
from autosched.replaying.measured_sizes import lent
from search_spaces import Schedule, Target, Workload, ops
from search_spaces.workloads.stages import HISTOGRAMS
from tuning_logs.intervals import paired_ratio
from tuning_logs.text import duration_text, table_lines

_ROUNDS = 30
_POINTS = (1, 16, 64, 256, 1024, 2048, 4096, 16384)


def timed(workload: Workload, target: Target, schedules: Sequence[Schedule]) -> list[tuple[float, ...]]:
    """Latencies of each schedule in interleaved rounds that all take part in."""
    space = spaces.build(workload, target)
    distinct = list(dict.fromkeys(space.bind(schedule) for schedule in schedules))
    measurer = local_measurer(target)
    with measurer.reserved(target):
        found = measurer.remeasure(workload, distinct, _ROUNDS)
    assert found is not None
    # One that dropped out has fewer rounds.
    least = min(len(m.latencies_s) for m in found)
    latencies = {schedule: m.latencies_s[:least] for schedule, m in zip(distinct, found, strict=True)}
    return [latencies[space.bind(schedule)] for schedule in schedules]


def row(size: int, workload: Workload, target: Target, schedules: Sequence[Schedule]) -> tuple[str, ...]:
    together, alone, single = timed(workload, target, schedules)
    times = [duration_text(sorted(side)[len(side) // 2]) for side in (together, alone, single)]
    return (str(size), *times, f"{paired_ratio(alone, together):.3f}", f"{paired_ratio(single, together):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--points", type=int, nargs="+", default=_POINTS)
    parser.add_argument("--n", type=int, default=4096)
    parser.add_argument("--k", type=int, default=4096)
    parser.add_argument("--experts", type=int, default=0)
    parser.add_argument("--histogram", default="", choices=("", *HISTOGRAMS))
    parser.add_argument("--dtype", default="bfloat16")
    given = parser.parse_args()
    target = devices.resolve(given.target)
    given.folder.mkdir(parents=True, exist_ok=True)

    def of_size(m: int) -> Workload:
        if given.experts:
            return ops.grouped_matmul(given.experts, m, given.n, given.k, given.dtype, histogram=given.histogram)
        return ops.matmul(m, given.n, given.k, dtype=given.dtype)

    operator: DynamicOperator = autosched.dynamic(of_size, given.points)
    begin = time.perf_counter()
    # Workers start before the clock of either side does.
    local_measurer(target)
    result = autosched.tune(
        operator, target, given.trials, seconds=given.seconds, log=given.folder / "together.jsonl", history=()
    )
    seconds, kernel = time.perf_counter() - begin, result.kernel
    assert isinstance(kernel, DynamicOperatorKernel)
    print(f"{sum(r.trials_done for r in result.results)} trials of all sizes together in {seconds:.1f} s\n{kernel}")
    begin, rows, trials = time.perf_counter(), [], 0
    for size in operator.points:
        log, share = given.folder / f"alone-{size}.jsonl", given.seconds / len(operator.points)
        alone = autosched.tune(operator.at(size), target, given.trials, seconds=share, log=log, history=())
        trials += alone.trials_done
        assert alone.best is not None
        best = kernel.at(size).schedule
        single = lent(operator.at(size), target, [kernel.at(operator.points[-1]).schedule])
        rows.append((size, operator.at(size), [best, alone.best.schedule, *(single or [best])]))
    print(f"{trials} trials of each size alone in {time.perf_counter() - begin:.1f} s\n")
    head = ("size", "together", "alone", "one for all", "alone / together", "one for all / together")
    print("\n".join(table_lines([head, *(row(size, w, target, found) for size, w, found in rows)], right=range(6))))


if __name__ == "__main__":
    main()
