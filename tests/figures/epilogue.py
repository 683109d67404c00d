"""What an epilogue costs: fused kernels against the bare matmul where arithmetic bounds it, and against PyTorch eager.

python tests/figures/epilogue.py [--trials 300] [--log FILE]
python tests/figures/epilogue.py --smoke                        tiny products and few trials, on any device

Every product is tuned bare and with each epilogue; what the log knows is not measured again. All kernels of a product
and the fused operators as PyTorch runs them are then timed in turn, with cold caches. The last table has a row for each
epilogue: fused / bare is how many times longer the fused kernel takes (the goal is at most 1.05), fused is faster how
many times longer PyTorch takes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

import autosched
from autosched import Kernel, ops
from autosched.backends.environment import environment
from autosched.baselines.baselines import baseline, library_settings
from autosched.checking.random_inputs import empty, random_inputs
from autosched.machine import devices
from autosched.machine.timing import Run, interleaved, timer_for
from autosched.replaying.replay import why_wrong_now
from search_spaces import Workload
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.text import duration_text, ratio_text, table_lines

GOAL, ROUNDS = 1.05, 60
# m, n, k, dtype.
PRODUCTS = ((4096, 4096, 4096, "bfloat16"), (16384, 3072, 768, "float16"), (2048, 28672, 4096, "bfloat16"))
SMOKE = ((48, 64, 32, "bfloat16"), (33, 40, 72, "float16"))
# The epilogue and the type of the output, None for that of the operands; the bare product first.
EPILOGUES = (
    ("", None),
    ("bias", None),
    ("bias_gelu", None),
    ("bias_residual", None),
    ("rowscale_colscale", None),
    ("bias_relu", "float32"),
)
HEAD = ("matmul", "epilogue", "bare", "fused", "fused / bare", "PyTorch eager", "fused is faster")


def tuned(workload: Workload, trials: int, log: Path) -> Kernel:
    """The best kernel, sure to be right on fresh inputs."""
    result = autosched.tune(workload, trials=trials, log=log)
    print(f"{result}\n  {result.kernel.schedule.one_line}", flush=True)
    if wrong := why_wrong_now(result.kernel, seed=1):
        raise SystemExit(f"{workload.label}: wrong results: {wrong}")
    return result.kernel


def calls(kernel: Kernel, name: str) -> Iterator[tuple[str, Run]]:
    """The kernel, which writes to a given output, and the same by PyTorch eager, which allocates."""
    inputs = random_inputs(kernel.workload, 0, kernel.device)
    known = baseline(kernel.workload)
    assert known is not None
    yield name, partial(kernel, *inputs, out=empty(kernel.workload.outputs[0], kernel.device))
    yield f"eager {name}", partial(known.eager, *inputs)


def rows(product: tuple[int, int, int, str], trials: int, log: Path) -> Iterator[tuple[str, ...]]:
    """A row for every epilogue, all timed in one run."""
    m, n, k, dtype = product
    kernels = {}
    for epilogue, made in EPILOGUES:
        op = ops.matmul(m, n, k, dtype=dtype, layout="nt", epilogue=epilogue, out_dtype=made)
        kernels[f"{epilogue} to {made}" if made else epilogue] = tuned(op, trials, log)
    bare = kernels[""]
    timed = dict(call for name, kernel in kernels.items() for call in calls(kernel, name))
    with library_settings(bare.workload.precision, bare.target), torch.no_grad():
        seconds = interleaved(timed, ROUNDS, timer_for(bare.target, "cold", products=True))
    for name in kernels:
        fused, eager = seconds[name], seconds[f"eager {name}"]
        yield (
            bare.workload.label.removeprefix("matmul "),
            name or "none",
            *(duration_text(statistics.median(taken)) for taken in (seconds[""], fused)),
            ratio(fused, seconds[""]) if name else "",
            duration_text(statistics.median(eager)),
            ratio(eager, fused),
        )


def ratio(numerator: list[float], denominator: list[float]) -> str:
    return ratio_text(paired_ratio(numerator, denominator), ratio_interval(numerator, denominator))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--log", type=Path, default=Path("epilogues.jsonl"))
    parser.add_argument("--smoke", action="store_true", help="tiny products, eight trials each at most")
    arguments = parser.parse_args()
    products, trials = (SMOKE, min(arguments.trials, 8)) if arguments.smoke else (PRODUCTS, arguments.trials)
    table = [HEAD, *(row for product in products for row in rows(product, trials, arguments.log))]
    print("\n".join(table_lines(table, right=range(2, len(HEAD)))))
    print(f"fused / bare: at most {GOAL} is the goal; medians of {ROUNDS} rounds, 95 % intervals, cold caches")
    print(", ".join(f"{name} {version}" for name, version in environment(devices.detect())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
