"""Does a search end with as good a kernel whatever its seed? Tunes with several seeds, then times all winners together.

Every seed searches with a log of its own. The winners and the vendor's library are then timed interleaved in one run.

python tests/figures/stability.py                                      matmul 4096³ bfloat16 on a GPU, 512³ on a CPU
python tests/figures/stability.py --trials 1000 --seeds 0 1 2 3 4 5 6  more of everything
python tests/figures/stability.py --matmul 64 64 64 --dtype float32    another one (m, n, k)
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import autosched
from autosched import Kernel, ops
from autosched.baselines.baselines import baseline, library_name, library_settings
from autosched.checking.random_inputs import random_inputs
from autosched.machine import devices
from autosched.machine.timing import Run, interleaved, timer_for
from search_spaces import Workload
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.text import duration_text, table_lines

LIBRARY = "library"


def tuned(workload: Workload, trials: int, seeds: Sequence[int], logs: Path) -> dict[str, Kernel]:
    """The winner of every seed, by "seed n"."""
    kernels: dict[str, Kernel] = {}
    for seed in seeds:
        started = time.perf_counter()
        result = autosched.tune(workload, trials=trials, seed=seed, log=logs / f"seed_{seed}.jsonl")
        kernels[f"seed {seed}"] = result.kernel
        print(f"seed {seed}: {result} ({time.perf_counter() - started:.1f} s in all)", flush=True)
    return kernels


def timed_together(kernels: dict[str, Kernel], rounds: int) -> dict[str, list[float]]:
    """Seconds of every kernel and of the library in every round; all read and write the same tensors."""
    first = next(iter(kernels.values()))
    workload, target = first.workload, first.target
    inputs = random_inputs(workload, 0, first.device)
    out = torch.empty(workload.outputs[0].shape, dtype=first.outputs[0].dtype, device=first.device)
    calls: dict[str, Run] = {name: lambda k=kernel: k(*inputs, out=out) for name, kernel in kernels.items()}
    known = baseline(workload)
    assert known is not None
    assert known.library is not None
    into_out = known.library
    calls[LIBRARY] = lambda: into_out(inputs, out)
    with library_settings(workload.precision, target), torch.no_grad():
        return interleaved(calls, rounds, timer_for(target, "cold", products=True))


def shown(kernels: dict[str, Kernel], latencies: dict[str, list[float]]) -> str:
    """A line for every winner, the library and the spread."""
    vendor = library_name(next(iter(kernels.values())).workload, next(iter(kernels.values())).device)
    rows = [("", "median", f"{vendor} takes as long as", "schedule")]
    for name, kernel in kernels.items():
        median = duration_text(statistics.median(latencies[name]))
        rows.append((name, median, ratio(latencies[LIBRARY], latencies[name]), kernel.schedule.one_line))
    rows.append((vendor, duration_text(statistics.median(latencies[LIBRARY])), "", ""))
    ranked = sorted(kernels, key=lambda name: statistics.median(latencies[name]))
    best, worst = latencies[ranked[0]], latencies[ranked[-1]]
    spread = statistics.median(worst) / statistics.median(best) - 1
    distinct = len({kernel.schedule for kernel in kernels.values()})
    return "\n".join(
        [
            *table_lines(rows, right=(1, 2)),
            f"{distinct} different schedules; spread of the medians {spread:.1%}; "
            f"{ranked[-1]} takes {ratio(worst, best)} as long as {ranked[0]} in the same rounds",
        ]
    )


def ratio(slow: Sequence[float], fast: Sequence[float]) -> str:
    """`1.23x (1.21–1.25)`."""
    interval = ratio_interval(slow, fast)
    ends = f" ({interval.low:.3f}–{interval.high:.3f})" if interval else ""
    return f"{paired_ratio(slow, fast):.3f}x{ends}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matmul", type=int, nargs=3, metavar=("M", "N", "K"))
    parser.add_argument("--dtype")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--rounds", type=int, default=60, help="in which the winners are timed together")
    parser.add_argument("--out", type=Path, help="where the logs are kept; by default they are not")
    arguments = parser.parse_args()
    gpu = devices.detect().kind == "gpu"
    m, n, k = arguments.matmul or ((4096,) * 3 if gpu else (512,) * 3)
    dtype = arguments.dtype or ("bfloat16" if gpu else "float32")
    workload = ops.matmul(m, n, k, dtype=dtype, layout="nt" if gpu else "nn")
    with tempfile.TemporaryDirectory() as folder:
        kernels = tuned(workload, arguments.trials, arguments.seeds, arguments.out or Path(folder))
    print(shown(kernels, timed_together(kernels, arguments.rounds)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
