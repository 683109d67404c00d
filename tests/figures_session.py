"""What it takes to tune one kernel after another in one process: thirteen of them, and each one's first trial.

python tests/figures_session.py [--trials 24] [--target cpu] [--policy cold]

Twelve PyTorch functions, thirteen kernels, with a log of their own. Per function: how long `trace` and `tune` took; and
of every kernel, how long after `tune` was called its first trial had ended, and its finals began.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

import autosched
from autosched import Progress
from autosched.machine import devices

Function = Callable[..., torch.Tensor]


def _rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), w)


def _ffn(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    return F.linear(F.gelu(F.linear(x, w1), approximate="tanh"), w2)


def functions(rows: int, columns: int) -> Mapping[str, tuple[Function, list[tuple[int, ...]]]]:
    """Functions of matrices of that size, and the shapes of their arguments."""
    x, w, v = (rows, columns), (columns, columns), (columns,)
    return {
        "gelu_scale": (lambda x: F.gelu(x) * 2.0, [x]),
        "swiglu": (lambda a, b: F.silu(a) * b, [x, x]),
        "softmax": (lambda x: torch.softmax(x, -1), [x]),
        "rms_norm": (_rms_norm, [x, v]),
        "add_rms_norm": (lambda x, r, w: _rms_norm(x + r, w), [x, x, v]),
        "layer_norm": (lambda x, w, b: F.layer_norm(x, (columns,), w, b), [x, v, v]),
        "row_mean_square": (lambda x: (x**2).mean(-1), [x]),
        "column_sum": (lambda x: x.sum(0), [x]),
        "linear": (F.linear, [x, w]),
        "linear_gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), [x, w, v]),
        "linear_residual": (lambda x, w, r: F.linear(x, w) + r, [x, w, x]),
        "ffn": (_ffn, [x, (4 * columns, columns), (columns, 4 * columns)]),
    }


class _Clock:
    """Takes the time at which the first trial of every workload ended, and at which its finals began."""

    def __init__(self) -> None:
        self.first_s: dict[str, float] = {}
        self.finals_s: dict[str, float] = {}

    def __call__(self, progress: Progress) -> None:
        if progress.trials > progress.known_before:
            self.first_s.setdefault(progress.label, time.perf_counter())
        if progress.phase == "finals":
            self.finals_s.setdefault(progress.label, time.perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--target", default=None)
    parser.add_argument("--policy", default="cold")
    asked = parser.parse_args()
    device = devices.resolve(asked.target)
    place = {"cpu": "cpu", "gpu": "cuda"}[device.kind]
    dtype = torch.float32 if place == "cpu" else torch.bfloat16
    kernels = 0
    print("| function | kernels | trace s | tune s | first trial s | finals s |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for name, (function, shapes) in functions(*((256, 512) if place == "cpu" else (4096, 1024))).items():
            arguments = [torch.randn(shape, device=place).to(dtype) for shape in shapes]
            before, clock = time.perf_counter(), _Clock()
            traced = autosched.trace(function, *arguments)
            start = time.perf_counter()
            tune = partial(autosched.tune, trials=asked.trials, log=Path(folder) / "log.jsonl", policy=asked.policy)
            tune(traced, asked.target, on_progress=clock)
            firsts, finals = (
                ", ".join(f"{at - start:.2f}" for at in taken.values()) for taken in (clock.first_s, clock.finals_s)
            )
            spent = f"{start - before:.1f} | {time.perf_counter() - start:.1f}"
            print(f"| {name} | {len(clock.first_s)} | {spent} | {firsts} | {finals} |", flush=True)
            kernels += len(clock.first_s)
        total = time.perf_counter() - begin
    versions = f"torch {torch.__version__}, triton {importlib.metadata.version('triton')}"
    print(f"\n{kernels} kernels, {asked.trials} trials each: {total:.1f} s on {device.device}; {versions}")


if __name__ == "__main__":
    main()
