"""What of a log is worth shipping: the records that replay and warm-start a search as well as all of them do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tuning_logs.ranking import standing
from tuning_logs.record import TuningRecord
from tuning_logs.selection import spread_evenly

# For so many of the fastest one slower record ships. From the fastest alone a cost model does not learn what makes a
# schedule slow: of searches of another shape of a simulated CPU (8 seeds, 96 trials), those told of the 200 fastest
# ended 15 % above the best that any found, those told of 160 and 40 slower ones 6 %, and those told of nothing 34 %.
_FAST_PER_SLOW = 4


def worth_shipping(records: Sequence[TuningRecord], best: int) -> list[TuningRecord]:
    """Of the records of one workload, target and policy, oldest first, those to ship, in the same order.

    They are all records of some schedules: the `best` fastest, a quarter as many spread evenly over the slower ones,
    and those that decide which is best (`ranking.best_of`), so that the winner is the same. What a compiler or a driver
    said of a failure is left out: it may name files of the machine.
    """
    fast_first = sorted((r for r in standing(records) if r.measurement.ok), key=lambda r: r.measurement.latency_s)
    slower = fast_first[best:]
    spread = [slower[place] for place in spread_evenly(len(slower), best // _FAST_PER_SLOW)]
    kept = {r.schedule for r in [*fast_first[:best], *spread, *_deciding(records)]}
    return [_without_detail(r) for r in records if r.schedule in kept]


def _deciding(records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """The last record, and those of its round of finals."""
    last = records[-1:]
    finals = last[0].provenance.finals if last else 0
    return [r for r in records if r.provenance.finals == finals] if finals else list(last)


def _without_detail(record: TuningRecord) -> TuningRecord:
    return dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, detail=""))
