"""Device time of many small launches in a row, each of which reads the result before, in either order of launches.

python tests/figures/early_launches.py [--launches 32 130] [--calls 50]

As CUDA graphs: `in order`, each begins when the one before it has ended; `waiting`, each begins when all blocks of that
have ended (programmatic dependent launch); `early`, as soon as all of its blocks have begun and waited themselves,
which is what compiled graphs try. Microseconds of a call when calls follow each other, and of a launch; the median of
rounds, each with all orders. A product whose reduction is split is two launches. Kernels are the first starts of a
search, not tuned. Needs a GPU of compute capability 9.0 or later.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from search_spaces import TileProgram, Workload, ops

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
import best_spaces
from launch_chains import chained, operands, with_program
from untuned import untuned_kernel

# A row of a norm, a product of one row with a weight of a small model, and one of a short sequence.
WORKLOADS = {
    "softmax 16 × 1024": ops.softmax(16, 1024, dtype="float16"),
    "product 1 × 2048 × 2048": ops.matmul(1, 2048, 2048, dtype="bfloat16", layout="nt"),
    "product 128 × 768 × 768": ops.matmul(128, 768, 768, dtype="float16", layout="nt"),
}
ROUNDS = 7


def waiting(program: TileProgram) -> TileProgram:
    """Kernels that wait, and trigger nothing before they end."""
    early = program.launched_early
    kernels = (replace(k, launch=replace(k.launch, triggering=False)) for k in early.kernels)
    return replace(early, kernels=tuple(kernels))


def in_every_order(workload: Workload) -> dict[str, Kernel]:
    target = devices.resolve(None)
    usual = untuned_kernel(best_spaces.build(workload, target).seeds()[0], workload, target)
    program = usual.schedule.program
    made = {"waiting": waiting(program), "early": program.launched_early}
    return {"in order": usual, **{name: with_program(usual, each) for name, each in made.items()}}


def call_us(call: Callable[[Tensor, Tensor], object], operands: tuple[Tensor, Tensor], calls: int) -> float:
    """Microseconds of a call of many, on the device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        call(*operands)
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, nargs="+", default=[32, 130])
    parser.add_argument("--calls", type=int, default=50)
    given = parser.parse_args()
    print(f"on {devices.resolve(None).label}; µs a call, and a launch")
    for name, workload in WORKLOADS.items():
        kernels = in_every_order(workload)
        taken = operands(kernels["in order"], 0)
        for count in given.launches:
            times = max(1, count // len(kernels["in order"].schedule.program.kernels))
            runs = {order: chained([kernel] * times, graphs=True) for order, kernel in kernels.items()}
            wanted = runs["in order"](*taken)
            for run in runs.values():
                torch.testing.assert_close(run(*taken), wanted, rtol=1e-2, atol=1e-2)
            rounds = [{o: call_us(run, taken, given.calls) for o, run in runs.items()} for _ in range(ROUNDS)]
            found = {order: statistics.median(each[order] for each in rounds) for order in runs}
            row = "  ".join(f"{order} {us:8.1f} {us / count:6.2f}" for order, us in found.items())
            print(f"{name:26} {count:>4} launches  {row}")


if __name__ == "__main__":
    main()
