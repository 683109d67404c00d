"""Functions of a suite tuned together with few trials, against every kernel with many: what both found, interleaved.

python tests/figures/together.py SUITE.py FOLDER --together 2000 --each 1000 [--seconds 380] [--only NAME,…]

Both start cold. FOLDER keeps their logs: called again, it goes on where it ended. There is one process for every GPU:
the first one tunes together, all of them the kernels alone, each its part of the functions, of which it then times both
sides. When the time is up they stop: the table says how many trials every kernel had, and what as many of the trials
together as are in proportion found.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import autosched
from autosched.backends import spaces
from autosched.bench.suites.function_suite import FunctionCase, read_function_suite
from autosched.machine import devices
from autosched.measuring.session import local_measurer
from autosched.tracing import Traced
from autosched.tracing.callables.traced import cuts_of
from autosched.tuning.many.weighted_searches import WeightedSearches
from autosched.tuning.searching.preparation import prepare
from autosched.tuning.searching.search import Search
from autosched.tuning.searching.session import run_all
from autosched.tuning.searching.sources import Sources
from search_spaces import Schedule, Target, Workload
from tuning_logs import TuningLog, TuningRecord
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.ranking import best_of

_ROUNDS = 30
# Every kernel has so many before any has more: whenever the time is up, all had about as many.
_STAGES = (64, 128, 256, 512)
# The trials that a GPU measures in a second, about; and of the time, what finals and both sides at the end take.
_TRIALS_PER_S, _END_S = 20.0, 75.0
_SIDES = ("together", "in proportion", "each")


@dataclass(frozen=True)
class Limits:
    together: int
    each: int
    seconds: float
    processes: int

    @property
    def search_s(self) -> float:
        return self.seconds - min(_END_S, self.seconds / 4)

    def shares(self) -> list[float]:
        """The part of the kernels alone that every process has: the first one is busy with all of them together."""
        time_s = [self.search_s] * self.processes
        time_s[0] = max(time_s[0] / 10, time_s[0] - self.together / _TRIALS_PER_S)
        return [s / sum(time_s) for s in time_s]


class Stages:
    """All searches side by side until the time is up; those of ways to cut that are clearly slower rest."""

    def __init__(self, tasks: WeightedSearches, most: int, end: float) -> None:
        self._tasks = tasks
        self._stages = [*(n for n in _STAGES if n < most), most]
        self._end = end

    def next(self) -> Search | None:
        if time.time() > self._end:
            return None
        counting = [s for s, weight in zip(self._tasks.searches, self._tasks.weights(), strict=True) if weight]
        for stage in self._stages:
            for search in counting:
                if search.open and search.granted < stage:
                    search.wanted = stage
                    return search
        return None

    def passed(self, search: Search) -> None:
        """The others go on."""

    def observed(self, search: Search, records: Sequence[TuningRecord]) -> None:
        """Nobody else is to know: each is alone."""


def tune_together(cases: Sequence[FunctionCase], target: Target, limits: Limits, log: Path, end: float) -> None:
    timer = threading.Timer(max(1.0, end - time.time()), os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.perf_counter()
    result = autosched.tune_many([case.op for case in cases], target, limits.together, log=log, history=())
    timer.cancel()
    log.with_suffix(".txt").write_text(f"{result}\n{result.report}\n", encoding="utf-8")
    print(f"{result}\ntogether: {time.perf_counter() - begin:.0f} s", flush=True)


def alone(ops: Iterable[Workload | Traced], target: Target, trials: int, log: Path) -> WeightedSearches:
    """The searches for every kernel, each with a model of its own, none with a log to start from."""
    one = functools.partial(
        prepare, target=target, trials=trials, strategy="evolutionary", cost_model="xgboost", seed=0, log=log
    )
    tasks = WeightedSearches(
        target, functools.partial(one, policy="cold", measured_elsewhere=False, sources=Sources.of(()))
    )
    for op in ops:
        tasks.add(op, 1.0)
    return tasks


def tune_each(cases: Sequence[FunctionCase], target: Target, limits: Limits, log: Path, end: float) -> None:
    tasks = alone([case.op for case in cases], target, limits.each, log)
    begin = time.perf_counter()
    run_all(tasks.searches, Stages(tasks, limits.each, end))
    done = sum(len(search.trials) for search in tasks.searches)
    print(f"each: {done} trials of {len(cases)} functions, {time.perf_counter() - begin:.0f} s", flush=True)


@dataclass(frozen=True)
class Found:
    """What one side knows of kernels, by the keys of their workloads, oldest first."""

    records: Mapping[str, Sequence[TuningRecord]]

    @staticmethod
    def of(records: Sequence[TuningRecord]) -> Found:
        by_key: dict[str, list[TuningRecord]] = {}
        for record in records:
            by_key.setdefault(record.workload.key, []).append(record)
        return Found(by_key)

    def best(self, workload: Workload) -> TuningRecord | None:
        return best_of(self.records.get(workload.key, ()))

    def trials(self, workload: Workload) -> int:
        return sum(not r.provenance.finals for r in self.records.get(workload.key, ()))

    def launches(self, op: Traced) -> Counter[Workload]:
        """Of the fastest way to cut a function, as this side measured; none where a kernel is missing."""
        workloads = [workload for cut in cuts_of(op) for workload in cut.workloads]
        bests = {w.key: best.measurement.latency_s for w in workloads if (best := self.best(w)) is not None}
        fastest = op.fastest(bests)
        return Counter(fastest.launched if all(w.key in bests for w in fastest.workloads) else ())


def sides(together: Sequence[TuningRecord], each: Sequence[TuningRecord], limits: Limits) -> tuple[Found, Found, Found]:
    """Together; the first of these trials, as many as are in proportion to what each had; and each."""
    alone = Found.of(each)
    had = [sum(not r.provenance.finals for r in records) for records in alone.records.values()]
    part = min(1.0, statistics.median(had or [0]) / limits.each)
    trials = [r for r in together if not r.provenance.finals]
    return Found.of(together), Found.of(trials[: round(part * limits.together)]), alone


def timed(workload: Workload, target: Target, schedules: Sequence[Schedule]) -> dict[Schedule, tuple[float, ...]]:
    """The rounds of schedules that are timed in turn; those that cannot be are left out."""
    measurer, space, distinct = local_measurer(target), spaces.build(workload, target), list(dict.fromkeys(schedules))
    with measurer.reserved(target):
        found = measurer.remeasure(workload, [space.bind(s) for s in distinct], _ROUNDS) or ()
    return {s: m.latencies_s[:_ROUNDS] for s, m in zip(distinct, found, strict=False) if m.ok}


def compare(case: FunctionCase, target: Target, found: Sequence[Found]) -> dict[str, object]:
    """The rounds of a function's kernels on every side, and the trials that these had."""
    op = case.op.for_target(target)
    launches = [side.launches(op) for side in found]
    rounds: list[list[float] | None] = [[0.0] * _ROUNDS if counts else None for counts in launches]
    for workload in dict.fromkeys(w for counts in launches for w in counts):
        users = [n for n, counts in enumerate(launches) if workload in counts]
        bests = {n: best.schedule for n in users if (best := found[n].best(workload)) is not None}
        taken = timed(workload, target, list(bests.values()))
        for n, schedule in bests.items():
            so_far, more = rounds[n], taken.get(schedule)
            summed = so_far and more and [a + launches[n][workload] * b for a, b in zip(so_far, more, strict=False)]
            rounds[n] = summed or None
    trials = [sum(side.trials(w) for w in counts) for side, counts in zip(found, launches, strict=True)]
    return {"name": case.name, "kernels": [sum(c.values()) for c in launches], "trials": trials, "rounds": rounds}


def parts(cases: Sequence[FunctionCase], shares: Sequence[float]) -> list[list[FunctionCase]]:
    """The functions of every process, dealt out in their order."""
    dealt: list[list[FunctionCase]] = [[] for _ in shares]
    for number, case in enumerate(cases, 1):
        dealt[max(range(len(shares)), key=lambda n: shares[n] * number - len(dealt[n]))].append(case)
    return dealt


def work(cases: Sequence[FunctionCase], limits: Limits, folder: Path, number: int, target: Target) -> None:
    """What one process does; the first one tunes together before."""
    begin = time.time()
    end, mine = begin + limits.search_s, parts(cases, limits.shares())[number]
    together, each, ready = folder / "together.jsonl", folder / f"each-{number}.jsonl", folder / "together.done"
    if number == 0:
        tune_together(cases, target, limits, together, end)
        ready.touch()
    tune_each(mine, target, limits, each, end)
    while not ready.exists():
        time.sleep(1)
    found = sides(list(TuningLog(together)), list(TuningLog(each)), limits)
    with (folder / f"compared-{number}.jsonl").open("w", encoding="utf-8") as out:
        for case in mine:
            out.write(json.dumps(compare(case, target, found)) + "\n")
            out.flush()
    print(f"process {number}: {time.time() - begin:.0f} s", flush=True)


def start(folder: Path, limits: Limits) -> None:
    """Every process on a GPU of its own, until they end, or the time is up."""
    (folder / "together.done").unlink(missing_ok=True)
    end, processes = time.time() + limits.seconds, []
    for number in range(limits.processes):
        out = (folder / f"process-{number}.txt").open("w", encoding="utf-8")
        device = os.environ | {"CUDA_VISIBLE_DEVICES": str(number)}
        command = [sys.executable, *sys.argv, "--number", str(number), "--processes", str(limits.processes)]
        processes.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=device))
    for process in processes:
        try:
            process.wait(max(1.0, end - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()
    for number in range(limits.processes):
        print((folder / f"process-{number}.txt").read_text(encoding="utf-8"), flush=True)


def show(folder: Path, limits: Limits) -> None:
    """Every function on every side, the ratio of together to each, and the sums over those that all sides have."""
    shown = [json.loads(line) for path in sorted(folder.glob("compared-*.jsonl")) for line in path.open()]
    print(f"{'function':24}" + "".join(f"{name:>16}{'trials':>8}" for name in _SIDES) + "   together / each")
    for row in shown:
        cells = zip(row["rounds"], row["trials"], strict=True)
        line = "".join(f"{_middle_us(rounds):>13} µs{trials:>8}" for rounds, trials in cells)
        print(f"{row['name']:24}{line}   {ratio(row['rounds'][0], row['rounds'][2])} {row['kernels']}")
    complete = [row for row in shown if all(row["rounds"])]
    sums = [[sum(taken) for taken in zip(*(row["rounds"][n] for row in complete), strict=False)] for n in range(3)]
    line = "".join(f"{_middle_us(s):>13} µs{sum(row['trials'][n] for row in shown):>8}" for n, s in enumerate(sums))
    print(f"{f'sum of {len(complete)}':24}{line}   {ratio(sums[0], sums[2])}; in proportion {ratio(sums[1], sums[2])}")
    for line in curves(folder):
        print(line)


def curves(folder: Path) -> Iterator[str]:
    """The sums of what single trials found after so many, of the kernels that both know; how often cuts are launched,
    and which is the fastest, is left aside."""
    together = [r for r in TuningLog(folder / "together.jsonl") if not r.provenance.finals]
    each = [r for path in sorted(folder.glob("each-*.jsonl")) for r in TuningLog(path) if not r.provenance.finals]
    keys = {r.workload.key for r in each if r.measurement.ok} & {r.workload.key for r in together if r.measurement.ok}
    for trials in range(250, len(together) + 1, 250):
        yield f"{trials:>6} together  {_sum_us(Found.of(together[:trials]), keys):10.1f} µs"
    alone = Found.of(each)
    for trials in (32, 48, 64, 74, 96, 128, 192, 256, 384, 512, 768, 1000):
        first = Found({key: alone.records[key][:trials] for key in keys})
        yield f"{trials:>6} of each   {_sum_us(first, keys):10.1f} µs"


def _sum_us(found: Found, keys: set[str]) -> float:
    bests = [best_of(found.records.get(key, ())) for key in keys]
    return 1e6 * sum(best.measurement.undisturbed_s if best else float("nan") for best in bests)


def _middle_us(rounds: Sequence[float] | None) -> str:
    return f"{1e6 * sorted(rounds)[len(rounds) // 2]:.2f}" if rounds else "none"


def ratio(first: Sequence[float] | None, second: Sequence[float] | None) -> str:
    if not first or not second:
        return ""
    count = min(len(first), len(second))
    interval = ratio_interval(first[:count], second[:count])
    return (
        f"{paired_ratio(first[:count], second[:count]):.4f} ({interval.low:.4f}–{interval.high:.4f})"
        if interval
        else ""
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--together", type=int, default=2000)
    parser.add_argument("--each", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--processes", type=int, default=max(1, torch.cuda.device_count()))
    parser.add_argument("--only", default="")
    parser.add_argument("--target", default=None)
    parser.add_argument("--number", type=int, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    limits = Limits(given.together, given.each, given.seconds, given.processes)
    if given.number is None:
        start(given.folder, limits)
        show(given.folder, limits)
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    target = devices.resolve(given.target)
    suite = read_function_suite(given.suite, "cuda" if target.kind == "gpu" else "cpu")
    cases = suite.only([name for name in given.only.split(",") if name]).cases
    work([case for case in cases if isinstance(case, FunctionCase)], limits, given.folder, given.number, target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
