"""The figures of docs/performance.md that a CPU shows: tunes every workload, compares, and prints one table last.

python tests/figures_cpu.py                                    everything, one thread on both sides
python tests/figures_cpu.py --matmul 512 512 512 --trials 64   one matmul (m, n, k)
python tests/figures_cpu.py --threads 2                        everything, two threads on both sides
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import autosched
from autosched import ops
from search_spaces import Workload

WORKLOADS: tuple[tuple[Workload, int], ...] = (
    (ops.matmul(512, 512, 512), 256),
    (ops.matmul(1024, 1024, 1024), 256),
    (ops.matmul(16, 4096, 1024), 256),
    (ops.gelu_scale(2**22), 64),
    (ops.softmax(4096, 1024), 96),
    (ops.layernorm(4096, 1024), 96),
)


def figure(workload: Workload, trials: int, threads: int, log: Path, rounds: int) -> tuple[str, str]:
    """Tune and compare; a line for the table, and the whole comparison."""
    target = autosched.cpu_target(threads)
    started = time.perf_counter()
    result = autosched.tune(workload, target, trials, log=log)
    seconds = time.perf_counter() - started
    comparison = autosched.compare(workload, target, log=log, rounds=rounds)
    row, library = comparison.rows[0], comparison.rows[1]
    rate = result.trials_done / result.wall_s
    work = result.work
    workers = work.compile + work.load + work.check + work.time
    line = (
        f"{workload.label:58}{row.median_s * 1e3:9.3f} ms{library.median_s * 1e3:9.3f} ms"
        f"{comparison.speedup(library.label):7.2f}x{result.trials_done:8d}{seconds:8.1f} s{rate:9.1f}"
        f"{100 * work.compile / workers:9.0f} %"
    )
    best = result.best.schedule.one_line if result.best else "none"
    return line, f"{comparison}\n  {best}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matmul", type=int, nargs=3, metavar=("M", "N", "K"))
    parser.add_argument("--trials", type=int, help="instead of each workload's own number")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60, help="of the comparison")
    arguments = parser.parse_args()
    workloads = ((ops.matmul(*arguments.matmul), 256),) if arguments.matmul else WORKLOADS
    head = f"{'':58}{'tuned':>12}{'library':>12}{'ratio':>8}{'trials':>8}{'wall':>10}{'trials/s':>9}{'compiling':>11}"
    lines = [head]
    with tempfile.TemporaryDirectory() as folder:
        for workload, trials in workloads:
            line, shown = figure(
                workload, arguments.trials or trials, arguments.threads, Path(folder) / "log.jsonl", arguments.rounds
            )
            lines.append(line)
            print(shown, flush=True)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
