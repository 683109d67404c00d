"""Gain of programmatic dependent launch: models by the same kernels in the same graph, launched early and as usual.

python tests/figures/early_launch.py SUITE NAME [NAME …] [--seconds 60] [--trials 32] [--log LOG]

SUITE is a file as `autosched bench models` takes it. Each model is tuned once in the mode "max-autotune", and then
compiled twice from that log, with and without early launches, which are called in interleaved rounds and compared bit
for bit. Atomic sums may differ in their last bits from call to call: such results are named.
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves

from autosched.backends.environment import environment
from autosched.bench.models.measuring import BackToBackTimer
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from autosched.machine.timing import interleaved
from autosched.torch_compile.backend import backend_of
from autosched.torch_compile.options import Options
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.text import duration_text

_ROUNDS = 100


def compiled(model: Callable[..., Any], inputs: list[Any], early: bool, log: str) -> Callable[[], Any]:
    """A call of the model by what the log has, whose graphs are captured."""

    options = Options(mode="reduce-overhead", log=log)
    torch.compiler.reset()
    call = partial(torch.compile(model, backend=backend_of(options, lambda _: None)), *inputs)
    with patch.object(Kernel, "early", early):
        for _ in range(3):
            call()
    return call


def run(name: str, model: Callable[..., Any], inputs: list[Any], options: dict[str, Any]) -> None:
    torch.compiler.reset()
    torch.compile(model, backend=backend_of(Options.of("max-autotune", options), lambda r: print(str(r)[:120])))(
        *inputs
    )
    ways = {"early": True, "as usual": False}
    calls = {way: compiled(model, inputs, early, options["log"]) for way, early in ways.items()}
    results = [[t.clone() for t in tree_leaves(call()) if isinstance(t, torch.Tensor)] for call in calls.values()]
    same = all(map(torch.equal, *results))
    samples = interleaved(calls, _ROUNDS, BackToBackTimer())
    early, usual = samples["early"], samples["as usual"]
    interval = ratio_interval(usual, early)
    assert interval is not None
    medians = ", ".join(f"{way} {duration_text(statistics.median(s))}" for way, s in samples.items())
    ratio = f"{paired_ratio(usual, early):.3f} ({interval.low:.3f} to {interval.high:.3f})"
    print(f"{name}: {medians}: {ratio}; results {'are the same' if same else 'DIFFER'}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--log", default=str(Path(tempfile.mkdtemp()) / "log.jsonl"))
    given = parser.parse_args()
    target = devices.detect()
    print(target.label, dict(environment(target)))
    models = runpy.run_path(str(given.suite))["MODELS"]
    with torch.no_grad():
        for name in given.names:
            model, inputs = models[name]()
            run(name, model, list(inputs), {"seconds": given.seconds, "trials": given.trials, "log": given.log})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
