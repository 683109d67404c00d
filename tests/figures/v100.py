"""What kernels for a V100 do on the GPU that is here: memory-bound functions against separate kernels, and products.

python tests/figures/v100.py [--trials 24] [--log FOLDER]
python tests/figures/v100.py --smoke                        tiny sizes and few trials, on a CPU

The code is that of compute capability 7.0 as PTX, which the driver compiles for the device that is here. Every function
is tuned in it, and in Triton for the device itself, and timed in turn with PyTorch, as separate kernels and by its own
call, with cold caches. Products are tuned in code of sm_70 and of sm_80, against cuBLAS. Rows above 1: the kernel of
sm_70 is faster.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched import Kernel, ops
from autosched.backends.environment import environment
from autosched.baselines.baselines import baseline, library_settings
from autosched.checking.random_inputs import empty, random_inputs
from autosched.machine import devices
from autosched.machine.timing import Run, interleaved, timer_for
from search_spaces import Target, Workload
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.text import duration_text, ratio_text, table_lines

sys.path.append(str(Path(__file__).parents[1]))
from figures.cuda_kernels import here_as

ROUNDS = 40
VOLTA, AMPERE = 70, 80
# Of cuBLAS on the device that is here, and of the same functions in Triton for it.
PRODUCT_GOALS = {VOLTA: 0.45, AMPERE: 0.6}
TRITON_GOAL = 0.97
FUNCTION_HEAD = ("function", "sm_70", "Triton", "Triton / sm_70", "separate / sm_70", "PyTorch's call / sm_70")
PRODUCT_HEAD = ("product", "code", "tuned", "cuBLAS", "cuBLAS / tuned", "goal")


@dataclass(frozen=True)
class Function:
    """A workload, and the same by PyTorch: a kernel for every operation, and the call that it has for all of it."""

    workload: Workload
    separate: Callable[..., Tensor]
    call: Callable[..., Tensor] | None = None


def gelu_scale(x: Tensor) -> Tensor:
    return F.gelu(x) * 2.0


def softmax(x: Tensor) -> Tensor:
    e = torch.exp(x)
    return e / torch.sum(e, -1, keepdim=True)


def layernorm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + 1e-5) * weight + bias


def functions(smoke: bool) -> list[Function]:
    sizes, square, rows = ((2**10,), 64, 48) if smoke else ((2**24, 2**22, 2**20), 4096, 16384)
    softmax_call = partial(F.softmax, dim=-1)
    return [
        *(Function(ops.gelu_scale(size), gelu_scale) for size in sizes),
        Function(ops.softmax(square, square), softmax, softmax_call),
        *(
            Function(
                ops.layernorm(rows, 768, dtype=dtype), layernorm, lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b)
            )
            for dtype in ("float32", "float16")
        ),
    ]


def matmuls(smoke: bool) -> list[Workload]:
    size, dtype = (64, "float32") if smoke else (4096, "float16")
    return [ops.matmul(size, size, size, dtype=dtype, layout=layout) for layout in ("nt", "nn")]


def target(capability: int | None, smoke: bool) -> Target:
    """What is here, for code of this compute capability; None: for its own."""
    if smoke:
        return devices.cpu_target()
    return devices.gpu_target() if capability is None else here_as(capability)


def tuned(workload: Workload, device: Target, backend: str | None, trials: int, logs: Path) -> Kernel:
    """The best kernel. A log for every target: records are filed by the device, which is always the same."""
    result = autosched.tune(workload, device, trials, backend=backend, log=logs / f"{device.name}_{backend}.jsonl")
    print(f"  {device.name}: {result}\n  {result.kernel.schedule.one_line}", flush=True)
    return result.kernel


def timed(runs: Mapping[str, Run], device: Target, products: bool) -> dict[str, list[float]]:
    with library_settings("ieee", device), torch.no_grad():
        return interleaved(runs, ROUNDS, timer_for(device, "cold", products=products))


def into(kernel: Kernel, inputs: Sequence[Tensor]) -> Run:
    """A call that writes to an output of its own."""
    return partial(kernel, *inputs, out=empty(kernel.workload.outputs[0], kernel.device))


def function_figures(function: Function, trials: int, smoke: bool, logs: Path) -> dict[str, list[float]]:
    """Seconds of every way to compute it, by name."""
    made = {"sm_70": (VOLTA, "cuda"), "Triton": (None, "triton")}
    kernels = {
        name: tuned(function.workload, target(capability, smoke), None if smoke else backend, trials, logs)
        for name, (capability, backend) in made.items()
    }
    inputs = random_inputs(function.workload, 0, kernels["sm_70"].device)
    runs = {name: into(kernel, inputs) for name, kernel in kernels.items()}
    runs |= {"separate": partial(function.separate, *inputs)}
    runs |= {"call": partial(function.call, *inputs)} if function.call else {}
    return timed(runs, target(None, smoke), products=False)


def product_rows(workload: Workload, trials: int, smoke: bool, logs: Path) -> Iterator[tuple[str, ...]]:
    """A row for every kind of code, all timed in one run with the library."""
    kernels = {c: tuned(workload, target(c, smoke), None if smoke else "cuda", trials, logs) for c in PRODUCT_GOALS}
    known, some = baseline(workload), kernels[VOLTA]
    assert known is not None
    assert known.library is not None
    inputs, out = random_inputs(workload, 0, some.device), empty(workload.outputs[0], some.device)
    runs: dict[str, Run] = {f"sm_{c}": into(kernel, inputs) for c, kernel in kernels.items()}
    seconds = timed(runs | {"library": partial(known.library, inputs, out)}, target(None, smoke), products=True)
    for capability, goal in PRODUCT_GOALS.items():
        own = seconds[f"sm_{capability}"]
        yield (
            workload.label,
            f"sm_{capability}",
            middle(own),
            middle(seconds["library"]),
            ratio(seconds["library"], own),
            f"{goal}",
        )


def middle(seconds: Sequence[float]) -> str:
    return duration_text(statistics.median(seconds))


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> str:
    return ratio_text(paired_ratio(numerator, denominator), ratio_interval(numerator, denominator))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--log", type=Path, help="a folder, by default a new one")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, six trials each at most")
    arguments = parser.parse_args()
    smoke, trials = arguments.smoke, min(arguments.trials, 6) if arguments.smoke else arguments.trials
    logs = arguments.log or Path(mkdtemp())
    table: list[tuple[str, ...]] = [FUNCTION_HEAD]
    against_triton = []
    for function in functions(smoke):
        seconds = function_figures(function, trials, smoke, logs)
        own = seconds["sm_70"]
        against_triton.append(paired_ratio(seconds["Triton"], own))
        others = (ratio(seconds[name], own) if name in seconds else "" for name in ("Triton", "separate", "call"))
        table.append((function.workload.label, middle(own), middle(seconds["Triton"]), *others))
        print(*table[-1], flush=True)
    products: list[tuple[str, ...]] = [PRODUCT_HEAD]
    for op in matmuls(smoke):
        products += product_rows(op, 2 * trials, smoke, logs)
    for rows in (table, products):
        print("\n".join(table_lines(rows, right=range(1, len(rows[0])))))
    mean = math.exp(statistics.mean(map(math.log, against_triton)))
    print(f"Triton / sm_70: geometric mean {mean:.2f}, least {min(against_triton):.2f}; {TRITON_GOAL} is the goal")
    print(f"taken on {target(None, smoke).label}, none of it on a V100; {trials} trials a function, {ROUNDS} rounds")
    print(", ".join(f"{name} {version}" for name, version in environment(target(None, smoke))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
