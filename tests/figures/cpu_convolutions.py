"""Convolutions on a CPU, of batch 1 in float32: tuned, checked, and timed in turn with oneDNN in both memory formats.

python tests/figures/cpu_convolutions.py [--only NAME ...] [--trials 64] [--threads 1] [--rounds 40] [--log FILE]
                                         [--all]         more layers, too
                                         [--policy hot]  with operands in the caches, as activations of a network are

Images and weights lie in memory as PyTorch has them: channels last, or first. oneDNN gets tensors in either format,
already converted; the better one counts. Ratios are those of the rounds in the median and of the fastest calls, which
count on a machine that others use. The last line has their geometric means.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched.baselines.baselines import library_settings
from autosched.checking.random_inputs import random_inputs
from autosched.machine.policies import POLICIES
from autosched.machine.timing import interleaved, timer_for
from search_spaces import Target, Workload
from tuning_logs import TuningLog
from tuning_logs.intervals import paired_ratio
from tuning_logs.text import duration_text, table_lines

sys.path.extend(map(str, Path(__file__).parents[1].glob("support/*")))
from convolutions import convolution


@dataclass(frozen=True)
class Layer:
    """A convolution of square images: channels, size, filters, taps along each side."""

    channels: int
    size: int
    filters: int
    taps: int
    stride: int = 1
    padding: int = 0
    groups: int = 1
    dilation: int = 1
    layout: str = "nhwc"

    @property
    def workload(self) -> Workload:
        """The convolution, its weights as PyTorch lays them out: filters first, then as the image is."""
        given = convolution(
            (self.size, self.size),
            (self.taps, self.taps),
            self.channels,
            self.filters,
            stride=self.stride,
            padding=self.padding,
            groups=self.groups,
            dilation=self.dilation,
            layout=self.layout,
            dtype="float32",
        )
        x, w = given.inputs
        if self.layout == "nchw":
            return given
        c, t = self.channels // self.groups, self.taps
        return replace(given, inputs=(x, replace(w, strides=(t * c, c, 1, t * t * c))))


# Layers of timm's models and of ResNet-50, by what they ask of a kernel.
LAYERS = {
    "1x1 128x56": Layer(128, 56, 128, 1),
    "1x1 2048x12": Layer(2048, 12, 2048, 1),
    "1x1/2 512x32": Layer(512, 32, 1024, 1, stride=2),
    "3x3 64x56": Layer(64, 56, 64, 3, padding=1),
    "3x3 128x28": Layer(128, 28, 128, 3, padding=1),
    "3x3 256x14 first": Layer(256, 14, 256, 3, padding=1, layout="nchw"),
    "3x3 512x7": Layer(512, 7, 512, 3, padding=1),
    "3x3 166x28": Layer(166, 28, 166, 3, padding=1),
    "3x3/2 160x56": Layer(160, 56, 320, 3, stride=2, padding=1),
    "stem 7x7/2": Layer(3, 224, 64, 7, stride=2, padding=3),
    "stem 4x4/4": Layer(3, 224, 96, 4, stride=4),
    "groups 560x14": Layer(560, 14, 560, 3, padding=1, groups=14),
}
MORE = {
    "1x1 64x56": Layer(64, 56, 256, 1),
    "1x1 640x14": Layer(640, 14, 2560, 1),
    "3x3 256x14": Layer(256, 14, 256, 3, padding=1),
    "3x3 32x112 first": Layer(32, 112, 64, 3, padding=1, layout="nchw"),
    "3x3 384x7": Layer(384, 7, 384, 3, padding=1),
    "3x3 dilated 64x28": Layer(64, 28, 128, 3, padding=2, dilation=2),
    "stem 16x16/16": Layer(3, 224, 384, 16, stride=16),
    "groups 4 256x28": Layer(256, 28, 256, 3, padding=1, groups=4),
    "groups 32 1024x14": Layer(1024, 14, 1024, 3, padding=1, groups=32),
    "2x2/2 384x56": Layer(384, 56, 768, 2, stride=2),
}


def inputs_of(layer: Layer) -> tuple[list[Tensor], dict[str, tuple[Tensor, Tensor]]]:
    """Tensors for the kernel, and image and weight for PyTorch in either memory format."""
    x, w = random_inputs(layer.workload, 0, torch.device("cpu"))
    image, weight = (x, w) if layer.layout == "nchw" else (x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1))
    formats = {"last": torch.channels_last, "first": torch.contiguous_format}
    made = {n: (image.contiguous(memory_format=f), weight.contiguous(memory_format=f)) for n, f in formats.items()}
    return [x, w], made


def row(name: str, layer: Layer, target: Target, given: argparse.Namespace, log: Path) -> tuple[str, ...]:
    workload = layer.workload
    autosched.tune(workload, target, given.trials, log=log, policy=given.policy)
    outcomes = [r.measurement.status for r in TuningLog(log) if r.workload.key == workload.key]
    kernel = autosched.replay(workload, target, log=log)
    tensors, formats = inputs_of(layer)
    how = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}
    out = kernel(*tensors)
    wanted = F.conv2d(*(t.double() for t in formats["first"]), **how)
    got = out if layer.layout == "nchw" else out.flatten(-2).permute(0, 3, 1, 2)
    torch.testing.assert_close(got.reshape(wanted.shape).double(), wanted, rtol=1e-3, atol=1e-3)
    runs = {"tuned": lambda: kernel(*tensors), "last": lambda: F.conv2d(*formats["last"], **how)}
    runs["first"] = lambda: F.conv2d(*formats["first"], **how)
    with library_settings("ieee", target), torch.no_grad():
        samples = interleaved(runs, given.rounds, timer_for(target, given.policy, products=True))
    best = min(("last", "first"), key=lambda n: statistics.median(samples[n]))
    times = [duration_text(statistics.median(samples[n])) for n in runs]
    ratio = paired_ratio(samples[best], samples["tuned"])
    least = min(min(samples[n]) for n in ("last", "first")) / min(samples["tuned"])
    wrong = {s for s in outcomes if s not in ("ok", "slow")}
    done = f"{outcomes.count('ok')}", f"{wrong or ''}"
    return (name, *done, *times, f"{ratio:.3f}", f"{least:.3f}", kernel.schedule.one_line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = {**LAYERS, **MORE}
    parser.add_argument("--only", nargs="*", choices=every, default=list(LAYERS))
    parser.add_argument("--all", action="store_true", help="more layers, too")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--policy", choices=POLICIES, default="cold")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    target = autosched.cpu_target(given.threads)
    rows = [("convolution", "ok", "failed", "tuned", "oneDNN last", "first", "oneDNN / tuned", "fastest", "schedule")]
    with tempfile.TemporaryDirectory() as folder:
        for name in every if given.all else given.only:
            rows.append(row(name, every[name], target, given, given.log or Path(folder) / "log.jsonl"))
            print("  ".join(rows[-1]), flush=True)
    print(*table_lines(rows), sep="\n")
    for number, kind in ((-3, "rounds"), (-2, "fastest calls")):
        ratios = [float(r[number]) for r in rows[1:]]
        print(
            f"{kind}: geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.3f}, least {min(ratios):.3f}"
        )


if __name__ == "__main__":
    main()
