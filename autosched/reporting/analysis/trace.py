"""The course of a search: the latency of every trial, and the best so far, by trials and by seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosched.reporting.analysis.tasks import Task
from tuning_logs import TuningRecord


@dataclass(frozen=True)
class TracePoint:
    """A trial: its number from 1 on, seconds of tuning up to its end, and its latency; None if it failed."""

    number: int
    at_s: float
    latency_s: float | None


def trace(task: Task) -> list[TracePoint]:
    """Every trial of a task, in the order of its log."""
    timed = zip(task.records, task.clock_s, strict=True)
    trials = ((record, at_s) for record, at_s in timed if not record.provenance.finals)
    return [TracePoint(number, at_s, _latency_s(record)) for number, (record, at_s) in enumerate(trials, 1)]


def improvements(points: Sequence[TracePoint]) -> list[TracePoint]:
    """The trials that were faster than all before them."""
    found: list[TracePoint] = []
    best_s = float("inf")
    for point in points:
        if point.latency_s is not None and point.latency_s < best_s:
            best_s = point.latency_s
            found.append(point)
    return found


def _latency_s(record: TuningRecord) -> float | None:
    return record.measurement.latency_s if record.measurement.ok else None
