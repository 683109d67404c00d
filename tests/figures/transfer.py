"""What transfer saves: trials and seconds to 95 % and 99 % of the best, cold, with seeds, and warm from other shapes.

python tests/figures/transfer.py GEMM STRUCTURES [--trials 96] [--seconds 120]     on the device that is here
python tests/figures/transfer.py GEMM STRUCTURES --learn-from float16 --searches cold warm      from another type
python tests/figures/transfer.py CONV STRUCTURES --products LAYER … --attentions --functions --learn-from half
python tests/figures/transfer.py GEMM STRUCTURES --smoke                           tiny sizes on the CPU

GEMM, CONV and STRUCTURES are suites as `autosched bench` takes them. Every workload is searched three times: cold,
without history and the points that sketches propose; with these points; and warm, with records of other shapes too.
Those are the ones that ship, where any does for such a kernel on this device, and else those of a search of half its
size; with `--learn-from half` always the latter, and with `--learn-from float16` those of the same in float16. The best
is that of all searches, without finals; one seed each. The order of the searches changes from workload to workload.
`--seconds` ends it after the workload that is under way, so that the table is always printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import PropertyMock, patch

import numpy as np
import torch

import autosched
from autosched import ops
from autosched.backends.environment import environment
from autosched.bench.suites.function_suite import FunctionCase, read_function_suite
from autosched.bench.suites.operator_suite import read_operator_suite
from autosched.machine import devices
from autosched.measuring import LocalMeasurer
from autosched.strategies.evolutionary import Evolutionary
from autosched.tracing.callables.traced import cuts_of
from autosched.tuning.searching import warm_start
from autosched.tuning.searching.search import SearchOf
from cost_models import CostModel
from search_spaces import SearchSpace, Target, Workload
from tuning_logs import TuningLog, TuningRecord, shipped_logs
from tuning_logs.selection import MOST_LOOKED_THROUGH, are_alike, nearest, telling
from tuning_logs.text import duration_text, table_lines

sys.path.append(str(Path(__file__).parents[1]))
import figures.attention

PRODUCTS = ("square-4096", "llama8b-out-128", "bert-up", "odd-1000", "square-2048-fp32-tf32")
ATTENTIONS = ("4x16x2048x128 causal", "decoding 32x8192", "4x16x2048x64 window")
FUNCTIONS = ("add_rmsnorm_both", "softmax_lse", "glu_halves")
# Of the trials of the cold search, what the others have: they are to need fewer.
PARTS = {"cold": 1.0, "seeds": 0.67, "warm": 0.5}
QUALITIES = (0.95, 0.99)


@dataclass(frozen=True)
class Case:
    """A workload, and the same at half of its size or in another element type."""

    name: str
    op: Workload
    other: Workload


@dataclass(frozen=True)
class Run:
    """What the trials of one search took, and when each had ended."""

    latencies: Sequence[float]
    ended_s: Sequence[float]
    said: str

    def reaching(self, latency_s: float) -> tuple[int, float] | None:
        """After how many trials and seconds a kernel that fast was there."""
        for number, (latency, ended) in enumerate(zip(self.latencies, self.ended_s, strict=True), 1):
            if latency <= latency_s:
                return number, ended
        return None


def operators(path: Path, names: Sequence[str], dtype: str | None) -> Iterator[Case]:
    for case in read_operator_suite(path).only(names).cases if names else ():
        assert isinstance(case.op, Workload)
        given = dict(case.op.arguments)
        other = {**given, "dtype": dtype} if dtype else given | _half(case.op)
        text = {name: str(value) for name, value in other.items() if value is not None}
        yield Case(case.name, case.op, ops.construct(case.op.name, text))


def _half(op: Workload) -> dict[str, object]:
    """The sizes of an operator of half the size: of a convolution half as large images, with half of the groups, or
    else of the channels, if these are many, and of the filters.
    """
    given = dict(op.arguments)
    if op.name == "matmul":
        return {name: max(1, int(given[name] or 0) // 2) for name in ("m", "n", "k")}
    channels, groups = int(given["c"] or 0), int(given.get("groups") or 1)
    parts = 2 if groups % 2 == 0 or (groups == 1 and channels >= 32) else 1
    size = "x".join(str(max(4, int(s) // 2)) for s in str(given["size"]).split("x"))
    smaller = {"size": size, "c": channels // parts, "k": int(given["k"] or 0) // parts}
    return smaller | ({"groups": groups // parts} if groups > 1 else {})


def attentions(cases: Mapping[str, figures.attention.Case], target: Target, dtype: str | None) -> Iterator[Case]:
    for name, case in cases.items():
        batch, heads, length, size = case.queries
        key_heads, key_length = case.keys or (heads, length)
        half = dataclasses.replace(
            case,
            queries=(batch, heads, max(1, length // 2), size),
            keys=(key_heads, key_length // 2) if case.keys else None,
        )
        inputs = case.inputs(_device(target))
        other = [x.to(getattr(torch, dtype)) for x in inputs] if dtype else half.inputs(_device(target))
        yield Case(name, *(_kernel(case.function, given, target) for given in (inputs, other)))


def functions(path: Path, names: Sequence[str], target: Target, shrink: int, dtype: str | None) -> Iterator[Case]:
    for case in read_function_suite(path, _device(target).type).only(names).cases if names else ():
        assert isinstance(case, FunctionCase)
        first = case.arguments[0].shape[0]
        small = first // shrink
        other = _function(case, target, first, small if dtype else small // 2, dtype)
        yield Case(case.name, _function(case, target, first, small, None), other)


def _function(case: FunctionCase, target: Target, old: int, new: int, dtype: str | None) -> Workload:
    shapes = [tuple(new if size == old and i == 0 else size for i, size in enumerate(a.shape)) for a in case.arguments]
    own = [torch.float32 if target.kind == "cpu" else a.dtype for a in case.arguments]
    dtypes = [getattr(torch, dtype) if dtype and of.is_floating_point else of for of in own]
    examples = [torch.empty(s, dtype=d, device=case.device) for s, d in zip(shapes, dtypes, strict=True)]
    return _kernel(case.function, examples, target)


def _kernel(function: Callable[..., object], inputs: Sequence[torch.Tensor], target: Target) -> Workload:
    """The first kernel of the cut with the fewest."""
    traced = autosched.trace(function, *inputs, allow_fallback=True).for_target(target)
    return min((cut.workloads for cut in cuts_of(traced) if cut.workloads), key=len)[0]


def _device(target: Target) -> torch.device:
    return torch.device("cuda" if target.kind == "gpu" else "cpu")


def without_seeds(space: SearchSpace, cost_model: CostModel, rng: np.random.Generator) -> Evolutionary:
    bare = tuple(dataclasses.replace(sketch, seeds=()) for sketch in space.sketches)
    return Evolutionary(dataclasses.replace(space, sketches=bare), cost_model, rng)


class Searches:
    """Searches on one device, each with a log of its own in `folder`."""

    def __init__(self, target: Target, folder: Path, measurer: LocalMeasurer, shipped: Iterable[TuningRecord]) -> None:
        self._target, self._folder, self._measurer = target, folder, measurer
        self._number = itertools.count()
        self._shipped = list(shipped)

    def new_log(self, records: Sequence[TuningRecord] = ()) -> TuningLog:
        log = TuningLog(self._folder / f"{next(self._number)}.jsonl")
        log.append(*records)
        return log

    def run(self, op: Workload, trials: int, how: str, history: TuningLog | None = None) -> tuple[Run, TuningLog]:
        log, begin = self.new_log(), time.time()
        result = autosched.tune(
            op,
            self._target,
            trials,
            strategy=without_seeds if how == "cold" else "evolutionary",
            log=log.path,
            history=() if history is None else history,
            measurer=self._measurer,
        )
        records = list(log)
        latencies = [r.measurement.undisturbed_s if r.measurement.ok else math.inf for r in records]
        return Run(latencies, [r.provenance.unix_s - begin for r in records], str(result.guidance)), log

    def elsewhere(self, case: Case, trials: int) -> tuple[TuningLog, float]:
        """What is known of other workloads, and the seconds that it took to measure what does not ship."""
        alike = [r for r in self._shipped if are_alike(r.subject, case.op) and r.subject.key != case.op.key]
        if any(r.target.key == self._target.key for r in alike):
            return self.new_log(telling(nearest(alike, case.op, self._target, MOST_LOOKED_THROUGH))), 0.0
        begin = time.perf_counter()
        _, log = self.run(case.other, trials, "seeds")
        return log, time.perf_counter() - begin

    def several(self, case: Case, trials: int, hows: Sequence[str], first: int) -> dict[str, Run]:
        known, took_s = self.elsewhere(case, round(PARTS["warm"] * trials))
        if took_s:
            print(f"{case.name}: what is known of {case.other.label} took {took_s:.1f} s to measure", flush=True)
        first %= len(hows)
        runs = {}
        for how in (*hows[first:], *hows[:first]):
            history = known if how == "warm" else None
            runs[how], _ = self.run(case.op, round(PARTS[how] * trials), how, history)
        return runs


def table(found: Mapping[str, Mapping[str, Run]], hows: Sequence[str]) -> Iterator[tuple[str, ...]]:
    yield ("workload", "best", *(f"{how} {q:.0%}" for q in QUALITIES for how in hows), "saved 95%", "what guided")
    for name, runs in found.items():
        best = min(latency for run in runs.values() for latency in run.latencies)
        cells = [_reached(runs[how], best / q) for q in QUALITIES for how in hows]
        yield name, duration_text(best), *cells, _saved(runs, best / QUALITIES[0]), runs["warm"].said


def _reached(run: Run, latency_s: float) -> str:
    reached = run.reaching(latency_s)
    return f"{reached[0]} ({reached[1]:.1f} s)" if reached else f">{len(run.latencies)}"


def _saved(runs: Mapping[str, Run], latency_s: float) -> str:
    """Where the cold search never came there, at least so much was saved."""
    cold, warm = (runs[how].reaching(latency_s) for how in ("cold", "warm"))
    if warm is None:
        return "none"
    return f"{'' if cold else '>'}{1 - warm[0] / (cold[0] if cold else len(runs['cold'].latencies)):.0%}"


def chosen_cases(arguments: argparse.Namespace, target: Target) -> list[Case]:
    dtype = "float16" if arguments.learn_from == "float16" else None
    if arguments.smoke:
        small = [ops.matmul(n, n, n) for n in (128, 64)]
        kinds = [[Case("square-128", *small)], list(attentions(figures.attention.SMOKE, target, dtype))]
        kinds[1] = kinds[1][1:] if target.kind == "gpu" else []
        shrink = 64
    else:
        forms = {name: figures.attention.CASES[name] for name in arguments.attentions}
        kinds = [list(operators(arguments.gemm, arguments.products, dtype)), list(attentions(forms, target, dtype))]
        shrink = 1
    kinds.append(list(functions(arguments.structures, arguments.functions, target, shrink, dtype)))
    # One of every kind in turn: whenever the time is over, there are some of each.
    return [case for several in itertools.zip_longest(*kinds) for case in several if case]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gemm", type=Path)
    parser.add_argument("structures", type=Path)
    parser.add_argument("--trials", type=int, default=96, help="of the cold search")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--products", nargs="*", default=list(PRODUCTS))
    parser.add_argument("--attentions", nargs="*", default=list(ATTENTIONS))
    parser.add_argument("--functions", nargs="*", default=list(FUNCTIONS))
    parser.add_argument("--learn-from", choices=("shipped", "half", "float16"), default="shipped")
    parser.add_argument("--searches", nargs="+", choices=tuple(PARTS), default=list(PARTS))
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    target = devices.cpu_target() if arguments.smoke else devices.detect()
    cases = chosen_cases(arguments, target)
    print(f"{target.label}; " + ", ".join(" ".join(pair) for pair in environment(target)), flush=True)
    found: dict[str, dict[str, Run]] = {}
    with ExitStack() as opened:
        opened.enter_context(patch.object(SearchOf, "finals_due", PropertyMock(return_value=False)))
        opened.enter_context(patch.object(warm_start, "shipped_logs", lambda: ()))
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        shipped = [r for path in shipped_logs() for r in TuningLog(path)] if arguments.learn_from == "shipped" else []
        searches = Searches(target, folder, opened.enter_context(LocalMeasurer(target)), shipped)
        # The workers start, and compile for the first time.
        searches.run(ops.matmul(64, 64, 64), 4, "seeds")
        longest = 0.0
        for number, case in enumerate(cases):
            now = time.perf_counter()
            if now - begin + longest > arguments.seconds:
                print(f"no time is left for {', '.join(c.name for c in cases[number:])}", flush=True)
                break
            found[case.name] = searches.several(case, arguments.trials, arguments.searches, number)
            longest = max(longest, time.perf_counter() - now)
            print(f"{case.name}: {time.perf_counter() - now:.1f} s", flush=True)
            # Shown at once, in case that something ends this before its time.
            print("  " + "; ".join(list(table({case.name: found[case.name]}, arguments.searches))[1][1:]), flush=True)
    for line in table_lines(list(table(found, arguments.searches)), right=range(1, 8)):
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
