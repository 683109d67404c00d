"""Functions of a suite tuned together with few trials, against each with many: what both found, timed interleaved.

python tests/figures_together.py SUITE.py FOLDER --together 2000 --each 1000 [--only NAME,…] [--target h200]

FOLDER keeps both logs: called again, it goes on where it ended.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import autosched
from autosched.backends import spaces
from autosched.bench.suites.function_suite import read_function_suite
from autosched.machine import devices
from autosched.measuring import local_measurer
from search_spaces import Target, Workload
from tuning_logs import TuningRecord

_ROUNDS = 30


def side_by_side(workload: Workload, target: Target, records: tuple[TuningRecord, TuningRecord]) -> tuple[float, float]:
    """The latencies of two schedules, timed in turn; those of the records where they are one, or cannot be."""
    measurer, space = local_measurer(target), spaces.build(workload, target)
    schedules = [space.bind(record.schedule) for record in records]
    with measurer.reserved(target):
        timed = measurer.remeasure(workload, schedules, _ROUNDS) if schedules[0] != schedules[1] else None
    first, second = timed if timed and all(m.ok for m in timed) else [r.measurement for r in records]
    return first.latency_s, second.latency_s


def show(name: str, first_s: float, second_s: float) -> None:
    print(f"{name[:60]:60} {first_s * 1e6:9.2f} µs {second_s * 1e6:9.2f} µs {first_s / second_s - 1:+.1%}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--together", type=int, default=2000)
    parser.add_argument("--each", type=int, default=1000)
    parser.add_argument("--only", default="")
    parser.add_argument("--target", default=None)
    arguments = parser.parse_args()
    target = devices.resolve(arguments.target)
    suite = read_function_suite(arguments.suite, "cuda" if target.kind == "gpu" else "cpu")
    cases = suite.only([name for name in arguments.only.split(",") if name]).cases
    begin = time.perf_counter()
    together = autosched.tune_many(
        [case.op for case in cases], target, arguments.together, log=arguments.folder / "together.jsonl"
    )
    print(f"{together}\n{time.perf_counter() - begin:.0f} s\n", flush=True)
    begin, trials, sums = time.perf_counter(), 0, [0.0, 0.0]
    pairs = []
    for case in cases:
        assert not isinstance(case.op, Workload)
        alone = autosched.tune(case.op, target, arguments.each, log=arguments.folder / "each.jsonl")
        pairs += [(result.workload, result.best) for result in alone.results]
        trials += sum(result.trials_done for result in alone.results)
    print(f"each: {trials} trials, {time.perf_counter() - begin:.0f} s", flush=True)
    bests = {s.result.workload.key: s.result.best for s in together.spent if s.weight}
    for workload, best in pairs:
        found = bests.get(workload.key)
        if best is None or found is None:
            continue
        first_s, second_s = side_by_side(workload, target, (found, best))
        sums = [sums[0] + first_s, sums[1] + second_s]
        print(
            f"{workload.label[:60]:60} {first_s * 1e6:9.2f} µs {second_s * 1e6:9.2f} µs {first_s / second_s - 1:+.1%}"
        )
    print(f"{'sum':60} {sums[0] * 1e6:9.2f} µs {sums[1] * 1e6:9.2f} µs {sums[0] / sums[1] - 1:+.1%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
