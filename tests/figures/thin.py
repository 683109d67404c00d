"""What one sketch reaches on thin matrix products: its starting points and random schedules against the library.

python tests/figures/thin.py                                    m of 1, 2, 4, 8, 16 on three shapes
python tests/figures/thin.py --sketch contraction --samples 60
python tests/figures/thin.py --m 1 --shape 6144,4096,bfloat16,nt --all

A row says how many schedules were measured; the fastest starting point and the fastest random schedule, each by its own
short timing; then the fastest four timed again in turn with the library, and what part of the target's memory bandwidth
the winner's compulsory traffic is. `--all` prints every schedule, fastest first.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autosched import ops
from autosched.machine import devices
from autosched.measuring import LocalMeasurer
from search_spaces import Schedule, SearchSpace, Workload
from tuning_logs import Measurement
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.text import duration_text, ratio_text, table_lines

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
import best_spaces

SHAPES = ("6144,4096,bfloat16,nt", "8457,2560,float16,nn", "4096,14336,bfloat16,nt")
HEAD = ("workload", "measured", "best start", "best random", "finals", "library", "library / finals", "of bandwidth")
# The finals: schedules, and rounds in which each is timed once.
FINALISTS, ROUNDS = 4, 15


def workload(m: int, shape: str) -> Workload:
    n, k, dtype, layout = shape.split(",")
    return ops.matmul(m, int(n), int(k), dtype=dtype, layout=layout)


def figures(space: SearchSpace, samples: int, seed: int, show_all: bool) -> tuple[str, ...]:
    """The row of one workload; failures, and with `show_all` every schedule, are printed before it."""
    starts = space.seeds()
    rng = np.random.default_rng(seed)
    drawn = [s for s in dict.fromkeys(space.sample(rng) for _ in range(samples)) if s not in starts]
    with LocalMeasurer(space.target) as measurer:
        measured = dict(
            zip([*starts, *drawn], measurer.measure(space.workload, [*starts, *drawn], seed=seed), strict=True)
        )
        ranked = sorted((s for s, m in measured.items() if m.ok), key=lambda s: measured[s].latency_s)
        finals = measurer.remeasure(space.workload, ranked[:FINALISTS], ROUNDS, seed=seed) or []
    for schedule in ranked if show_all else ranked[:2]:
        origin = "start" if schedule in starts else "random"
        print(f"  {duration_text(measured[schedule].latency_s):>8} {origin:6} {schedule.one_line}")
    failed = collections.Counter(m.status for m in measured.values() if not m.ok)
    print(f"  {dict(failed) or 'none failed'}", flush=True)
    counts = f"{len(starts)} + {len(drawn)}"
    return (space.workload.label, counts, fastest(starts, measured), fastest(drawn, measured), *against(space, finals))


def fastest(schedules: Sequence[Schedule], measured: dict[Schedule, Measurement]) -> str:
    latencies = [measured[s].latency_s for s in schedules if measured[s].ok]
    return duration_text(min(latencies)) if latencies else "none"


def against(space: SearchSpace, finals: Sequence[Measurement]) -> tuple[str, str, str, str]:
    """The winner of the finals, the library in turn with it, their ratio, and the bandwidth."""
    ranked = sorted((m for m in finals if m.ok), key=lambda m: m.latency_s)
    best = next((m for m in ranked if m.library_s), ranked[0] if ranked else None)
    if best is None:
        return ("none", "", "", "")
    part = space.workload.min_bytes / best.latency_s / space.target.memory_bytes_per_s
    if not best.library_s:
        return (duration_text(best.latency_s), "none", "", f"{part:.0%}")
    ratio = ratio_text(paired_ratio(best.library_s, best.paired_s), ratio_interval(best.library_s, best.paired_s))
    return (duration_text(best.latency_s), duration_text(float(np.median(best.library_s))), ratio, f"{part:.0%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sketch", default="thin_contraction")
    parser.add_argument("--samples", type=int, default=40, help="random schedules per workload")
    parser.add_argument("--m", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--shape", nargs="+", default=SHAPES, help="n,k,dtype,layout")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="print every schedule")
    arguments = parser.parse_args()
    target, rows = devices.detect(), [HEAD]
    for shape in arguments.shape:
        for m in arguments.m:
            space = best_spaces.build(workload(m, shape), target).restricted(arguments.sketch)
            rows.append(figures(space, arguments.samples, arguments.seed, arguments.all))
    print("\n".join(table_lines(rows, right=range(1, len(HEAD)))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
