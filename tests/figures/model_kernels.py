"""Kernels of a compiled model in the order of their time, as PyTorch's profiler sees them in calls back to back.

python tests/figures/model_kernels.py SUITE NAME [--mode max-autotune] [--trials 32] [--seconds 60] [--log LOG]

SUITE is a file as `autosched bench models` takes it. For every kernel: its number in a call, the time of one, and its
share of the call; last their sum, and the time of a call between two synchronisations.
"""

from __future__ import annotations

import argparse
import runpy
import time
from collections import defaultdict

import torch
from torch.profiler import ProfilerActivity, profile

from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options

CALLS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite")
    parser.add_argument("name")
    parser.add_argument("--mode", default="max-autotune")
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--log")
    given = parser.parse_args()
    model, inputs = runpy.run_path(given.suite)["MODELS"][given.name]()
    options = {"mode": given.mode, "trials": given.trials, "seconds": given.seconds, "log": given.log}
    with torch.no_grad():
        compiled = torch.compile(model, backend=backend_of(Options.of(None, options), print))
        for _ in range(3):
            compiled(*inputs)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            compiled(*inputs)
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - begin) / CALLS
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for _ in range(CALLS):
                compiled(*inputs)
            torch.cuda.synchronize()
    taken: dict[str, list[float]] = defaultdict(list)
    for event in profiled.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            taken[event.name].append(event.device_time)
    whole = sum(map(sum, taken.values())) / CALLS
    for name, times in sorted(taken.items(), key=lambda item: -sum(item[1])):
        each, share = sum(times) / len(times), sum(times) / CALLS / whole
        print(f"{len(times) / CALLS:6.1f} x {each:8.2f} µs {share:6.1%}  {name[:110]}")
    print(f"kernels {whole:.1f} µs, a call {seconds * 1e6:.1f} µs")


if __name__ == "__main__":
    main()
