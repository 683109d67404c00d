"""Selecting among records: those asked for, and those of the nearest shapes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from search_spaces import Target, Workload
from search_spaces.workloads.dtypes import DTYPES
from tuning_logs.ranking import standing
from tuning_logs.record import Subject, TuningRecord
from tuning_logs.shape_distance import shape_distance

# Of what was measured elsewhere, as many records as a search is told, which take a second to describe. More teach less:
# of the kernels that ship, each told of the others, these ranked with a mean correlation of 0.36, 512 with 0.33.
MOST_TOLD = 256
# Of one workload and device at most this part of them, where there are others: of the ten first choices for these
# kernels the best took 1.6 % longer than the best of all, with half of them of one 3.1 %.
_PART_OF_ONE = 1 / 4
# Of one that has more, a quarter as many are slower ones as fast ones, as in what ships (`export.worth_shipping`): told
# the 256 fastest of 296 records of a product in float8, searches of it in bfloat16 took 6 trials to 95 % of the best,
# with slower ones among the 256 they took 3 (medians of 6 seeds).
_SLOWER_PART = 1 / 5
# Records that are looked through for these.
MOST_LOOKED_THROUGH = 8 * MOST_TOLD


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


def nearest(
    records: Iterable[TuningRecord], subject: Subject, target: Target, limit: int, policy: str | None = None
) -> list[TuningRecord]:
    """What `TuningLog.nearest` answers when these are its records."""
    found = [
        r
        for r in records
        if r.measurement.ok
        and r.target.kind == target.kind
        and policy in (None, r.provenance.policy)
        and are_alike(r.subject, subject)
    ]
    examples = {r.key: r for r in found}
    distances = {key: distance(r.subject, r.target.key, subject, target) for key, r in examples.items()}
    return sorted(found, key=lambda r: (distances[r.key], r.key, r.measurement.latency_s))[:limit]


def telling(nearest_first: Sequence[TuningRecord], most: int = MOST_TOLD) -> list[TuningRecord]:
    """Of what `nearest` has found, what a search is told: fast and slow schedules of more than one workload or device.

    At most so many, in their order, and one for each schedule of a workload and device: its latest.
    """
    groups: dict[Hashable, list[TuningRecord]] = {}
    for record in nearest_first:
        groups.setdefault((record.key, record.provenance.policy), []).append(record)
    told: list[TuningRecord] = []
    most_of_one = round(max(_PART_OF_ONE, 1 / max(1, len(groups))) * most)
    for group in map(_latest, groups.values()):
        told += _fast_and_slow(group, min(most_of_one, most - len(told)))
    return told


def _latest(fast_first: Sequence[TuningRecord]) -> list[TuningRecord]:
    """One record per schedule: of those of one moment the fastest."""
    by_time = sorted(fast_first, key=lambda r: (r.provenance.unix_s, r.provenance.finals, -r.measurement.latency_s))
    latest = {id(record) for record in standing(by_time)}
    return [record for record in fast_first if id(record) in latest]


def spread_evenly(among: int, most: int) -> list[int]:
    """At most so many places among others, with as many between two of them everywhere."""
    chosen = min(among, most)
    return [(2 * i + 1) * among // (2 * chosen) for i in range(chosen)]


def _fast_and_slow(fast_first: Sequence[TuningRecord], most: int) -> list[TuningRecord]:
    if len(fast_first) <= most:
        return list(fast_first)
    spread = int(_SLOWER_PART * most)
    fast, slower = fast_first[: most - spread], fast_first[most - spread :]
    return [*fast, *(slower[place] for place in spread_evenly(len(slower), spread))]


def are_alike(a: Subject, b: Subject) -> bool:
    """Whether a schedule of one may say something of the other: they have the same reductions, or are one kernel."""
    return a.family == b.family


def distance(other: Subject, device: str, subject: Subject, target: Target) -> tuple[float, bool, bool, bool]:
    """What `nearest` sorts by first: how far the shape is, whether elements are of other widths, of other types, and
    whether the device is another.

    `device` is the key of the target that `other` was tuned for.
    """
    here, there = _dtypes(subject), _dtypes(other)
    widths = [[DTYPES[name].bytes for name in names] for names in (here, there)]
    return shape_distance(other, subject), widths[0] != widths[1], here != there, device != target.key


def _dtypes(subject: Subject) -> tuple[str, ...]:
    """What elements are read as and written as; the kernels of a user tell nothing of it."""
    if not isinstance(subject, Workload):
        return ()
    return (*(subject.inputs[place].dtype for place in subject.canonical.inputs), *(t.dtype for t in subject.outputs))
