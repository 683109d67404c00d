"""The records of a log worth shipping: those that replay and warm-start a search as well as all of them do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tuning_logs.ranking import standing
from tuning_logs.record import TuningRecord
from tuning_logs.selection import spread_evenly

# One slower record ships for this many of the fastest. From the fastest alone a cost model does not learn what makes a
# schedule slow: searches of another shape of a simulated CPU (8 seeds, 96 trials) ended 15 % above the best that any
# found when warm-started with the 200 fastest, 6 % with 160 and 40 slower ones, and 34 % without a warm start.
_FAST_PER_SLOW = 4


def worth_shipping(records: Sequence[TuningRecord], best: int) -> list[TuningRecord]:
    """The records to ship of one workload, target and policy, oldest first, in the same order.

    They are all records of some schedules: the `best` fastest, a quarter as many spread evenly over the slower ones,
    and those that decide which is best (`ranking.best_of`), so that the winner is the same. Details of failures are
    left out: compilers and drivers may name files of the machine.
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
