"""Depthwise convolutions written as workloads: tuned, every trial checked, and timed in turn with PyTorch's library.

python tests/figures/windows.py [--device cuda] [--trials 64] [--log FILE] [--only NAME ...]
python tests/figures/windows.py --device cpu              float32, batch 1, one thread, against oneDNN
python tests/figures/windows.py --every                  also every trial with its least time

The library is cuDNN or oneDNN: the fastest of both memory formats, and of `torch.backends.cudnn.benchmark` on and off.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F

import autosched
from autosched.backends.environment import environment
from autosched.checking.random_inputs import random_inputs
from autosched.machine import devices
from autosched.machine.timing import interleaved, timer_for
from search_spaces import Target, Workload
from tuning_logs import TuningLog
from tuning_logs.text import duration_text, table_lines

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from convolutions import convolution

_ROUNDS = 60
_ALLOWED = {"ok", "compile_error", "load_error", "slow"}
# Layers of mobile networks, a large kernel, a volume and short causal ones. Batches of 32 on a GPU, and of 1 on a CPU.
CASES: Mapping[str, Mapping[str, object]] = {
    "144x56x56 3x3": {"size": (56, 56), "kernel": (3, 3), "channels": 144, "padding": 1},
    "144x56x56 3x3 first": {"size": (56, 56), "kernel": (3, 3), "channels": 144, "padding": 1, "layout": "nchw"},
    "384x14x14 3x3": {"size": (14, 14), "kernel": (3, 3), "channels": 384, "padding": 1},
    "240x28x28 5x5 / 2": {"size": (28, 28), "kernel": (5, 5), "channels": 240, "padding": 2, "stride": 2},
    "672x14x14 5x5": {"size": (14, 14), "kernel": (5, 5), "channels": 672, "padding": 2},
    "96x56x56 7x7": {"size": (56, 56), "kernel": (7, 7), "channels": 96, "padding": 3},
    "960x7x7 3x3": {"size": (7, 7), "kernel": (3, 3), "channels": 960, "padding": 1},
    "64x28x28 31x31": {"size": (28, 28), "kernel": (31, 31), "channels": 64, "padding": 15},
    "32x112x112 3x3 to 64": {"size": (112, 112), "kernel": (3, 3), "channels": 32, "filters": 64, "padding": 1},
    "2048x4096 4": {"size": (4096,), "kernel": (4,), "channels": 2048, "padding": 3, "batch": 1},
    "2048x4096 4 first": {
        "size": (4096,),
        "kernel": (4,),
        "channels": 2048,
        "padding": 3,
        "batch": 1,
        "layout": "nchw",
    },
    "64x16x28x28 3x3x3": {"size": (16, 28, 28), "kernel": (3, 3, 3), "channels": 64, "padding": 1},
}


def workload_of(name: str, gpu: bool) -> Workload:
    """The workload of a case, with a group for each channel."""
    usual = {"batch": 32, "dtype": "float16"} if gpu else {"batch": 1, "dtype": "float32"}
    given = {**usual, "filters": CASES[name]["channels"], "groups": CASES[name]["channels"], **CASES[name]}
    return convolution(**given)  # type: ignore[arg-type]


def library(name: str, inputs: Sequence[torch.Tensor]) -> dict[str, Callable[[], torch.Tensor]]:
    """Calls of the library's convolution on the same values, by the memory format and its search of algorithms."""
    case, (x, w) = CASES[name], inputs
    if case.get("layout") != "nchw":
        x, w = x.movedim(-1, 1), w.movedim((-1, -2), (0, 1))
    function = (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3]
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim(), torch.contiguous_format)
    how = {key: case[key] for key in ("padding", "stride", "dilation") if key in case}

    def call(form: torch.memory_format, benchmark: bool) -> Callable[[], torch.Tensor]:
        image, weight = (t.contiguous(memory_format=form) for t in (x, w))

        def run() -> torch.Tensor:
            torch.backends.cudnn.benchmark = benchmark
            return function(image, weight, groups=image.shape[1], **how)

        return run

    forms = dict.fromkeys((last, torch.contiguous_format))
    return {
        f"{form} {found}": call(form, found) for form in forms for found in ((False, True) if x.is_cuda else (False,))
    }


def row(name: str, device: Target, trials: int, log: Path, every: bool) -> tuple[str, ...]:
    """Tune and compare; the cells of a table."""
    workload = workload_of(name, device.kind == "gpu")
    autosched.tune(workload, device, trials, log=log)
    records = [r for r in TuningLog(log) if r.workload.key == workload.key]
    outcomes = Counter(r.measurement.status for r in records)
    for r in records if every else ():
        latencies = r.measurement.latencies_s
        print(" ", duration_text(min(latencies)) if latencies else r.measurement.status, r.schedule.one_line)
    kernel = autosched.replay(workload, device, log=log)
    inputs = random_inputs(workload, 0, torch.device("cuda" if device.kind == "gpu" else "cpu"))
    others = library(name, inputs)
    calls = {"tuned": lambda: kernel(*inputs), **others}
    with torch.no_grad():
        samples = interleaved(calls, _ROUNDS, timer_for(device, "cold", products=True))
    # On a CPU that others use as well, the least is what was not disturbed.
    typical = statistics.median if device.kind == "gpu" else min
    taken = {n: typical(s) for n, s in samples.items()}
    best = min(others, key=taken.__getitem__)
    wrong = {k: v for k, v in outcomes.items() if k not in _ALLOWED}
    times = duration_text(taken["tuned"]), duration_text(taken[best])
    ratio = f"{taken[best] / taken['tuned']:.2f}"
    return (name, str(outcomes["ok"]), str(wrong or ""), *times, ratio, best, kernel.schedule.one_line[:160])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--log", type=Path, default=Path("windows.jsonl"))
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--every", action="store_true", help="list every trial")
    given = parser.parse_args()
    device = devices.resolve("cuda") if given.device == "cuda" else autosched.cpu_target(1)
    if given.device == "cpu":
        torch.set_num_threads(1)
    rows = [("convolution", "ok", "wrong", "tuned", "library", "library / tuned", "its fastest", "schedule")]
    for name in given.only:
        rows.append(row(name, device, given.trials, given.log, given.every))
        print("  ".join(rows[-1]), flush=True)
    print(environment(device))
    print(*table_lines(rows), sep="\n")


if __name__ == "__main__":
    main()
