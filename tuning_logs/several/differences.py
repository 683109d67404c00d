"""Differences of kernels from one log to another: slower or faster than before, and changes of the environment.

Two measurements of one kernel always differ. A difference counts here if the repeats are significant, and if it exceeds
the usual difference of two sessions on one device without any change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from search_spaces import Schedule
from tuning_logs.intervals import Interval, paired_ratio, ratio_interval
from tuning_logs.ranking import best_of, standing
from tuning_logs.record import TuningRecord

Verdict = Literal["slower", "faster", "same"]

# Of the 106 shipped finalists whose kernel, with the same source, was timed in the finals of two sessions, 9 of 10
# differed by 4.1 % or less; the median was 1.6 % (`python tests/figures/sessions.py`).
BETWEEN_SESSIONS = 0.04


@dataclass(frozen=True)
class Difference:
    """The best of a kernel before and after, and the schedules that both logs have measured.

    `same_schedules` were successful in both, and `same_source` of these had the same generated source. `same_ratio` is
    their median slow-down, with the interval where there are enough.
    """

    before: TuningRecord
    after: TuningRecord
    same_schedules: int
    same_source: int
    same_ratio: float | None
    same_interval: Interval | None

    @property
    def ratio(self) -> float:
        """The slow-down of the best."""
        return self.after.measurement.latency_s / self.before.measurement.latency_s

    @property
    def interval(self) -> Interval | None:
        """The ratio's interval, from the repeats of both; None where there are too few."""
        before, after = self.before.measurement.latencies_s, self.after.measurement.latencies_s
        rounds = min(len(before), len(after))
        return ratio_interval(after[:rounds], before[:rounds])

    @property
    def verdict(self) -> Verdict:
        interval = self.interval
        if max(self.ratio, 1 / self.ratio) <= 1 + BETWEEN_SESSIONS or (interval is not None and 1.0 in interval):
            return "same"
        return "slower" if self.ratio > 1 else "faster"

    @property
    def changed(self) -> dict[str, tuple[str, str]]:
        """Devices and versions that differ between the two measurements, before and after."""
        before, after = _environment(self.before), _environment(self.after)
        names = dict.fromkeys([*before, *after])
        pairs = {name: (before.get(name, "unknown"), after.get(name, "unknown")) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def to_json(self) -> dict[str, Any]:
        interval, same = self.interval, self.same_interval
        return {
            "kernel": self.after.subject.label,
            "key": self.after.subject.key,
            "policy": self.after.provenance.policy,
            "devices": [self.before.target.device, self.after.target.device],
            "before_s": self.before.measurement.latency_s,
            "after_s": self.after.measurement.latency_s,
            "ratio": round(self.ratio, 4),
            "interval": [round(interval.low, 4), round(interval.high, 4)] if interval else None,
            "verdict": self.verdict,
            "same_schedule": self.before.schedule == self.after.schedule,
            "schedules_in_both": self.same_schedules,
            "with_the_same_source": self.same_source,
            "ratio_of_these": None if self.same_ratio is None else round(self.same_ratio, 4),
            "interval_of_these": [round(same.low, 4), round(same.high, 4)] if same else None,
            "changed": {name: list(pair) for name, pair in self.changed.items()},
        }


def differences(before: Iterable[TuningRecord], after: Iterable[TuningRecord]) -> list[Difference]:
    """Kernels that both logs have, by key and timing policy, largest slow-down first.

    Measurements of one device are compared; where a kernel was on no device in both logs, those of one device with
    those of every other.
    """
    found = list(_differences(_tasks(before), _tasks(after)))
    return sorted(found, key=lambda difference: -difference.ratio)


# By kernel and timing policy, and then by device: its records, oldest first.
_Tasks = dict[tuple[str, str], dict[str, list[TuningRecord]]]


def _tasks(records: Iterable[TuningRecord]) -> _Tasks:
    tasks: _Tasks = defaultdict(lambda: defaultdict(list))
    for record in records:
        tasks[record.subject.key, record.provenance.policy][record.target.key].append(record)
    return tasks


def _differences(before: _Tasks, after: _Tasks) -> Iterator[Difference]:
    for kernel, old in before.items():
        new = after.get(kernel, {})
        common = [(device, device) for device in old if device in new]
        for one, other in common or [(one, other) for one in old for other in new]:
            difference = _difference(old[one], new[other])
            if difference is not None:
                yield difference


def _difference(before: Sequence[TuningRecord], after: Sequence[TuningRecord]) -> Difference | None:
    """None where nothing succeeded on one side."""
    best_before, best_after = best_of(before), best_of(after)
    if best_before is None or best_after is None:
        return None
    old, new = _successful(before), _successful(after)
    pairs = [(old[schedule].measurement, new[schedule].measurement) for schedule in old if schedule in new]
    took = [after.latency_s for _, after in pairs], [before.latency_s for before, _ in pairs]
    return Difference(
        before=best_before,
        after=best_after,
        same_schedules=len(pairs),
        same_source=sum(one.source is not None and one.source == other.source for one, other in pairs),
        same_ratio=paired_ratio(*took) if pairs else None,
        same_interval=ratio_interval(*took),
    )


def _successful(records: Sequence[TuningRecord]) -> dict[Schedule, TuningRecord]:
    return {record.schedule: record for record in standing(records) if record.measurement.ok}


def _environment(record: TuningRecord) -> dict[str, str]:
    return {**dict(record.provenance.versions), "device": record.target.device}
