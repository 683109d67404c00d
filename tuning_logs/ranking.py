"""Which record is best: what several measurements of one schedule mean, and who wins.

A log holds a record per trial and, after a search, records of its finalists measured again, interleaved with each other
(`Provenance.finals`). The fastest of hundreds of noisy trials looks faster than it is, so once there are finals, only
they decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from search_spaces import Schedule
from tuning_logs.record import TuningRecord


def standing(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """One record per schedule, its latest, in the order in which the schedules were first tried.

    The records are those of one workload, target, generator and policy, oldest first.
    """
    latest: dict[Schedule, TuningRecord] = {}
    for record in records:
        latest[record.schedule] = record
    return list(latest.values())


def best_of(records: Sequence[TuningRecord]) -> TuningRecord | None:
    """The fastest record of one workload, target, generator and policy (oldest first); None when no trial succeeded.

    When the log ends in finals, the fastest of that round. When trials followed (a search that was interrupted), the
    fastest of all schedules by their latest measurements.
    """
    candidates = standing(records)
    round_number = records[-1].provenance.finals if records else 0
    if round_number:
        candidates = [r for r in candidates if r.provenance.finals == round_number]
    ok = [r for r in candidates if r.measurement.ok]
    return min(ok, key=lambda r: r.measurement.latency_s, default=None)
