"""Which record is best: what several measurements of one schedule mean, and who wins.

A log holds a record per trial and, after a search, records of its finalists measured again, interleaved with each other
(`Provenance.finals`). The fastest of hundreds of noisy trials looks faster than it is, so once there are finals, only
they decide; and as the differences among finalists are small, what the finals cannot tell apart is a tie, which the
schedule that was tried first wins: the winner is not another one every time.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from search_spaces import Schedule
from tuning_logs.intervals import ratio_interval
from tuning_logs.record import TuningRecord

# How far down a ranking goes: as many as take part in finals. What is slower than so many others is nobody's choice.
_MOST_RANKED = 16
# An interval as narrow as this settles a comparison: more rounds would decide about differences that nobody notices.
_NARROW = 0.01


def standing(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """One record per schedule, its latest, in the order in which the schedules were first tried.

    The records are those of one workload, target, generator and policy, oldest first.
    """
    latest: dict[Schedule, TuningRecord] = {}
    for record in records:
        latest[record.schedule] = record
    return list(latest.values())


def best_of(records: Sequence[TuningRecord]) -> TuningRecord | None:
    """The best record of one workload, target, generator and policy (oldest first); None when no trial succeeded.

    When the log ends in finals, that round decides: the lowest median, unless schedules that come earlier in `records`
    cannot be told from it (`winner`). When trials followed (a search that was interrupted), the
    fastest of all schedules by their latest measurements.
    """
    return next(iter(ranked(records)), None)


def ranked(records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """Every record that `best_of` chooses among: the best first, the others fast before slow."""
    candidates = standing(records)
    round_number = records[-1].provenance.finals if records else 0
    if round_number:
        candidates = [r for r in candidates if r.provenance.finals == round_number]
    ok = [r for r in candidates if r.measurement.ok]
    fast_first = sorted(ok, key=lambda r: r.measurement.latency_s)
    if not (ok and round_number):
        return fast_first
    # Who was clearly slower dropped out, and has fewer.
    rounds = max(len(r.measurement.latencies_s) for r in ok)
    last = [r for r in ok if len(r.measurement.latencies_s) == rounds]
    best = last[winner([r.measurement.latencies_s for r in last])]
    return [best, *(r for r in fast_first if r is not best)]


def ranked_by_generator(records: Iterable[TuningRecord]) -> dict[str, list[TuningRecord]]:
    """The first sixteen of `ranked` for every generator; the generator that wrote last comes first.

    The records are those of one workload, target and policy, oldest first.
    """
    groups: dict[str, list[TuningRecord]] = {}
    for record in records:
        group = groups.pop(record.provenance.generator, [])
        group.append(record)
        groups[record.provenance.generator] = group
    return {generator: ranked(group)[:_MOST_RANKED] for generator, group in reversed(groups.items())}


def winner(latencies: Sequence[Sequence[float]]) -> int:
    """Which of several interleaved candidates is best: the first that cannot be told from the lowest median.

    Those whose interval of the ratio to the lowest median contains 1 are a tie with it, and the earliest of them wins,
    so that noise does not choose another one every time. Where there is no interval, the lowest median wins.
    """
    fastest = _fastest(latencies)
    intervals = (ratio_interval(other, latencies[fastest]) for other in latencies)
    return next(
        number
        for number, interval in enumerate(intervals)
        if number == fastest or (interval is not None and 1.0 in interval)
    )


def still_in(latencies: Sequence[Sequence[float]]) -> list[int]:
    """Which of several interleaved candidates could still be the fastest: all that are not clearly slower."""
    best = latencies[_fastest(latencies)]
    intervals = (ratio_interval(other, best) for other in latencies)
    return [number for number, i in enumerate(intervals) if latencies[number] is best or i is None or i.low <= 1.0]


def undecided(latencies: Sequence[Sequence[float]]) -> bool:
    """Whether more rounds could still change the `winner` of these.

    They could while another candidate's interval contains 1 and is wider than 1 %; narrower, it is a tie for good.
    """
    if len(latencies) < 2:
        return False
    best = latencies[_fastest(latencies)]
    intervals = [ratio_interval(other, best) for other in latencies if other is not best]
    return any(i is None or (1.0 in i and i.width > _NARROW) for i in intervals)


def _fastest(latencies: Sequence[Sequence[float]]) -> int:
    return min(range(len(latencies)), key=lambda number: statistics.median(latencies[number]))
