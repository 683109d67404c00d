"""`autosched log`: the contents of a tuning log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import typer

from autosched.cli.arguments import LogPath, console
from autosched.cli.log_files import diff_command, export_table, import_command, merge_command
from autosched.cli.shared_store import pull_command, push_command
from autosched.machine.policies import policy_text
from autosched.replaying.arguments import log_path
from autosched.tuning.effort import WorkSeconds
from autosched.tuning.terminal import say
from search_spaces import InputError
from tuning_logs import OwnKernel, Status, TuningLog, TuningRecord
from tuning_logs.exchange.files import Format
from tuning_logs.ranking import IsGood, any_record, standing
from tuning_logs.text import duration_text, table_lines

app = typer.Typer(no_args_is_help=True, help="Look into a tuning log; merge, compare, export and import logs.")
app.command("merge")(merge_command)
app.command("diff")(diff_command)
app.command("import")(import_command)
app.command("pull")(pull_command)
app.command("push")(push_command)

# A task: workload, target and timing policy. Records of different tasks are never ranked together.
_Key = tuple[str, str, str]


@dataclass
class _TaskSummary:
    """Summary of one task in a log: little of each record, because a log may have a million of them."""

    last: TuningRecord
    # The latest status of every schedule, by hash.
    statuses: dict[int, Status] = field(default_factory=dict)
    work: WorkSeconds = field(default_factory=WorkSeconds)

    def add(self, record: TuningRecord) -> None:
        self.last = record
        self.statuses[hash(record.schedule)] = record.measurement.status
        if not record.provenance.finals:
            self.work += WorkSeconds.of(record)

    def best(self, log: TuningLog, is_good: IsGood = any_record) -> TuningRecord | None:
        return log.best(self.last.subject, self.last.target, self.last.provenance.policy, is_good)

    def fastest(self, log: TuningLog, count: int) -> Iterator[tuple[TuningRecord, str]]:
        """So many schedules, the best first, with the way of measuring: exact ones, or stale ones if none is exact."""
        from autosched.backends.reproduction import Reproduction
        from autosched.replaying.replay import MOST_PRINTED

        is_good = Reproduction(MOST_PRINTED).is_exact
        winner, stale = self.best(log, is_good), ""
        if winner is None:
            winner, is_good, stale = self.best(log), any_record, ", stale"
        records = log.records(self.last.subject, self.last.target, self.last.provenance.policy)
        others = (r for r in standing(records) if r.measurement.ok and r != winner)
        ranked = filter(is_good, sorted(others, key=lambda r: r.measurement.latency_s))
        for record in islice(chain([winner] if winner else [], ranked), count):
            yield record, ("finals" if record.provenance.finals else "trial") + stale


@app.command("show")
def show_command(log: LogPath = None) -> None:
    """List what was tuned: workload, target, number of trials, best latency, failures, and where the time went."""
    tuning_log = TuningLog(log_path(log))
    rows = [("workload", "target", "policy", "trials", "best", "seconds of work", "failed")]
    for task in _tasks(tuning_log):
        best, last = task.best(tuning_log), task.last
        failed = Counter(status for status in task.statuses.values() if status != "ok").most_common()
        rows.append(
            (
                last.subject.label,
                last.target.label,
                last.provenance.policy,
                str(len(task.statuses)),
                duration_text(best.measurement.latency_s) if best else "none",
                str(task.work),
                ", ".join(f"{n} {status}" for status, n in failed),
            )
        )
    out = console()
    say(out, *table_lines(rows, right=(3, 4)))
    say(out, f"log {tuning_log.path}")


@app.command("best")
def best_command(
    log: LogPath = None,
    count: Annotated[int, typer.Option("--count", help="How many schedules of each workload.")] = 3,
) -> None:
    """Show the fastest schedules of everything that was tuned.

    The first is the one that replay builds: the winner of the finals, whose latencies were measured in interleaved
    rounds. Others may look faster in a trial of their own. If this version makes another kernel of every schedule, they
    are "stale".
    """
    if count < 1:
        raise InputError(f"count={count}; expected an integer of at least 1")
    out, tuning_log = console(), TuningLog(log_path(log))
    for task in _tasks(tuning_log):
        last = task.last
        timed = policy_text(last.provenance.policy)
        say(out, f"{last.subject.label} on {last.target.label}, {timed}", style="bold")
        for record, kind in task.fastest(tuning_log, count):
            latency = duration_text(record.measurement.latency_s)
            made = f"{record.backend}: {record.schedule.one_line}"
            say(out, f"  {latency:>8}  {kind:6}  {made}")


@app.command("export")
def export_command(
    to: Annotated[
        Path,
        typer.Option("--to", metavar="PATH", help="Where the compressed logs go; with --format a file."),
    ],
    log: LogPath = None,
    best: Annotated[int, typer.Option("--best", help="How many of the fastest schedules of each workload.")] = 200,
    target: Annotated[str | None, typer.Option("--target", help="Only this target, such as h200.")] = None,
    format: Annotated[
        Format | None, typer.Option("--format", help="Write a file of another tuner: a Kernel Tuner cache, or T4.")
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="TEXT", help="With --format: part of its name, or its key."),
    ] = None,
) -> None:
    """Write the best of a log as compressed logs, one for each workload, target and timing policy.

    Each replays the kernel that the log replays, and has a few slower schedules, too, so that searches of other shapes
    can learn from it. An earlier export for the same workload, target and timing policy is replaced; other files stay.
    Logs under tuning_logs/records ship with the package.

    ```
    autosched log export --log tuning.jsonl --to records --target h200
    ```

    With --format, all measurements of one kernel on one target are written to a file: as a Kernel Tuner cache or in T4,
    compressed if it ends in .gz. `autosched log import` makes a log of it again.

    ```
    autosched log export --log tuning.jsonl --format kernel-tuner --kernel "matmul m=512" --to matmul.json
    ```
    """
    from autosched.replaying.log_export import export

    if format:
        export_table(TuningLog(log_path(log)), to, format, target, kernel)
        return
    if best < 1:
        raise InputError(f"best={best}; expected an integer of at least 1")
    out, tuning_log = console(), TuningLog(log_path(log))
    exported = list(export(tuning_log, to, best, target))
    if not exported:
        known = sorted({record.target.name for record in tuning_log})
        of = "" if target is None or target.lower() in known else f" of {target!r} (its targets: {', '.join(known)})"
        raise InputError(
            f"{tuning_log.path} holds no successful record{of}{_own_kernels(tuning_log)}; nothing was written"
        )
    for one in exported:
        latency = duration_text(one.best.measurement.latency_s)
        held = f"{one.records} records" + ("" if one.changed else ", as before")
        say(out, f"{one.best.workload.label}: {latency}, {held}  {one.path}")
    if own := _own_kernels(tuning_log):
        say(out, own.removeprefix("; "))


def _own_kernels(log: TuningLog) -> str:
    """Remark on kernels of the user's own in a log, which an export of workloads leaves out."""
    names = sorted({record.subject.name for record in log if isinstance(record.subject, OwnKernel)})
    return (
        f"; kernels of your own, which stay in the log and are replayed by a call: {', '.join(names)}" if names else ""
    )


def _tasks(log: TuningLog) -> list[_TaskSummary]:
    tasks: dict[_Key, _TaskSummary] = {}
    for record in log:
        key = (*record.key, record.provenance.policy)
        tasks.setdefault(key, _TaskSummary(record)).add(record)
    if not tasks:
        raise InputError(f"{log.path} holds no tuning record; make some with `autosched demo` or `autosched tune`")
    return list(tasks.values())
