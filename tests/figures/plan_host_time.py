"""What a call of a traced function costs the host, by the number of its launches: microseconds until it returns.

python tests/figures/plan_host_time.py [--layers 10 20 40] [--calls 200]

Each layer is a product and a softmax of small matrices, in kernels that are not tuned. On a GPU the device is waited
for before every call, and not within it: what is timed is checking the tensors, allocating, and launching; on a CPU the
kernels' own time is in it. `per launch` is the slope between the least and the greatest number of launches, `fixed` the
rest.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import autosched
from autosched.machine import devices

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from untuned import untuned_kernels


def layers(count: int) -> Callable[[Tensor, Tensor], Tensor]:
    def layered(x: Tensor, weight: Tensor) -> Tensor:
        for _ in range(count):
            x = (x @ weight).softmax(-1)
        return x

    return layered


def host_us(call: Callable[[], object], calls: int, wait: Callable[[], None]) -> float:
    """Median microseconds until a call returns."""
    for _ in range(10):
        call()
    found = []
    for _ in range(calls):
        wait()
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return statistics.median(found) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    target = devices.resolve(None) if on_gpu else devices.cpu_target(1)
    device, dtype = ("cuda", torch.float16) if on_gpu else ("cpu", torch.float32)
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    x, weight = (torch.randn(n, 64, device=device, dtype=dtype) for n in (16, 64))
    print(f"{'launches':>8} {'call µs':>9} {'eager µs':>9}   on {target.label}")
    found = {}
    for count in given.layers:
        function = layers(count)
        traced = autosched.trace(function, x, weight)
        kernel = autosched.TracedKernel(traced, untuned_kernels(traced.workloads, target))
        torch.testing.assert_close(kernel(x, weight), function(x, weight), rtol=1e-2, atol=1e-3)
        launches = len(traced.launched)
        found[launches] = host_us(partial(kernel, x, weight), given.calls, wait)
        eager = host_us(partial(function, x, weight), given.calls, wait)
        print(f"{launches:>8} {found[launches]:>9.1f} {eager:>9.1f}")
    least, greatest = min(found), max(found)
    if least < greatest:
        slope = (found[greatest] - found[least]) / (greatest - least)
        print(f"per launch {slope:.2f} µs, fixed {found[least] - slope * least:.1f} µs")


if __name__ == "__main__":
    main()
