"""The figures of a task that an overview and its own section show."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.reporting.analysis.roofline import RooflinePosition, position
from autosched.reporting.analysis.tasks import Task


@dataclass(frozen=True)
class Summary:
    """A task, the name of its section within the page, its place in the roofline, and its failed trials."""

    task: Task
    anchor: str
    position: RooflinePosition | None
    failed: int


def summary(task: Task, anchor: str) -> Summary:
    failed = sum(not record.measurement.ok for record in task.trials)
    return Summary(task, anchor, position(task), failed)
