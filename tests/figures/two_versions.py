"""Two versions of this project on the same suites: kernels of the other one, replayed and tuned by this one, in turn.

python tests/figures/two_versions.py tune FOLDER SUITE ... [--trials 40] [--seconds 280]
python tests/figures/two_versions.py compare OTHER OWN SUITE ... [--rounds 40] [--seconds 560]

`tune` runs once in each version, `PYTHONPATH=<its checkout>` in front for the other one: FOLDER gets its log, and every
kernel as a file of its own (`autosched.export`). `compare` runs in this version. It loads the other version's files,
replays what that version's log has, and what its own log has, and times the three in turn with cold caches. A suite is
a JSON file of products or a Python file of functions (docs/using.md); `attention` names the shapes of `attention.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import autosched
from autosched.backends.environment import environment
from autosched.bench.suites.function_suite import read_function_suite
from autosched.bench.suites.operator_suite import read_operator_suite
from autosched.machine import devices
from autosched.machine.timing import interleaved, timer_for
from search_spaces import AutoschedError, Workload
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.text import duration_text, table_lines

sys.path.append(str(Path(__file__).parents[1]))
from figures import attention

Op = Workload | autosched.TracedFunction
Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    name: str
    op: Op
    inputs: Sequence[Tensor]


def cases(suites: Sequence[str]) -> Iterator[Case]:
    """One at a time: the inputs of all of them would not fit into memory."""
    device = torch.device("cuda")
    for suite in suites:
        if suite == "attention":
            for name, shape in attention.CASES.items():
                inputs = shape.inputs(device)
                yield Case(f"attention {name}", autosched.trace(shape.function, *inputs), inputs)
            continue
        path = Path(suite)
        read = read_operator_suite(path) if path.suffix == ".json" else read_function_suite(path, "cuda")
        for case in read.cases:
            try:
                yield Case(f"{path.stem} {case.name}", case.op, case.inputs(0, device))
            except AutoschedError as error:
                print(f"{path.stem} {case.name}: {error}", flush=True)


def exported(folder: Path, case: Case) -> Path:
    return folder / f"{re.sub('[^a-z0-9]', '_', case.name.lower())}.py"


def tune(folder: Path, suites: Sequence[str], trials: int, end: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.jsonl"
    for case in cases(suites):
        if time.monotonic() > end:
            print(f"{case.name} and what follows: no time left", flush=True)
            return
        begin = time.monotonic()
        try:
            autosched.tune(case.op, "cuda", trials, log=log)
            autosched.export(case.op, exported(folder, case), "cuda", log=log)
        except AutoschedError as error:
            print(f"{case.name}: {error}", flush=True)
        print(f"{case.name}: {time.monotonic() - begin:.1f} s", flush=True)


def loaded(path: Path) -> Callable[..., object]:
    """The function of an exported file: the last that it defines without an underscore."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = [
        f for n, f in vars(module).items() if callable(f) and getattr(f, "__module__", "") == path.stem and n[0] != "_"
    ]
    return own[-1]


def sides(case: Case, other: Path, own: Path) -> dict[str, Call]:
    """The calls that can be made; what cannot is printed."""
    found: dict[str, Call] = {}
    makers: dict[str, Callable[[], Callable[..., object]]] = {
        "other": lambda: loaded(exported(other, case)),
        "replayed": lambda: autosched.replay(case.op, "cuda", log=other / "log.jsonl"),
        "tuned": lambda: autosched.replay(case.op, "cuda", log=own / "log.jsonl"),
    }
    for name, make in makers.items():
        try:
            function = make()
            function(*case.inputs)
            found[name] = lambda function=function: function(*case.inputs)
        except (AutoschedError, OSError, RuntimeError) as error:
            print(f"{case.name}, {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    return found


def row(case: Case, calls: dict[str, Call], rounds: int) -> tuple[tuple[str, ...], dict[str, float]]:
    device = devices.resolve("cuda")
    samples = interleaved(calls, rounds, timer_for(device, "cold", products=True))
    ratios, texts = {}, []
    for name in ("replayed", "tuned"):
        if name not in samples or "other" not in samples:
            texts.append("")
            continue
        ratios[name] = paired_ratio(samples["other"], samples[name])
        within = ratio_interval(samples["other"], samples[name])
        texts.append(f"{ratios[name]:.3f} ({within.low:.3f}–{within.high:.3f})" if within else f"{ratios[name]:.3f}")
    times = (
        duration_text(statistics.median(samples[n])) if n in samples else "" for n in ("other", "replayed", "tuned")
    )
    return (case.name, *times, *texts), ratios


def compare(other: Path, own: Path, suites: Sequence[str], rounds: int, end: float) -> None:
    rows = [("kernel", "other version", "replayed", "tuned", "other / replayed", "other / tuned")]
    found: dict[str, list[float]] = {"replayed": [], "tuned": []}
    for case in cases(suites):
        if time.monotonic() > end:
            print(f"{case.name} and what follows: no time left", flush=True)
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calls = sides(case, other, own)
        if len(calls) < 2:
            continue
        shown, ratios = row(case, calls, rounds)
        rows.append(shown)
        print("  ".join(shown), flush=True)
        for name, ratio in ratios.items():
            found[name].append(ratio)
    print(environment(devices.resolve("cuda")))
    print(*table_lines(rows), sep="\n")
    for name, values in found.items():
        if values:
            mean = math.exp(statistics.fmean(map(math.log, values)))
            print(f"other / {name}: geometric mean {mean:.4f} of {len(values)}, least {min(values):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    tuning, comparing = commands.add_parser("tune"), commands.add_parser("compare")
    tuning.add_argument("folder", type=Path)
    tuning.add_argument("--trials", type=int, default=40)
    tuning.add_argument("--seconds", type=float, default=280)
    comparing.add_argument("other", type=Path)
    comparing.add_argument("own", type=Path)
    comparing.add_argument("--rounds", type=int, default=40)
    comparing.add_argument("--seconds", type=float, default=560)
    for command in (tuning, comparing):
        command.add_argument("suites", nargs="+")
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    if given.command == "tune":
        tune(given.folder, given.suites, given.trials, end)
    else:
        compare(given.other, given.own, given.suites, given.rounds, end)


if __name__ == "__main__":
    main()
