"""Convolutions written as workloads: tuned on a GPU, every trial checked, and then timed in turn with cuDNN.

python tests/figures/layers_of_convolution.py [--trials 48] [--log FILE] [--only NAME ...]

The table counts the trials by outcome: only `ok`, and failures to compile or to load, are allowed. cuDNN gets the same
tensors as channels last, its weights laid out as it likes them, and searches its algorithms first (`benchmark`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F

import autosched
from autosched.backends.environment import environment
from autosched.checking.random_inputs import random_inputs
from autosched.machine import devices
from autosched.machine.timing import interleaved, timer_for
from tuning_logs import TuningLog
from tuning_logs.intervals import paired_ratio
from tuning_logs.text import duration_text, table_lines

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from convolutions import convolution

_ROUNDS = 40
_ALLOWED = {"ok", "compile_error", "load_error", "slow"}
# Arguments of `convolution`: layers of ResNet-50, a stem, an odd size, groups and a dilated one.
CASES = {
    "64x56x56 3x3": {"size": (56, 56), "channels": 64, "filters": 64, "batch": 16},
    "128x28x28 3x3": {"size": (28, 28), "channels": 128, "filters": 128, "batch": 16},
    "256x14x14 3x3": {"size": (14, 14), "channels": 256, "filters": 256, "batch": 16},
    "512x7x7 3x3": {"size": (7, 7), "channels": 512, "filters": 512, "batch": 16},
    "128x56x56 3x3 / 2": {"size": (56, 56), "channels": 128, "filters": 128, "batch": 16, "stride": 2},
    "odd 75x33x35 3x3": {"size": (33, 35), "channels": 75, "filters": 90, "batch": 4},
    "groups 256x14x14": {"size": (14, 14), "channels": 256, "filters": 256, "batch": 16, "groups": 4},
    "dilated 256x28x28": {"size": (28, 28), "channels": 256, "filters": 256, "batch": 4, "dilation": 2, "padding": 2},
}


def row(name: str, trials: int, log: Path) -> tuple[str, ...]:
    device, given = devices.resolve("cuda"), {"padding": 1, "dtype": "bfloat16", **CASES[name]}
    workload = convolution(kernel=(3, 3), **given)
    autosched.tune(workload, device, trials, log=log)
    outcomes = Counter(r.measurement.status for r in TuningLog(log) if r.workload.key == workload.key)
    kernel = autosched.replay(workload, device, log=log)
    x, w = random_inputs(workload, 0, torch.device("cuda"))
    image = x.permute(0, 3, 1, 2)
    weight = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    how = {k: given.get(k, usual) for k, usual in (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))}
    calls = {"tuned": lambda: kernel(x, w), "cuDNN": lambda: F.conv2d(image, weight, **how)}
    samples = interleaved(calls, _ROUNDS, timer_for(device, "cold", products=True))
    times = (duration_text(statistics.median(samples[n])) for n in calls)
    wrong = {k: v for k, v in outcomes.items() if k not in _ALLOWED}
    ratio = f"{paired_ratio(samples['cuDNN'], samples['tuned']):.2f}"
    return (name, str(outcomes["ok"]), str(wrong or ""), *times, ratio, kernel.schedule.one_line[:150])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--log", type=Path, default=Path("convolutions.jsonl"))
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    rows = [("convolution", "ok", "wrong", "tuned", "cuDNN", "cuDNN / tuned", "schedule")]
    for name in given.only:
        rows.append(row(name, given.trials, given.log))
        print("  ".join(rows[-1]), flush=True)
    print(environment(devices.resolve("cuda")))
    print(*table_lines(rows), sep="\n")


if __name__ == "__main__":
    main()
