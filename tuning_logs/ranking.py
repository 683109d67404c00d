"""Ranking of records: the standing of a schedule by its measurements, and the winner.

A log has a record per trial and, after a search, records of its finalists measured again, interleaved with each other
(`Provenance.finals`). The fastest of hundreds of noisy trials looks faster than it is, so once there are finals, only
they decide; and as the differences among finalists are small, those that finals cannot separate are a tie, which the
schedule that was tried first wins: the winner is not another one every time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from search_spaces import Schedule
from tuning_logs.intervals import ratio_interval
from tuning_logs.record import TuningRecord

# Validity of a record, which a log does not know: its kernel may have changed since.
IsGood = Callable[[TuningRecord], bool]

# An interval as narrow as this settles a comparison: more rounds would only separate negligible differences.
_NARROW = 0.01


def any_record(record: TuningRecord) -> bool:
    """Every record is good."""
    return True


def standing(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """One record per schedule, its latest, in the order in which the schedules were first tried.

    The records are those of one workload, target and policy, oldest first, and describe kernels of one version.
    """
    latest: dict[Schedule, TuningRecord] = {}
    for record in records:
        latest[record.schedule] = record
    return list(latest.values())


def best_of(records: Sequence[TuningRecord], is_good: IsGood = any_record) -> TuningRecord | None:
    """The best of the good records of one workload, target and policy (oldest first); None when no trial succeeded.

    When the good ones end in finals, that round decides: the lowest median, unless an earlier schedule in `records`
    ties with it (`winner`). When trials followed (a search that was interrupted), the fastest of all schedules by their
    latest measurements. `is_good` is called on as few as decide: the last ones until one is good, and then the
    finalists of its round, or the fastest ones until one is good.
    """
    last = next(filter(is_good, reversed(records)), None)
    if last is None:
        return None
    tried = [r for r in _latest_of_every_kernel(records) if r.measurement.ok]
    if not last.provenance.finals:
        return next(filter(is_good, sorted(tried, key=lambda r: r.measurement.latency_s)), None)
    finalists = [r for r in tried if r.provenance.finals == last.provenance.finals and is_good(r)]
    # Clearly slower candidates dropped out, and have fewer.
    rounds = max((len(r.measurement.latencies_s) for r in finalists), default=0)
    fit = [r for r in finalists if len(r.measurement.latencies_s) == rounds]
    return fit[winner([r.measurement.latencies_s for r in fit])] if fit else None


def fastest_trial(records: Iterable[TuningRecord]) -> TuningRecord | None:
    """The successful trial of the least latency, whatever finals have said since; None without one."""
    trials = (r for r in records if r.measurement.ok and not r.provenance.finals)
    return min(trials, key=lambda r: r.measurement.undisturbed_s, default=None)


def tied_with(best: TuningRecord, records: Iterable[TuningRecord]) -> list[Schedule]:
    """The schedule of a best record, and those of the same finals that tie with it; of `records`, as of `best_of`."""
    tied = [best.schedule]
    for record in records if best.provenance.finals else ():
        latencies, others = record.measurement.latencies_s, best.measurement.latencies_s
        # One that dropped out has fewer.
        together = record.provenance.finals == best.provenance.finals and len(latencies) == len(others)
        interval = ratio_interval(latencies, others) if together else None
        if record.schedule != best.schedule and interval is not None and 1.0 in interval:
            tied.append(record.schedule)
    return tied


def _latest_of_every_kernel(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """`standing` for records of several versions, in which a schedule may have been several kernels.

    A record without a source fingerprint stands for all kernels of its schedule.
    """
    # By schedule and source: the place of the first record, and the latest one.
    latest: dict[Schedule, dict[str | None, tuple[int, TuningRecord]]] = {}
    for number, record in enumerate(records):
        kernels, source = latest.setdefault(record.schedule, {}), record.measurement.source
        same = [other for other in kernels if source in (other, None) or other is None]
        kernels[source] = min([number, *(kernels.pop(other)[0] for other in same)]), record
    kept = (pair for kernels in latest.values() for pair in kernels.values())
    return [record for _, record in sorted(kept, key=lambda pair: pair[0])]


def winner(latencies: Sequence[Sequence[float]]) -> int:
    """The best of several interleaved candidates: the first that ties with the lowest median.

    Candidates whose interval of the ratio to the lowest median contains 1 tie with it, and the earliest of them wins,
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
    """The interleaved candidates that could still be the fastest: all that are not clearly slower."""
    best = latencies[_fastest(latencies)]
    intervals = (ratio_interval(other, best) for other in latencies)
    return [number for number, i in enumerate(intervals) if latencies[number] is best or i is None or i.low <= 1.0]


def undecided(latencies: Sequence[Sequence[float]]) -> bool:
    """True if more rounds could still change the `winner` of these.

    They could while another candidate's interval contains 1 and is wider than 1 %; narrower, it is a tie for good.
    """
    if len(latencies) < 2:
        return False
    best = latencies[_fastest(latencies)]
    intervals = [ratio_interval(other, best) for other in latencies if other is not best]
    return any(i is None or (1.0 in i and i.width > _NARROW) for i in intervals)


def _fastest(latencies: Sequence[Sequence[float]]) -> int:
    return min(range(len(latencies)), key=lambda number: statistics.median(latencies[number]))
