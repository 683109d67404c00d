"""Starts of convolutions that im2col descriptors load, each checked, then timed in turn with cuDNN. Needs compute 9.0.

python tests/figures/im2col.py [--only NAME ...] [--drawn 12] [--all]

Of every layer the kernels are those that a search begins with, and some drawn at random; with `--all` also those that
load by pointers, of any backend. Wrong ones are printed with what is wrong. No log is read or written: it takes a
minute or two.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.environment import environment
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import TrialData
from autosched.machine import devices
from autosched.machine.timing import interleaved, timer_for
from search_spaces import Schedule, Target, Workload
from tuning_logs.text import duration_text, table_lines

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from layers_of_convolution import CASES

from convolutions import convolution
from schedule_checks import fault

_ROUNDS = 20
_SHOWN = ("m", "n", "k", "specialize", "swap", "split", "grid", "ctas", "stages", "warps", "store")


def schedules(workload: Workload, target: Target, drawn: int, pointers: bool) -> list[Schedule]:
    """The starts with im2col descriptors and so many others; `pointers`: all starts."""
    space = spaces.build(workload, target)
    starts = [s for s in space.seeds() if pointers or is_window(s)]
    rng, found = np.random.default_rng(0), dict.fromkeys(starts)
    for _ in range(50 * drawn):
        if len(found) >= len(starts) + drawn:
            break
        if is_window(made := space.sample(rng)):
            found[made] = None
    return list(found)


def is_window(schedule: Schedule) -> bool:
    return "im2col" in (schedule.knobs.get("a_load"), schedule.knobs.get("b_load"))


def rows(name: str, drawn: int, pointers: bool) -> list[tuple[str, ...]]:
    """The fastest kernels of a layer, after cuDNN."""
    device, given = devices.resolve("cuda"), {"padding": 1, "dtype": "bfloat16", **CASES[name]}
    workload = convolution(kernel=(3, 3), **given)
    data = TrialData.drawn(workload, 0, torch.device("cuda"))
    right, wrong = {}, []
    for number, schedule in enumerate(schedules(workload, device, drawn, pointers)):
        backend = backends.named(schedule.backend)
        if reason := fault(schedule, data, device):
            wrong.append(reason)
            continue
        launcher = backend.load(build(schedule.program, schedule.one_line, device, backend), schedule.program)
        right[f"{number}"] = (schedule, launcher)
    x, w = random_inputs(workload, 0, torch.device("cuda"))
    image = x.permute(0, 3, 1, 2)
    weight = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    how = {k: given.get(k, usual) for k, usual in (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))}
    calls = {n: lambda launcher=launcher: launcher(data.operands) for n, (_, launcher) in right.items()}
    calls["cuDNN"] = lambda: F.conv2d(image, weight, **how)
    samples = interleaved(calls, _ROUNDS, timer_for(device, "cold", products=True))
    times = {n: statistics.median(s) for n, s in samples.items()}
    vendor = times.pop("cuDNN")
    print(
        f"{name}: {len(right)} right, {len(wrong)} wrong, cuDNN {duration_text(vendor)}", *wrong, sep="\n", flush=True
    )
    best = sorted(times, key=times.__getitem__)[:5]
    return [(name, duration_text(times[n]), f"{vendor / times[n]:.2f}", shown(right[n][0])) for n in best]


def shown(schedule: Schedule) -> str:
    return " ".join([schedule.backend, *(f"{k}={schedule.knobs.get(k)}" for k in _SHOWN)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--drawn", type=int, default=12)
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    found = [row for name in given.only for row in rows(name, given.drawn, given.all)]
    print(environment(devices.resolve("cuda")))
    print(*table_lines([("convolution", "time", "cuDNN / it", "schedule"), *found]), sep="\n")


if __name__ == "__main__":
    main()
