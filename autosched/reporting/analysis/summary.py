"""The figures of a task that an overview and its own section show."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.reproduction import Reproduction
from autosched.reporting.analysis.roofline import RooflinePosition, position
from autosched.reporting.analysis.tasks import Task


@dataclass(frozen=True)
class Summary:
    """A task, the name of its section within the page, its place in the roofline, and its failed trials.

    `stale`: the reason that this version does not make the kernel of its best record; "" if it does, or nobody looked.
    """

    task: Task
    anchor: str
    position: RooflinePosition | None
    failed: int
    stale: str = ""


def summary(task: Task, anchor: str, printed: bool) -> Summary:
    """The figures; with `printed` the best record's kernel is printed anew, to see if it is stale."""
    failed = sum(not record.measurement.ok for record in task.trials)
    stale = Reproduction().why_stale(task.best) if printed and task.best else None
    return Summary(task, anchor, position(task), failed, stale or "")
