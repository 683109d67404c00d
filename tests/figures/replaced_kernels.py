"""Kernels of another version, as it exported them, against this version's: replayed, and tuned anew.

python tests/figures/replaced_kernels.py FOLDER [--trials 150] [--to LOG]

FOLDER has the other version's files, `autosched.export` of the workload of a log that ships, each called by the first
digits of the log's name: `old_b9aad4d3.py`. All three are timed in turn with cold caches.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import types
from pathlib import Path

import torch

import autosched
from autosched.backends.environment import environment
from autosched.checking.random_inputs import random_inputs
from autosched.machine import devices
from autosched.machine.timing import interleaved, timer_for
from search_spaces import Workload
from tuning_logs import TuningLog, shipped_logs
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.text import duration_text, table_lines

_ROUNDS = 60


def loaded(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shipped(digits: str) -> Path:
    return next(path for path in shipped_logs() if path.name.startswith(digits))


def row(workload: Workload, shipping: Path, file: Path, trials: int, log: Path) -> tuple[str, ...]:
    device = devices.resolve("cuda")
    other = getattr(loaded(file), workload.name)
    replayed = autosched.replay(workload, device, log=shipping)
    autosched.tune(workload, device, trials, log=log, history=shipping)
    tuned = autosched.replay(workload, device, log=log)
    inputs = random_inputs(workload, 0, torch.device("cuda"))
    calls = {
        "other": lambda: other(*inputs),
        "replayed": lambda: replayed(*inputs),
        "tuned": lambda: tuned(*inputs),
    }
    samples = interleaved(calls, _ROUNDS, timer_for(device, "cold", products=bool(workload.contracted)))
    ratios = []
    for name in ("replayed", "tuned"):
        within = ratio_interval(samples["other"], samples[name])
        assert within is not None
        ratios.append(f"{paired_ratio(samples['other'], samples[name]):.3f} ({within.low:.3f}–{within.high:.3f})")
    times = (duration_text(statistics.median(samples[name])) for name in calls)
    return (workload.label, *times, *ratios, tuned.schedule.one_line)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--to", type=Path, default=Path("replaced.jsonl"))
    told = parser.parse_args()
    rows = [("workload", "other version", "replayed", "tuned", "other / replayed", "other / tuned", "schedule")]
    for file in sorted(told.folder.glob("*_*.py")):
        path = shipped(file.stem.rpartition("_")[2])
        workload = next(iter(TuningLog(path))).workload
        rows.append(row(workload, path, file, told.trials, told.to))
    print(environment(devices.resolve("cuda")))
    print(*table_lines(rows), sep="\n")


if __name__ == "__main__":
    main()
