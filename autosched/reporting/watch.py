"""`autosched watch`: a search under way in another process, read from its log."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from autosched.reporting.analysis.tasks import Task
from autosched.reporting.analysis.trace import TracePoint, improvements, trace
from autosched.tuning.terminal import written
from search_spaces import InputError
from tuning_logs import TuningRecord
from tuning_logs.packing import is_packed
from tuning_logs.storage.parsed_log import ParsedLog
from tuning_logs.text import duration_text, span_text

_SECONDS_BETWEEN = 1.0
# The rate is that of the last minute.
_RATE_S = 60.0
_BARS = "▁▂▃▄▅▆▇█"
_SPARK_LENGTH = 8
# Lines of the terminal that are no task: the heading, the line below the table, and the prompt.
_OTHER_LINES = 4
# Of which the first are to the left, and may be broken.
_COLUMNS = ("kernel", "device", "best", "library", "trials", "failed", "/min", "ago", "")


def watch(log: Path, console: Console, *, once: bool = False, now: Callable[[], float] = time.time) -> None:
    """Show the tasks of a log, the last one that had a trial first, until Ctrl-C; `once` shows them and returns.

    The log may not exist yet, may grow meanwhile, and is only read. A line that is being written counts later.

    Raises:
        InputError: the log is a compressed one, to which nothing is written; with `once`, it holds no record.
        LogError: the file cannot be read.
    """
    if is_packed(log):
        raise InputError(f"{log} is compressed, and no search writes to it; `autosched report` shows it")
    reader = ParsedLog(log)
    if once:
        found = _tasks(reader, log)
        if not found:
            raise InputError(f"{log} holds no tuning record")
        console.print(picture(found, now(), len(found)))
        return
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                rows = max(1, console.size.height - _OTHER_LINES)
                moment, found = now(), _tasks(reader, log)
                live.update(picture(found, moment, rows) if found else written(f"waiting for {log}"), refresh=True)
                time.sleep(_SECONDS_BETWEEN)
    except KeyboardInterrupt:
        return


def picture(tasks: Sequence[Task], now_s: float, rows: int) -> RenderableType:
    """A table of at most so many tasks, the last one that had a trial first."""
    latest = sorted(tasks, key=_last_s, reverse=True)
    devices = list(dict.fromkeys(task.target.label for task in tasks))
    # One device stands below the table: a terminal is narrow.
    left_out = "device" if len(devices) == 1 else None
    table = Table(box=None, pad_edge=False, header_style="dim")
    for place, name in enumerate(_COLUMNS):
        if name != left_out:
            table.add_column(name, justify="left" if place < 2 else "right", no_wrap=place >= 2)
    for task in latest[:rows]:
        cells = zip(_COLUMNS, _row(task, now_s), strict=True)
        table.add_row(*(written(cell) for name, cell in cells if name != left_out))
    trials = sum(len(task.trials) for task in tasks)
    on = f" on {devices[0]}" if left_out else ""
    more = f", {counted(len(tasks) - rows, 'kernel')} not shown" if len(tasks) > rows else ""
    told = f"{counted(trials, 'trial')} of {counted(len(tasks), 'kernel')}{on}{more}"
    return Group(table, written(told, "dim"))


def _tasks(reader: Iterable[TuningRecord], log: Path) -> list[Task]:
    by_task: dict[tuple[str, str, str], list[TuningRecord]] = {}
    with warnings.catch_warnings():
        # Unreadable lines are for those who read the log's contents; a warning would tear the picture.
        warnings.simplefilter("ignore")
        for record in reader:
            by_task.setdefault((*record.key, record.provenance.policy), []).append(record)
    return [Task(log, tuple(records)) for records in by_task.values()]


def _row(task: Task, now_s: float) -> tuple[str, ...]:
    failed = sum(not record.measurement.ok for record in task.trials)
    recent = sum(now_s - record.provenance.unix_s <= _RATE_S for record in task.trials)
    against = task.against_library
    return (
        task.subject.label,
        task.target.label,
        duration_text(task.best.measurement.latency_s) if task.best else "none",
        f"{against.ratio:.2f}x" if against else "",
        str(len(task.trials)),
        str(failed),
        str(recent),
        # Clocks of two machines may differ.
        span_text(max(1.0, math.floor(now_s - _last_s(task)))),
        sparkline(trace(task)),
    )


def _last_s(task: Task) -> float:
    return task.records[-1].provenance.unix_s


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("s" if count != 1 else "")


def sparkline(points: Sequence[TracePoint]) -> str:
    """The best so far over trials, in blocks: the lowest is the fastest, on a logarithmic scale; blank before any."""
    best = [(point.number, point.latency_s) for point in improvements(points) if point.latency_s is not None]
    if not best:
        return ""
    slowest, fastest = math.log(best[0][1]), math.log(best[-1][1])
    length = min(_SPARK_LENGTH, len(points))
    found = ""
    for place in range(length):
        number = (place + 1) * len(points) // length
        known = [latency for at, latency in best if at <= number]
        height = (math.log(known[-1]) - fastest) / (slowest - fastest or 1.0) if known else -1.0
        found += _BARS[round(height * (len(_BARS) - 1))] if known else " "
    return found
