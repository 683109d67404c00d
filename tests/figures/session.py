"""What it takes to tune one kernel after another in one process: thirteen of them, and each one's first trial.

python tests/figures/session.py [--trials 24] [--target cpu] [--policy cold] [--steps]

Twelve PyTorch functions, thirteen kernels, with a log of their own. Per function: how long `trace` and `tune` took; and
of every kernel, how long after `tune` was called its first trial had ended, and its finals began.

With --steps also, for the first kernel of every function, how many seconds after `tune` was called each step on the way
to the first trial ended; and what that trial took, from its record. Compiling and setting up inputs go on at once.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

import autosched
from autosched import Progress
from autosched.machine import devices
from autosched.measuring import LocalMeasurer
from autosched.measuring.local.compile_pool import CompilePool
from autosched.measuring.local.trial_runner import TrialRunner
from autosched.strategies.evolutionary import Evolutionary
from autosched.tracing.callables.function import TracedFunction
from autosched.tuning import tuner
from tuning_logs import TuningLog, TuningRecord

Function = Callable[..., torch.Tensor]

# What ends each step on the way to the first trial, in the order in which they begin.
STEPS: tuple[tuple[str, object, str], ...] = (
    ("cut", TracedFunction, "for_target"),
    ("log read", tuner, "prepare"),
    ("measurer there", tuner, "local_measurer"),
    ("history read", tuner, "history"),
    ("proposed", Evolutionary, "ask"),
    ("submitted", LocalMeasurer, "submit"),
    ("one compiled", CompilePool, "step"),
    ("inputs set up and one begun", TrialRunner, "_start"),
    ("measured", TrialRunner, "collect"),
)


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


# Asked again and again, and nothing until there is something.
_POLLED = ("one compiled", "measured")


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


class _Steps:
    """Takes the time at which each step first ended."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._ended: dict[str, float] = {}

    def __str__(self) -> str:
        return ", ".join(f"{step} {seconds:.2f}" for step, seconds in self._ended.items())

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Within it, the steps of `tune` are."""
        patches = [patch.object(of, name, self._noting(step, getattr(of, name))) for step, of, name in STEPS]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()

    def _noting(self, step: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object, **options: object) -> Any:
            result = original(*arguments, **options)
            if step not in self._ended and (result or step not in _POLLED):
                self._ended[step] = time.perf_counter() - self._begin
            return result

        return call


def _spent(record: TuningRecord) -> str:
    """What the compiler and the measuring worker say that a trial took."""
    m = record.measurement
    compile_s = m.facts.seconds if m.facts else 0.0
    check_s = m.seconds - m.load_s - m.timing_s
    return f"compile {compile_s:.2f}, load {m.load_s:.2f}, check {check_s:.2f}, time {m.timing_s:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--target", default=None)
    parser.add_argument("--policy", default="cold")
    parser.add_argument("--steps", action="store_true")
    asked = parser.parse_args()
    device = devices.resolve(asked.target)
    place = {"cpu": "cpu", "gpu": "cuda"}[device.kind]
    dtype = torch.float32 if place == "cpu" else torch.bfloat16
    kernels = 0
    print("| function | kernels | trace s | tune s | first trial s | finals s |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        begin, log, steps_of = time.perf_counter(), TuningLog(Path(folder) / "log.jsonl"), dict[str, str]()
        for name, (function, shapes) in functions(*((256, 512) if place == "cpu" else (4096, 1024))).items():
            arguments = [torch.randn(shape, device=place).to(dtype) for shape in shapes]
            before, clock = time.perf_counter(), _Clock()
            traced = autosched.trace(function, *arguments)
            known = len(list(log)) if asked.steps else 0
            start, steps = time.perf_counter(), _Steps()
            tune = partial(autosched.tune, trials=asked.trials, log=log.path, policy=asked.policy)
            with steps.noted() if asked.steps else nullcontext():
                tune(traced, asked.target, on_progress=clock)
            if asked.steps:
                steps_of[name] = f"{steps}; the trial: {_spent(list(log)[known])}"
            firsts, finals = (
                ", ".join(f"{at - start:.2f}" for at in taken.values()) for taken in (clock.first_s, clock.finals_s)
            )
            spent = f"{start - before:.1f} | {time.perf_counter() - start:.1f}"
            print(f"| {name} | {len(clock.first_s)} | {spent} | {firsts} | {finals} |", flush=True)
            kernels += len(clock.first_s)
        total = time.perf_counter() - begin
    for name, steps_taken in steps_of.items():
        print(f"{name}: {steps_taken}")
    versions = f"torch {torch.__version__}, triton {importlib.metadata.version('triton')}"
    print(f"\n{kernels} kernels, {asked.trials} trials each: {total:.1f} s on {device.device}; {versions}")


if __name__ == "__main__":
    main()
