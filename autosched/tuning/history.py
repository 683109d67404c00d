"""Cost of tuning a workload, from its records: trials, seconds, and the time until nearly the final quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuning_logs import TuningRecord

# Quality that counts as near the final one.
NEARLY = 0.95
# A longer gap is a pause between two runs on one log: a candidate may compile for 30 s and run for 10 s, and others end
# meanwhile.
_PAUSE_S = 60.0


@dataclass(frozen=True)
class TuningHistory:
    """Cost of tuning one kernel; for several kernels of one function, sums of theirs.

    `trials` schedules were measured in `seconds`, finals included; after `near_trials` and `near_s` the fastest so far
    was within 1/0.95 of the fastest of all. Trials are compared with trials here: latencies of finals, from interleaved
    rounds, are figures of another kind. The clock runs from the beginning of the first trial, without the start of the
    workers, some seconds, and pauses between runs.
    """

    trials: int
    seconds: float
    near_trials: int
    near_s: float


def tuning_history(records: Sequence[TuningRecord]) -> TuningHistory | None:
    """The history of one workload, target and policy, from all of its records, oldest first.

    None when no trial succeeded.
    """
    clock = tuning_clock(records)
    trials = [(r, at) for r, at in zip(records, clock, strict=True) if not r.provenance.finals]
    timed = [r.measurement.undisturbed_s for r, _ in trials if r.measurement.ok]
    if not timed:
        return None
    good = min(timed) / NEARLY
    number, at = next(
        (number, at)
        for number, (r, at) in enumerate(trials, 1)
        if r.measurement.ok and r.measurement.undisturbed_s <= good
    )
    return TuningHistory(len({r.schedule for r, _ in trials}), clock[-1], number, at)


def all_of(histories: Sequence[TuningHistory | None]) -> TuningHistory | None:
    """Several searches as one sequence; None if one of them is unknown."""
    known = [history for history in histories if history is not None]
    if len(known) < len(histories) or not known:
        return None
    return TuningHistory(
        trials=sum(h.trials for h in known),
        seconds=sum(h.seconds for h in known),
        near_trials=sum(h.near_trials for h in known),
        near_s=sum(h.near_s for h in known),
    )


def tuning_clock(records: Sequence[TuningRecord]) -> list[float]:
    """Seconds of tuning up to each record, without pauses between runs."""
    passed, clock = 0.0, []
    for before, record in zip((None, *records), records, strict=False):
        silence = record.provenance.unix_s - before.provenance.unix_s if before else _PAUSE_S
        resumed = before is not None and before.provenance.finals != 0 and record.provenance.finals == 0
        passed += _own_s(record) if resumed or silence >= _PAUSE_S else max(0.0, silence)
        clock.append(passed)
    return clock


def _own_s(record: TuningRecord) -> float:
    """Seconds of one trial: proposed, compiled, measured."""
    facts = record.measurement.facts
    return record.provenance.propose_s + (facts.seconds if facts else 0.0) + record.measurement.seconds
