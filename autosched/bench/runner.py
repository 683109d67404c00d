"""Runner of a benchmark: tunes every case of a suite or takes kernels of the logs, then measures all in one run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from autosched.backends.environment import environment
from autosched.baselines.names import BaselineName, check_baselines
from autosched.bench.drawing.plot import draw
from autosched.bench.drawing.roofline import roofline
from autosched.bench.peaks import measure_peaks
from autosched.bench.rows import BenchRow, BenchTable
from autosched.bench.saved import save_table
from autosched.bench.suites.suite import NOUNS, Case, Suite
from autosched.bench.table import StreamedTable, summary_lines, title
from autosched.comparing.compare import compare_kernel
from autosched.kernels.kernel import Kernel
from autosched.machine.policies import Policy, check_timing
from autosched.replaying.arguments import check_integer, log_path, written_log_path
from autosched.replaying.replay import replay, why_wrong_now
from autosched.tracing import TracedFunction
from autosched.tuning.every_cut import of_all_workloads
from autosched.tuning.history import TuningHistory, all_of, tuning_history
from autosched.tuning.progress import progress_display
from autosched.tuning.results import TuneResult
from autosched.tuning.searching.preparation import prepare
from autosched.tuning.terminal import say
from autosched.tuning.tuner import run
from search_spaces import AutoschedError, InputError, LogError, Target, Workload
from tuning_logs import TuningLog, TuningRecord
from tuning_logs.text import first_line

_INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class BenchPlan:
    """Settings of a benchmark.

    `trials` per case as `tune` counts them, None for no tuning; `log` is None for the user's; `rounds` is None for as
    many as fit two seconds; the ratios are against the first of `baselines`.

    Raises:
        InputError, LogError: a setting is not allowed.
    """

    target: Target
    baselines: tuple[BaselineName, ...]
    trials: int | None = 1000
    log: Path | None = None
    policy: Policy = "cold"
    rounds: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_timing(self.policy, self.target)
        check_baselines(self.baselines)
        check_integer("seed", self.seed, 0)
        for name, value in (("trials", self.trials), ("rounds", self.rounds)):
            if value is not None:
                check_integer(name, value, 1)
        log_path(self.log) if self.trials is None else written_log_path(self.log)


def run_bench(suite: Suite, plan: BenchPlan, folder: Path, console: Console, command: str) -> BenchTable:
    """Tune, unless the plan says otherwise; then measure, print and save row by row, and draw.

    A case that fails costs its own row only, which has the reason. Ctrl-C while measuring ends the table with the last
    complete row (noted in `BenchTable.ended`). `command` is the origin that the table names.

    Raises:
        KeyboardInterrupt: before anything was measured; finished trials are in the log.
        LogError: the log cannot be read or written.
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    failures = _tune(suite, plan, console) if plan.trials else {}
    peaks = measure_peaks(_ops(suite, failures), plan.target)
    versions = environment(plan.target)
    table = BenchTable(suite.name, plan.target, plan.policy, plan.baselines, peaks, command, versions, kind=suite.kind)
    streamed = StreamedTable(suite.cases, table)
    say(console, title(table), streamed.header)
    try:
        for row in _rows(suite, plan, failures):
            table = dataclasses.replace(table, rows=(*table.rows, row))
            say(console, streamed.line(row, table))
            save_table(table, folder)
        ended = ""
    except KeyboardInterrupt:
        ended = f"{_INTERRUPTED} after {len(table.rows)} of {len(suite.cases)} {NOUNS[suite.kind]}"
    table = dataclasses.replace(table, ended=ended)
    save_table(table, folder)
    say(console, *summary_lines(table), f"saved in {folder}{_drawn(table, folder)}")
    return table


def _tune(suite: Suite, plan: BenchPlan, console: Console) -> Mapping[str, str]:
    """Tune every case; reasons, by name, for those that failed."""
    failures = {}
    for number, case in enumerate(suite.cases, 1):
        say(console, f"[{number}/{len(suite.cases)}] {case.name}")
        try:
            why_not = _tune_case(case.op, plan, console)
        except LogError:
            raise
        except (AutoschedError, RuntimeError) as error:
            why_not = first_line(error)
        if why_not:
            failures[case.name] = why_not
            say(console, f"  {why_not}")
    return failures


def _ops(suite: Suite, failures: Mapping[str, str]) -> Iterator[Workload | TracedFunction]:
    """The operators and functions that can be measured."""
    for case in suite.cases:
        if case.name not in failures:
            # Its row has the reason why it cannot be traced.
            with suppress(InputError):
                yield case.op


def _tune_case(op: Workload | TracedFunction, plan: BenchPlan, console: Console) -> str | None:
    """Tune all kernels of a case in all of its cuts; the reason if none succeeded."""
    search = partial(_tune_workload, plan=plan, console=console)
    cut = op if isinstance(op, Workload) else op.for_target(plan.target)
    needed = (cut,) if isinstance(cut, Workload) else cut.workloads
    results = (search(cut),) if isinstance(cut, Workload) else of_all_workloads(cut, search)
    failed = (r.all_failures for r in results if r.best is None and r.workload in needed)
    counted = (", ".join(f"{n} {status}" for status, n in failures) for failures in failed)
    return next((f"no trial succeeded ({counts})" for counts in counted), None)


def _tune_workload(workload: Workload, plan: BenchPlan, console: Console) -> TuneResult:
    assert plan.trials is not None
    search = prepare(workload, plan.target, plan.trials, seed=plan.seed, log=plan.log, policy=plan.policy)
    say(console, *(f"  {remark}" for remark in search.space.remarks))
    with progress_display(console) as search.on_progress:
        result = run(search)
    say(console, f"  {result}")
    if result.ending == "interrupted":
        raise KeyboardInterrupt
    return result


def _rows(suite: Suite, plan: BenchPlan, failures: Mapping[str, str]) -> Iterator[BenchRow]:
    for case in suite.cases:
        try:
            yield _measure(case, plan)
        except LogError:
            raise
        except (AutoschedError, RuntimeError) as error:
            yield BenchRow(case, why_not=failures.get(case.name, first_line(error)))


def _measure(case: Case, plan: BenchPlan) -> BenchRow:
    """The row of a case whose kernels some log has.

    Raises:
        AutoschedError: none has, or it cannot be built here, or a function's kernels do not compute what it does.
        RuntimeError: PyTorch's, of the device.
    """
    kernel = replay(case.op, plan.target, log=plan.log, policy=plan.policy)
    if isinstance(kernel, Kernel) and (wrong := why_wrong_now(kernel, plan.seed)):
        return BenchRow(case, why_not=f"wrong results: {wrong}")
    inputs = case.inputs(plan.seed, kernel.device)
    comparison = compare_kernel(kernel, policy=plan.policy, rounds=plan.rounds, baselines=plan.baselines, inputs=inputs)
    kernels = (kernel,) if isinstance(kernel, Kernel) else kernel.kernels
    return BenchRow(case, comparison, all_of([_history(k.record, plan) for k in kernels]))


def _history(record: TuningRecord, plan: BenchPlan) -> TuningHistory | None:
    """Cost of finding the record; None if the tuned log does not have it."""
    log = TuningLog(log_path(plan.log))
    records = log.records(record.workload, record.target, plan.policy)
    return tuning_history(records) if record in records else None


def _drawn(table: BenchTable, folder: Path) -> str:
    """Draw the picture; text on the result, to follow the name of the folder."""
    try:
        pictures = draw(roofline(table, title(table)), folder)
    except AutoschedError as error:
        return f", without a picture: {error}"
    return ": " + ", ".join(("table.md", "table.json", *(path.name for path in pictures)))
