"""Selection of records: those requested, and those of the nearest shapes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from search_spaces import Target, Workload
from search_spaces.workloads.dtypes import DTYPES
from tuning_logs.ranking import standing
from tuning_logs.record import Subject, TuningRecord
from tuning_logs.shape_distance import shape_distance

# Records of other workloads and devices that a search observes; featurising them takes a second. More teach less: for
# each shipped kernel with records of the others, these ranked with a mean correlation of 0.36, 512 with 0.33.
MOST_TOLD = 256
# The largest share of one workload and device, where there are others: of the ten first choices for these kernels the
# best took 1.6 % longer than the best of all, with a share of one half 3.1 %.
_PART_OF_ONE = 1 / 4
# If one has more, a quarter as many are slower ones as fast ones, as in shipped logs (`export.worth_shipping`): with
# the 256 fastest of 296 records of a product in float8, searches of it in bfloat16 took 6 trials to 95 % of the best,
# with slower ones among the 256 they took 3 (medians of 6 seeds).
_SLOWER_PART = 1 / 5
# Records from which these are selected.
MOST_LOOKED_THROUGH = 8 * MOST_TOLD


@dataclass(frozen=True)
class Filter:
    """A query for records by keys of workload and target, and timing policy; None is any."""

    workload: str | None = None
    target: str | None = None
    policy: str | None = None

    def admits(self, workload: str, target: str, policy: str) -> bool:
        return self.workload in (None, workload) and self.target in (None, target) and self.policy in (None, policy)


def admitted(records: Iterable[TuningRecord], wanted: Filter) -> list[TuningRecord]:
    """The records that a filter admits, in their order."""
    return [r for r in records if wanted.admits(*r.key, r.provenance.policy)]


def nearest(
    records: Iterable[TuningRecord], subject: Subject, target: Target, limit: int, policy: str | None = None
) -> list[TuningRecord]:
    """The result of `TuningLog.nearest` for a log of these records."""
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
    """The records of `nearest` that a search observes: fast and slow schedules of more than one workload or device.

    At most `most`, in their order, and one for each schedule of a workload and device: its latest.
    """
    groups: dict[Hashable, list[TuningRecord]] = {}
    for record in nearest_first:
        groups.setdefault((record.key, record.provenance.policy), []).append(record)
    chosen: list[TuningRecord] = []
    most_of_one = round(max(_PART_OF_ONE, 1 / max(1, len(groups))) * most)
    for group in map(_latest, groups.values()):
        chosen += _fast_and_slow(group, min(most_of_one, most - len(chosen)))
    return chosen


def _latest(fast_first: Sequence[TuningRecord]) -> list[TuningRecord]:
    """One record per schedule: of those of one moment the fastest."""
    by_time = sorted(fast_first, key=lambda r: (r.provenance.unix_s, r.provenance.finals, -r.measurement.latency_s))
    latest = {id(record) for record in standing(by_time)}
    return [record for record in fast_first if id(record) in latest]


def spread_evenly(among: int, most: int) -> list[int]:
    """At most `most` of `among` positions, evenly spaced."""
    chosen = min(among, most)
    return [(2 * i + 1) * among // (2 * chosen) for i in range(chosen)]


def _fast_and_slow(fast_first: Sequence[TuningRecord], most: int) -> list[TuningRecord]:
    if len(fast_first) <= most:
        return list(fast_first)
    spread = int(_SLOWER_PART * most)
    fast, slower = fast_first[: most - spread], fast_first[most - spread :]
    return [*fast, *(slower[place] for place in spread_evenly(len(slower), spread))]


def are_alike(a: Subject, b: Subject) -> bool:
    """True if schedules transfer between the two: they have the same reductions, or are one kernel."""
    return a.family == b.family


def distance(other: Subject, device: str, subject: Subject, target: Target) -> tuple[float, bool, bool, bool]:
    """The sort key of `nearest`: shape distance, and True for elements of other widths, of other types, and for another
    device.

    `device` is the key of the target that `other` was tuned for.
    """
    here, there = _dtypes(subject), _dtypes(other)
    widths = [[DTYPES[name].bytes for name in names] for names in (here, there)]
    return shape_distance(other, subject), widths[0] != widths[1], here != there, device != target.key


def _dtypes(subject: Subject) -> tuple[str, ...]:
    """Element types of inputs and outputs; none for users' own kernels."""
    if not isinstance(subject, Workload):
        return ()
    return (*(subject.inputs[place].dtype for place in subject.canonical.inputs), *(t.dtype for t in subject.outputs))
