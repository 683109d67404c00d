"""Grounds on which a result stands, and what weakens it, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from autosched.machine.noise import why_disturbed
from autosched.reporting.analysis.finals import Finalist
from autosched.reporting.analysis.tasks import Task


def certainty(task: Task, finals: list[Finalist]) -> Iterator[str]:
    """Sentences on the decision, the check of results, and disturbances; none where no trial succeeded."""
    best = task.best
    if best is None:
        return
    rounds = len(best.measurement.latencies_s)
    if finals:
        others, ties = len(finals) - 1, sum(not f.is_slower for f in finals[1:])
        beside = {0: "alone", 1: "against one other"}.get(others, f"against {others} others")
        undecided = f", {ties} of them no slower beyond noise" if ties else ", clearly slower" if others else ""
        yield f"Decided by finals: {rounds} interleaved rounds {beside}{undecided}."
    else:
        yield "No finals: the fastest of many trials looks faster than it is."
    error = best.measurement.max_error
    if error is not None:
        yield f"Results checked against float64: the largest error was {error:.0%} of the tolerance."
    if disturbed := why_disturbed(record.measurement for record in task.trials):
        yield f"Disturbed: {disturbed}."
