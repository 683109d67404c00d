"""`autosched log`: what a tuning log holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from autosched.arguments import log_path
from autosched.cli.arguments import LogPath, console
from autosched.text import duration_text, table_lines
from search_spaces import InputError
from tuning_logs import TuningLog, TuningRecord
from tuning_logs.ranking import best_of, standing

app = typer.Typer(no_args_is_help=True, help="Look into a tuning log.")

# A task: workload, target, generator and timing policy. Records of different tasks are never ranked together.
_Task = tuple[str, str, str, str]


@app.command("show")
def show(log: LogPath = None) -> None:
    """List what was tuned: workload, target, number of trials, best latency and failures."""
    path, tasks = _tasks(log)
    rows = [("workload", "target", "generator", "caches", "trials", "best", "failed")]
    for records in tasks.values():
        best, last, known = best_of(records), records[-1], standing(records)
        failed = Counter(r.measurement.status for r in known if not r.measurement.ok).most_common()
        rows.append(
            (
                last.workload.label,
                last.target.key,
                last.provenance.generator,
                last.provenance.policy,
                str(len(known)),
                duration_text(best.measurement.latency_s) if best else "none",
                ", ".join(f"{n} {status}" for status, n in failed),
            )
        )
    out = console()
    for line in table_lines(rows, right=(4, 5)):
        out.print(Text(line), soft_wrap=True)
    out.print(Text(f"log {path}"), soft_wrap=True)


@app.command("best")
def best(
    log: LogPath = None,
    count: Annotated[int, typer.Option("--count", help="How many schedules of each workload.")] = 3,
) -> None:
    """Show the fastest schedules of everything that was tuned."""
    if count < 1:
        raise InputError(f"count={count}; expected an integer of at least 1")
    out = console()
    _, tasks = _tasks(log)
    for records in tasks.values():
        last = records[-1]
        out.print(Text(f"{last.workload.label} on {last.target.key}, {last.provenance.policy} caches", style="bold"))
        winner = best_of(records)
        others = [r for r in standing(records) if r.measurement.ok and r is not winner]
        ranked = sorted(others, key=lambda r: r.measurement.latency_s)
        for record in ([winner] if winner else []) + ranked[: count - 1]:
            latency = duration_text(record.measurement.latency_s)
            out.print(Text(f"  {latency:>8}  {record.schedule.one_line}"), soft_wrap=True)


def _tasks(log: Path | None) -> tuple[Path, dict[_Task, list[TuningRecord]]]:
    path = log_path(log)
    tasks: dict[_Task, list[TuningRecord]] = {}
    for record in TuningLog(path):
        task = (*record.key, record.provenance.generator, record.provenance.policy)
        tasks.setdefault(task, []).append(record)
    if not tasks:
        raise InputError(f"{path} holds no tuning record; make some with `autosched demo` or `autosched tune`")
    return path, tasks
