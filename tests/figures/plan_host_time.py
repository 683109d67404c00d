"""Host time of a call of a compiled model, by the number of its launches: microseconds until it returns.

python tests/figures/plan_host_time.py [--layers 4 8 16] [--calls 200]

Each layer is a norm and two products of small matrices, in kernels that are not tuned. On a GPU the device is waited
for before every call, and not within it: what is timed is checking the tensors, allocating, and launching; on a CPU the
kernels' own time is in it. `plan` is the compiled graph without Dynamo, launched kernel by kernel, `graph` the same as
a CUDA graph, `moved` what a user calls (with Dynamo's guards) as a CUDA graph, with another input at every call,
`compiled` what a user calls, kernel by kernel, and `driver` the part of `plan` that the driver's functions take, which
machine code calls one after the other. `per launch` is the slope of `plan` between the least and the greatest number of
launches, with that of `driver`, and `fixed` the rest.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autosched.machine import devices
from autosched.torch_compile import graph_compiler
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.composition import PlannedGraph
from autosched.torch_compile.options import Mode, Options
from autosched.tracing import TracedFunction, TracedKernel
from search_spaces import Target

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from untuned import untuned_kernels

ROWS, WIDTH = 16, 64
# Kernels that were made, by the key of a workload.
KNOWN: dict[str, Any] = {}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return made


def kernels(traced: TracedFunction, target: Target, log: object, strict: bool = False) -> TracedKernel:
    """Any kernels in the place of tuned ones."""
    traced = traced.for_target(target)
    KNOWN.update(untuned_kernels([w for w in traced.workloads if w.key not in KNOWN], target))
    return TracedKernel(traced, KNOWN)


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


def driver_us(plan: Callable[[], object], calls: int, wait: Callable[[], None]) -> float:
    """Median microseconds of a call that pass in the driver's functions."""
    from autosched.backends.gpu.enqueueing import Enqueueing

    usual, taken, found = Enqueueing.__call__, [0.0], []

    def timed(enqueueing: Enqueueing, steps: int, count: int, stream: int) -> tuple[Any]:
        begin = time.perf_counter()
        status = usual(enqueueing, steps, count, stream)
        taken[0] += time.perf_counter() - begin
        return status

    with patch.object(Enqueueing, "__call__", timed):
        for _ in range(calls):
            wait()
            taken[0] = 0.0
            plan()
            found.append(taken[0])
    return statistics.median(found) * 1e6


def compiled(model: nn.Module, mode: Mode, x: Tensor) -> tuple[Callable[..., Any], Callable[[], object], int]:
    """The compiled model, a call of its plan alone, and the number of its launches."""
    calls: list[tuple[PlannedGraph, list[Any]]] = []
    reports: list[Any] = []
    usual = PlannedGraph.__call__

    def noted(graph: PlannedGraph, inputs: list[Any]) -> list[Any]:
        calls.append((graph, [*inputs]))
        return usual(graph, inputs)

    torch.compiler.reset()
    made = torch.compile(model, backend=backend_of(Options(mode, strict=True), reports.append))
    with patch.object(PlannedGraph, "__call__", noted):
        torch.testing.assert_close(made(x), model(x), rtol=2e-2, atol=2e-2)
    graph, inputs = calls[-1]
    return made, lambda: graph([*inputs]), reports[0].kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device, dtype = ("cuda", torch.float16) if on_gpu else ("cpu", torch.float32)
    wait: Callable[[], None] = torch.cuda.synchronize if on_gpu else lambda: None
    torch.set_num_threads(1)
    graph_compiler.replay = kernels  # type: ignore[attr-defined]
    x = torch.randn(ROWS, WIDTH, device=device, dtype=dtype)
    print(f"on {(devices.resolve(None) if on_gpu else devices.cpu_target(1)).label}; µs")
    print("layers launches      plan     graph     moved  compiled     eager    driver")
    found: dict[int, tuple[float, float]] = {}
    for count in given.layers:
        torch.manual_seed(0)
        model = nn.Sequential(*(Layer() for _ in range(count))).to(device, dtype).requires_grad_(False)
        time_of = partial(host_us, calls=given.calls, wait=wait)
        with torch.no_grad():
            called, plan, launches = compiled(model, "default", x)
            found[launches] = time_of(plan), driver_us(plan, given.calls, wait) if on_gpu else float("nan")
            whole, driver = found[launches]
            row = [whole, float("nan"), float("nan"), time_of(partial(called, x)), time_of(partial(model, x)), driver]
            if on_gpu:
                graphed, graph, _ = compiled(model, "reduce-overhead", x)
                inputs = itertools.cycle([x.clone() for _ in range(3)])
                row[1], row[2] = time_of(graph), time_of(lambda: graphed(next(inputs)))  # noqa: B023
        print(f"{count:>6} {launches:>8} " + " ".join(f"{us:>9.1f}" for us in row))
    least, greatest = min(found), max(found)
    if least < greatest:
        slope, driver = ((g - n) / (greatest - least) for g, n in zip(found[greatest], found[least], strict=True))
        fixed = found[least][0] - slope * least
        print(f"per launch {slope:.2f} µs, of which the driver takes {driver:.2f}; fixed {fixed:.1f} µs")


if __name__ == "__main__":
    main()
