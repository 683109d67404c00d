"""TVM's MetaSchedule on the same matmul with the same trials, one thread, timed against torch.matmul in one process.

    pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1 torch==2.13.0 xgboost-cpu numpy psutil scipy
    TVM_NUM_THREADS=1 python tests/figures/meta_schedule.py 512 512 512 --trials 64

Run it in an environment of its own; `python tests/figures/cpu.py --matmul 512 512 512 --trials 64` is our side.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import numpy as np
import torch
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms


def matmul(m: int, n: int, k: int) -> object:
    """The same tensor expression as ours: row-major operands, float32."""
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return te.create_prim_func([a, b, c])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs=3, metavar=("M", "N", "K"))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--mcpu", default="cascadelake")
    arguments = parser.parse_args()
    m, n, k = arguments.sizes
    target = tvm.target.Target({"kind": "llvm", "mcpu": arguments.mcpu, "num-cores": 1})
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        database = ms.tune_tir(
            mod=matmul(m, n, k),
            target=target,
            work_dir=folder,
            max_trials_global=arguments.trials,
            num_trials_per_iter=min(64, arguments.trials),
            builder=ms.builder.LocalBuilder(timeout_sec=120),
            seed=0,
        )
        schedule = ms.tir_integration.compile_tir(database, matmul(m, n, k), target)
        built = tvm.compile(schedule.mod, target=target)
    seconds = time.perf_counter() - started
    torch.set_num_threads(1)
    a, b, out = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
    device = tvm.cpu()
    ta, tb = tvm.runtime.tensor(a.numpy(), device), tvm.runtime.tensor(b.numpy(), device)
    tc = tvm.runtime.tensor(np.zeros((m, n), dtype=np.float32), device)
    function = built["main"]
    calls = {"MetaSchedule": lambda: function(ta, tb, tc), "torch.matmul": lambda: torch.matmul(a, b, out=out)}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    swept = torch.zeros(2**19, dtype=torch.int32)
    for _ in range(60):
        for name, call in calls.items():
            swept.add_(1)
            start = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - start)
    torch.testing.assert_close(torch.from_numpy(tc.numpy()), a @ b, rtol=1e-3, atol=1e-3)
    for name, latencies in taken.items():
        median = statistics.median(latencies)
        print(f"{name:14} {median * 1e3:8.3f} ms {2 * m * n * k / median / 1e9:8.1f} GFLOP/s (cold L2, median of 60)")
    paired = [b / a for a, b in zip(taken["MetaSchedule"], taken["torch.matmul"], strict=True)]
    print(
        f"MetaSchedule is {statistics.median(paired):.2f}x torch.matmul; {arguments.trials} trials in {seconds:.1f} s"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
