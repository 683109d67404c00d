"""What a GPU machine shows: runs the tests that need one, tunes, compares, and prints one table last.

python tests/figures/gpu.py figures [--out DIR]    the GPU's tests, then tuned kernels against PyTorch and the library
python tests/figures/gpu.py tests                  the tests alone
python tests/figures/gpu.py smoke                  a few random schedules of every operator, checked
python tests/figures/gpu.py throughput             1000 trials of one matmul: how long, and where the time goes
"""

from __future__ import annotations

import argparse
import collections
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import autosched
from autosched import ops
from autosched.machine import devices
from autosched.measuring import LocalMeasurer
from search_spaces import Workload
from tuning_logs import TuningLog

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
import best_spaces

SMOKE: tuple[Workload, ...] = (
    ops.gelu_scale(1_000_003),
    ops.pointwise(1000, 1537, "bias_silu_residual", dtype="bfloat16"),
    ops.softmax(1000, 3000),
    ops.layernorm(513, 2560, dtype="bfloat16"),
    ops.rmsnorm(17, 8192, dtype="float16"),
    ops.row_sum(40, 100_000),
    ops.matmul(1024, 1536, 2048, dtype="bfloat16", layout="nt", epilogue="bias_gelu"),
    ops.matmul(1000, 333, 777, dtype="float16"),
    ops.matmul(512, 512, 512),
    ops.matmul(256, 384, 4096, dtype="tf32", layout="tn", batch=3),
)


def smoke(samples: int = 12) -> int:
    """Measure random schedules of every operator; returns how many failed otherwise than by not compiling."""
    target, bad = devices.detect(), 0
    for workload in SMOKE:
        space = best_spaces.build(workload, target)
        rng = np.random.default_rng(0)
        schedules = list(dict.fromkeys(space.sample(rng) for _ in range(samples)))
        started = time.perf_counter()
        with LocalMeasurer(target) as measurer:
            measured = measurer.measure(workload, schedules)
        counts = collections.Counter(m.status for m in measured)
        print(f"{workload.label:70} {dict(counts)} {time.perf_counter() - started:.1f} s", flush=True)
        shown: set[str] = set()
        for schedule, m in zip(schedules, measured, strict=True):
            if not m.ok and m.status not in shown:
                shown.add(m.status)
                print(f"    {m.status}: {m.detail[:400]}\n    {schedule.one_line}", flush=True)
        bad += sum(n for status, n in counts.items() if status not in ("ok", "compile_error", "load_error"))
    return bad


FIGURES: tuple[tuple[Workload, int], ...] = (
    (ops.matmul(4096, 4096, 4096, dtype="bfloat16", layout="nt"), 300),
    (ops.gelu_scale(1 << 24), 100),
    (ops.softmax(4096, 4096), 150),
    (ops.layernorm(16384, 768, dtype="bfloat16"), 100),
    (ops.matmul(512, 512, 512), 100),
)


def figures(out: Path, trials: int | None) -> int:
    """Run the tests, tune and compare the workloads of `FIGURES`; the tables come last, then the tests' summary."""
    status, summary = gpu_tests()
    shown = []
    for workload, wanted in FIGURES:
        started = time.perf_counter()
        result = autosched.tune(workload, trials=trials or wanted, log=out / "tuning.jsonl")
        seconds = time.perf_counter() - started
        print(result, flush=True)
        comparison = autosched.compare(workload, log=out / "tuning.jsonl", rounds=100)
        best = result.best.schedule.one_line if result.best else "none"
        shown.append(f"{comparison}\n  tuned in {seconds:.1f} s, {result.trials_done} trials\n  {best}")
    print("\n\n".join([*shown, f"GPU tests: {summary}"]))
    return status


def throughput(out: Path, trials: int | None) -> int:
    """Tune the first workload of `FIGURES` once, and say where the time went."""
    workload, _ = FIGURES[0]
    begin = time.perf_counter()
    result = autosched.tune(workload, trials=trials or 1000, log=out / "throughput.jsonl")
    print(f"{result}\n{result.report}\n{time.perf_counter() - begin:.1f} s around `tune`")
    states = [r.measurement.device for r in TuningLog(result.log) if r.measurement.device]
    print(f"{len(states)} records with the device's state, the last: {states[-1] if states else None}")
    return 0


def gpu_tests() -> tuple[int, str]:
    """Run the tests that need a GPU, in a process that leaves nothing on it: the exit status, and pytest's summary."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)
    print(ran.stdout, flush=True)
    return ran.returncode, next(reversed(ran.stdout.splitlines()), "no output")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tests", "smoke", "throughput", "figures"])
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--trials", type=int, help="instead of each workload's own number")
    arguments = parser.parse_args()
    if devices.detect().kind != "gpu":
        print("expected a GPU, found none; the CPU's figures come from tests/figures/cpu.py", file=sys.stderr)
        return 2
    match arguments.what:
        case "tests":
            return gpu_tests()[0]
        case "smoke":
            return smoke()
        case "throughput":
            return throughput(arguments.out, arguments.trials)
        case _:
            return figures(arguments.out, arguments.trials)


if __name__ == "__main__":
    raise SystemExit(main())
