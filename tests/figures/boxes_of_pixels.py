"""Convolutions by boxes of pixels and by ranges: the fastest start of each family of kernels, on a Hopper GPU.

python tests/figures/boxes_of_pixels.py [--only NAME ...] [--rounds 20] [--most 12]

Families: pointers (ranges of pixels, Triton), descriptors (boxes, Triton), and specialised kernels with boxes, in Gluon
and in CUDA C++. Every kernel is checked first; all are then timed in turn, with cuDNN's fastest algorithm.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F

from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.environment import environment
from autosched.checking.trial_data import TrialData
from autosched.machine import devices
from autosched.machine.timing import interleaved, timer_for
from search_spaces import Schedule, Target, Workload
from tuning_logs.text import duration_text, table_lines

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from layers_of_convolution import CASES

from convolutions import convolution
from schedule_checks import fault

FAMILIES = {
    "pointers": ("triton", {"specialize": "none", "a_load": "pointer"}),
    "descriptors": ("triton", {"specialize": "none", "a_load": "descriptor"}),
    "Gluon": ("triton", {"specialize": "any"}),
    "CUDA C++": ("cuda", {"specialize": "any"}),
}


def starts(workload: Workload, target: Target, family: str) -> Iterator[Schedule]:
    """The starting points of a family of kernels."""
    backend, wanted = FAMILIES[family]
    space = spaces.build(workload, target, [backends.named(backend)]).restricted("contraction")
    for schedule in space.seeds():
        kind = schedule.knobs["specialize"]
        own = (kind != "none") == (wanted["specialize"] == "any")
        if own and all(schedule.knobs[k] == v for k, v in wanted.items() if k != "specialize"):
            yield schedule


def rows(name: str, rounds: int, most: int) -> Iterator[tuple[str, ...]]:
    target, given = devices.resolve("cuda"), {"padding": 1, "dtype": "bfloat16", **CASES[name]}
    workload = convolution(kernel=(3, 3), **given)
    data = TrialData.drawn(workload, 0, torch.device("cuda"))
    image, weight = data.operands[0].permute(0, 3, 1, 2), data.operands[1].permute(3, 2, 0, 1)
    weight = weight.contiguous(memory_format=torch.channels_last)
    how = {k: given.get(k, usual) for k, usual in (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))}
    calls, made = {"cuDNN": lambda: F.conv2d(image, weight, **how)}, {}
    for family in FAMILIES:
        for number, schedule in enumerate(itertools.islice(starts(workload, target, family), most)):
            if reason := fault(schedule, data, target):
                print("not timed:", reason, flush=True)
                continue
            backend = backends.named(schedule.backend)
            launcher = backend.load(build(schedule.program, "", target, backend), schedule.program)
            made[f"{family} {number}"] = schedule
            calls[f"{family} {number}"] = lambda launcher=launcher: launcher(data.operands)
    samples = {x: statistics.median(s) for x, s in interleaved(calls, rounds, timer_for(target, "cold")).items()}
    for family in FAMILIES:
        found = sorted((samples[x], x) for x in made if x.startswith(family))
        if found:
            best, x = found[0]
            ratio = f"{samples['cuDNN'] / best:.2f}"
            yield (name, family, str(len(found)), duration_text(best), ratio, made[x].one_line)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--most", type=int, default=12)
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    table = [("convolution", "family", "starts", "fastest", "cuDNN / it", "schedule")]
    for name in given.only:
        for row in rows(name, given.rounds, given.most):
            table.append(row)
            print("  ".join(row), flush=True)
    print(environment(devices.resolve("cuda")))
    print(*table_lines(table), sep="\n")


if __name__ == "__main__":
    main()
