"""How accurate functions are on this machine, beside PyTorch's own: prints a table of units in the last place.

python tests/figures/accuracy.py                  the CPU
python tests/figures/accuracy.py --device cuda    the GPU
python tests/figures/accuracy.py exp pow          some functions only

For every function the largest error against float64 over float32 numbers of every size, and which arguments it is
found for; infinite where a special value is wrong. `ordinary`: the same where result and arguments are neither denormal
nor larger than 100, which is where most programs are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from autosched import backends
from autosched.checking.accuracy import ACCURACY
from autosched.checking.operations import OPERATIONS
from autosched.machine import devices
from search_spaces import Target

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
import best_spaces
from function_accuracy import arguments, units_off, workload_of
from scheduled_tensors import launched_on

Computed = Callable[..., torch.Tensor]


def kernel(operator: str, elements: int, target: Target, device: str) -> Computed:
    """The function by a kernel with any schedule, of tensors of the CPU."""
    workload = workload_of(operator, elements)
    program = best_spaces.build(workload, target).sample(np.random.default_rng(0)).program
    (backend,) = backends.for_target(target)
    launcher = backend.load(backend.compile(backend.render(program, "", target), program, target), program)

    def computed(*given: torch.Tensor) -> torch.Tensor:
        out = torch.full((elements,), 77.0, device=device)
        launcher(launched_on(workload, [x.to(device) for x in given], out))
        return out.cpu()

    return computed


def eager(operator: str, device: str) -> Computed:
    return lambda *given: OPERATIONS[operator](*(x.to(device) for x in given)).cpu()


def is_ordinary(*values: torch.Tensor) -> torch.Tensor:
    inside = torch.ones(values[0].shape, dtype=torch.bool)
    for v in values:
        inside &= (v == 0) | ((v.abs() >= torch.finfo(torch.float32).tiny) & (v.abs() <= 100))
    return inside


def line(operator: str, given: list[torch.Tensor], target: Target, device: str) -> str:
    exact = OPERATIONS[operator](*(x.double() for x in given))
    ordinary = is_ordinary(exact.float(), *given)
    texts = []
    for computed in (kernel(operator, len(exact), target, device), eager(operator, device)):
        off = units_off(computed(*given), exact)
        worst = int(off.argmax())
        where = ", ".join(f"{float(x[worst]):.7g}" for x in given)
        texts.append(f"{float(off[ordinary].max()):10.3f}{float(off[worst]):12.4g} at {where:28}")
    accuracy = ACCURACY[operator]
    return f"{operator:14}{accuracy.cpu if device == 'cpu' else accuracy.gpu:8.3g} " + " ".join(texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", help="all by default")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--count", type=int, default=1_000_000, help="numbers of every size, and as many ordinary ones")
    options = parser.parse_args()
    target = devices.cpu_target() if options.device == "cpu" else devices.gpu_target()
    ours, theirs = (f"{'ordinary':>10}{'largest':>12} {'':31}" for _ in range(2))
    print(f"{target.name}, PyTorch {torch.__version__}; units in the last place")
    print(f"{'function':14}{'stated':>8} {ours} {theirs}".rstrip())
    for operator in options.functions or ACCURACY:
        print(line(operator, arguments(operator, options.count), target, options.device).rstrip(), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
