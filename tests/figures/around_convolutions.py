"""Convolutions with work before and behind them, in one kernel and in several, and PyTorch eager, timed in turn.

python tests/figures/around_convolutions.py [--trials 64] [--only REGEX] [--log FILE]
python tests/figures/around_convolutions.py --smoke                  tiny images and few trials, on any device

Every way in which a function is cut is tuned by so many trials a kernel; the last table has a row for each function,
with a column for each number of kernels. Convolutions of float16 and channels last.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from norms_of_products import ROUNDS, medians
from torch import Tensor

from autosched.backends.environment import environment
from autosched.machine import devices
from tuning_logs.text import duration_text, table_lines

Layer = tuple[Callable[..., Tensor], tuple[Tensor, ...]]
_COUNTS = ("1 kernels", "2 kernels", "3 kernels")


def drawn(*shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    """A tensor of these numbers of images, channels, rows and columns on the device that is here, channels last."""
    device = "cuda" if devices.detect().kind == "gpu" else "cpu"
    made = torch.randn(shape, device=device)
    made = made.mul(99).to(torch.uint8) if dtype == torch.uint8 else made.to(dtype)
    return made.to(memory_format=torch.channels_last) if len(shape) == 4 else made


def activated(x: Tensor, mean: Tensor, var: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, var.abs() + 0.5, gain, shift))


def layers(n: int, scale: int) -> Iterator[tuple[str, Layer]]:
    """Layers of `n` images, whose sides are divided by `scale`, by name."""

    def image(channels: int, side: int, **options: Any) -> Tensor:
        return drawn(n, channels, side // scale, side // scale, **options)

    def norm(channels: int) -> list[Tensor]:
        return [drawn(channels) for _ in range(4)]

    def pointwise(x: Tensor, w: Tensor, *norms: Tensor) -> Tensor:
        return F.conv2d(activated(x, *norms), w)

    def dense(x: Tensor, w: Tensor, *norms: Tensor) -> Tensor:
        return F.conv2d(activated(x, *norms), w, padding=1)

    def each(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(F.silu(x), w, padding=1, groups=x.shape[1])

    def excited(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
        return F.conv2d(x * s.sigmoid()[:, :, None, None], w)

    def stem(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x.half(), w, stride=2, padding=3)

    def grown(x: Tensor, w: Tensor) -> Tensor:
        return torch.cat((x, F.conv2d(x, w, padding=1)), 1)

    def branches(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return torch.cat((F.relu(F.conv2d(x, w)), F.relu(F.conv2d(x, v, padding=1))), 1)

    yield "norm, relu, 1x1", (pointwise, (image(256, 28), drawn(128, 256, 1, 1), *norm(256)))
    yield "norm, relu, 3x3", (dense, (image(64, 56), drawn(64, 64, 3, 3), *norm(64)))
    yield "silu, depthwise 3x3", (each, (image(144, 56), drawn(144, 1, 3, 3)))
    yield "excited, 1x1", (excited, (image(480, 14), drawn(112, 480, 1, 1), drawn(n, 480)))
    yield "uint8, 7x7/2", (stem, (image(3, 224, dtype=torch.uint8), drawn(64, 3, 7, 7)))
    yield "cat of x and 3x3", (grown, (image(128, 28), drawn(32, 128, 3, 3)))
    yield "cat of 1x1 and 3x3", (branches, (image(192, 28), drawn(64, 192, 1, 1), drawn(128, 192, 3, 3)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--only", default="", help="of names that match")
    parser.add_argument("--log", type=Path, default=Path("around_convolutions.jsonl"))
    parser.add_argument("--smoke", action="store_true", help="tiny images, four trials a kernel")
    given = parser.parse_args()
    table = [("function", *_COUNTS, "eager")]
    for name, (function, inputs) in layers(*((2, 7) if given.smoke else (32, 1))):
        if re.search(given.only, name):
            found = medians(function, inputs, 4 if given.smoke else given.trials, given.log)
            table.append((name, *(duration_text(found[c]) if c in found else "" for c in table[0][1:])))
    print("\n".join(table_lines(table, right=range(1, 5))))
    print(f"float16, channels last, medians of {ROUNDS} rounds, cold caches")
    print(", ".join(f"{name} {version}" for name, version in environment(devices.detect())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
