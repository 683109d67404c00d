"""Selecting among records: those asked for, and those of the nearest shapes."""

from __future__ import annotations

from collections.abc import Iterable

from search_spaces import Target, Workload
from search_spaces.workloads.dtypes import DTYPES
from tuning_logs.reading import Filter
from tuning_logs.record import Subject, TuningRecord
from tuning_logs.shape_distance import shape_distance


def admitted(records: Iterable[TuningRecord], wanted: Filter) -> list[TuningRecord]:
    """Those that a filter admits, in their order."""
    return [r for r in records if wanted.admits(*r.key, r.provenance.policy)]


def nearest(records: Iterable[TuningRecord], subject: Subject, target: Target, limit: int) -> list[TuningRecord]:
    """What `TuningLog.nearest` answers when these are its records."""

    found = [r for r in records if r.measurement.ok and are_alike(r.subject, subject)]
    examples = {r.key: r for r in found}
    distances = {key: distance(example, subject, target) for key, example in examples.items()}
    return sorted(found, key=lambda r: (distances[r.key], r.measurement.latency_s))[:limit]


def are_alike(a: Subject, b: Subject) -> bool:
    """Whether a schedule of one may say something of the other: the same reductions and output type, or kernel."""
    return a.family == b.family


def reductions(workload: Workload) -> tuple[str, ...]:
    """The kinds of its reductions: what workloads have in common that differ in shape and element types only."""
    return tuple(kind for kind in workload.family.split() if kind not in DTYPES)


def distance(record: TuningRecord, subject: Subject, target: Target) -> tuple[float, bool]:
    """What `nearest` sorts by first: how far the shape is, and whether the target is another one."""
    return shape_distance(record.subject, subject), record.target.key != target.key
