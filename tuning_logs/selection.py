"""Selecting among records: those asked for, and those of the nearest shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from search_spaces import Target, Workload
from tuning_logs.record import Subject, TuningRecord
from tuning_logs.shape_distance import shape_distance

# Of what was measured elsewhere, as many records as a search is told: enough to train a cost model, few enough to do it
# in a second.
MOST_TOLD = 512


@dataclass(frozen=True)
class Filter:
    """Which records are asked for: the keys of workload and target, and the timing policy; None is any."""

    workload: str | None = None
    target: str | None = None
    policy: str | None = None

    def admits(self, workload: str, target: str, policy: str) -> bool:
        return self.workload in (None, workload) and self.target in (None, target) and self.policy in (None, policy)


def admitted(records: Iterable[TuningRecord], wanted: Filter) -> list[TuningRecord]:
    """Those that a filter admits, in their order."""
    return [r for r in records if wanted.admits(*r.key, r.provenance.policy)]


def nearest(records: Iterable[TuningRecord], subject: Subject, target: Target, limit: int) -> list[TuningRecord]:
    """What `TuningLog.nearest` answers when these are its records."""

    found = [r for r in records if r.measurement.ok and are_alike(r.subject, subject)]
    examples = {r.key: r for r in found}
    distances = {key: distance(r.subject, r.target.key, subject, target) for key, r in examples.items()}
    return sorted(found, key=lambda r: (distances[r.key], r.measurement.latency_s))[:limit]


def are_alike(a: Subject, b: Subject) -> bool:
    """Whether a schedule of one may say something of the other: the same reductions and width of outputs, or kernel."""
    return a.family == b.family


def reductions(workload: Workload) -> tuple[str, ...]:
    """The kinds of its reductions: what workloads have in common that differ in shape and element types only."""
    return tuple(workload.family.split()[: -len(workload.outputs)])


def distance(other: Subject, device: str, subject: Subject, target: Target) -> tuple[float, bool, bool]:
    """What `nearest` sorts by first: how far the shape is, whether elements are of other types, or the device another.

    `device` is the key of the target that `other` was tuned for.
    """
    return shape_distance(other, subject), _dtypes(other) != _dtypes(subject), device != target.key


def _dtypes(subject: Subject) -> tuple[str, ...]:
    """What elements are read as and written as, and how dots take them; the kernels of a user tell nothing of it."""
    if not isinstance(subject, Workload):
        return ()
    read = (subject.inputs[place].dtype for place in subject.canonical.inputs)
    return (*read, *(t.dtype for t in subject.outputs), subject.precision)
