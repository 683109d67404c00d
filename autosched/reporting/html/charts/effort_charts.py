"""Rungs of the ladder of cost that stopped trials, and the seconds of work by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from autosched.reporting.html.charts.strips import Strip, bar, strips
from autosched.reporting.html.markup import Markup
from autosched.tuning.effort import Rung, WorkSeconds
from tuning_logs.text import span_text

# The rungs at which a trial fails, and those that only tell slow kernels from fast ones.
_FAILING = ("compile", "load and run", "check")


def rungs_chart(rungs: Sequence[Rung]) -> Markup | None:
    """A row for every rung that stopped a trial, and for the finals; None without trials."""
    if not rungs or not rungs[0].came:
        return None
    shown = [rung for rung in rungs if rung.stopped or (rung is rungs[-1] and rung.came)]
    most = rungs[0].came
    rows = []
    for rung in shown:
        start, end = (100 * count / most for count in (rung.came - rung.stopped, rung.came))
        marks = [bar(0, start, "passed"), bar(start, end, "failed" if rung.name in _FAILING else "stopped")]
        figure = f"−{rung.stopped}" if rung.stopped else f"{rung.came}"
        about = f"{rung.name}: {rung.came} came, {rung.stopped} stopped"
        rows.append(Strip(rung.name, marks, figure, about))
    return strips(rows)


def work_chart(work: WorkSeconds) -> Markup | None:
    """None where no time was recorded."""
    seconds = {kind: taken for kind, taken in asdict(work).items() if taken > 0}
    if not seconds:
        return None
    longest = max(seconds.values())
    return strips(
        Strip(kind, [bar(0, 100 * taken / longest, "passed")], span_text(taken)) for kind, taken in seconds.items()
    )
