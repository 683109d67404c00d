"""A softmax or layer norm of a product's rows: in one kernel and in two, beside PyTorch eager, all timed in turn.

python tests/figures/norms_of_products.py [--trials 32] [--log FILE]
python tests/figures/norms_of_products.py --smoke                      a tiny product and few trials, on any device

Every way in which the function is cut is tuned by so many trials a kernel; the last table has a row for each function.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched.backends.environment import environment
from autosched.machine import devices
from autosched.machine.timing import Run, interleaved, timer_for
from autosched.tracing.callables.traced import cuts_of
from tuning_logs.text import duration_text, table_lines

ROUNDS = 60
# Rows, columns, k: tiles that hold whole rows, which as few as 128 columns leave large, and 1024 do not.
PRODUCTS = ((8192, 128, 512), (4096, 256, 1024), (4096, 1024, 4096))
SMOKE = ((32, 16, 24),)


def softmax(x: Tensor, weight: Tensor) -> Tensor:
    return torch.softmax(x @ weight, -1)


def layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    product = x @ weight
    return F.layer_norm(product, (product.shape[-1],))


FUNCTIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"softmax": softmax, "layer norm": layer_norm}


def medians(
    function: Callable[[Tensor, Tensor], Tensor], inputs: tuple[Tensor, ...], trials: int, log: Path
) -> Mapping[str, float]:
    """Seconds of PyTorch eager, and of every cut by its number of kernels."""
    target = devices.detect()
    runs: dict[str, Run] = {"eager": partial(function, *inputs)}
    for cut in cuts_of(autosched.trace(function, *inputs).for_target(target)):
        result = autosched.tune(cut, target, trials=trials, log=log)
        print(result, flush=True)
        runs[f"{len(cut.launched)} kernels"] = partial(result.kernel, *inputs)
    seconds = interleaved(runs, ROUNDS, timer_for(target, "cold"))
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--log", type=Path, default=Path("norms_of_products.jsonl"))
    parser.add_argument("--smoke", action="store_true", help="a tiny product, four trials a kernel")
    arguments = parser.parse_args()
    products, trials = (SMOKE, 4) if arguments.smoke else (PRODUCTS, arguments.trials)
    device = "cuda" if devices.detect().kind == "gpu" else "cpu"
    table = [("function", "rows × columns, k", "1 kernels", "2 kernels", "eager")]
    for rows, columns, k in products:
        inputs = tuple(torch.randn(shape, device=device).to(torch.bfloat16) for shape in ((rows, k), (k, columns)))
        for name, function in FUNCTIONS.items():
            found = medians(function, inputs, trials, arguments.log)
            cells = (duration_text(found[c]) if c in found else "" for c in table[0][2:])
            table.append((name, f"{rows} × {columns}, {k}", *cells))
    print("\n".join(table_lines(table, right=range(2, 5))))
    print(f"bfloat16, medians of {ROUNDS} rounds, cold caches")
    print(", ".join(f"{name} {version}" for name, version in environment(devices.detect())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
