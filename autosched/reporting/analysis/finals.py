"""The finals of a task: the finalists and the library relative to the winner, round by round."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.reporting.analysis.tasks import Speedup, Task, speedup
from tuning_logs import TuningRecord


@dataclass(frozen=True)
class Finalist:
    """A finalist; `against`: its latency over the winner's, in the rounds that both have. The winner's is 1."""

    record: TuningRecord
    against: Speedup

    @property
    def is_slower(self) -> bool:
        """True if it is slower than the winner beyond noise. Of the others the winner was tried first."""
        return self.against.interval is not None and self.against.interval.low > 1.0


def finalists(task: Task) -> list[Finalist]:
    """The finalists of the round that decided, the winner first, then fast before slow; none without finals.

    Candidates that were clearly slower dropped out after their first rounds.
    """
    best = task.best
    if best is None or not best.provenance.finals:
        return []
    latest = {r.schedule: r for r in task.records if r.provenance.finals == best.provenance.finals}
    found = [_against(record, best) for record in latest.values() if record.measurement.ok]
    return sorted(found, key=lambda f: (f.record is not best, f.against.ratio))


def _against(record: TuningRecord, best: TuningRecord) -> Finalist:
    slow, fast = record.measurement.latencies_s, best.measurement.latencies_s
    rounds = min(len(slow), len(fast))
    against = speedup(slow[:rounds], fast[:rounds])
    # A record that succeeded has a latency.
    assert against is not None
    return Finalist(record, against)
