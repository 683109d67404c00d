"""Logs of searches that never ran: real schedules of a small product on an imaginary CPU, with latencies of choice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from autosched.backends import spaces
from made_up_search import OP, TARGET
from search_spaces import Schedule, SearchSpace
from tuning_logs import Measurement, Provenance, TuningRecord

# Schedules of one batch.
BATCH = 16


@cache
def space() -> SearchSpace:
    return spaces.build(OP, TARGET)


@cache
def schedules(count: int) -> tuple[Schedule, ...]:
    """Different ones, from all over the space."""
    every = max(1, sum(1 for _ in itertools.islice(space(), 20 * count)) // count)
    return tuple(itertools.islice(space(), 0, every * count, every))


def searched(count: int, latency_s: Callable[[Schedule], float | None]) -> list[TuningRecord]:
    """Trials in batches, a second each; None is a failure."""
    return [_trial(number, schedule, latency_s(schedule)) for number, schedule in enumerate(schedules(count))]


def _trial(number: int, schedule: Schedule, latency_s: float | None) -> TuningRecord:
    outcome = Measurement("compile_error", detail="too large") if latency_s is None else Measurement("ok", (latency_s,))
    provenance = Provenance("g", "cold", 1e9 + number, 0, number, propose_s=0.01 * (1 + number // BATCH))
    return TuningRecord(OP, TARGET, schedule.unbound, outcome, provenance)


def finals(of: Sequence[TuningRecord], rounds: Sequence[Sequence[float]], **measured: object) -> list[TuningRecord]:
    """Records of finals of these trials, each with its latencies; `measured` are further members of the first one."""
    found = []
    for number, (record, latencies) in enumerate(zip(of, rounds, strict=True)):
        measurement = Measurement("ok", tuple(latencies), **(measured if not number else {}))  # type: ignore[arg-type]
        provenance = replace(record.provenance, finals=7, unix_s=record.provenance.unix_s + 1000, propose_s=0.0)
        found.append(replace(record, measurement=measurement, provenance=provenance))
    return found
