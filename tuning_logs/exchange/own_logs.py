"""Our own tuning logs as recorded tables, and back: a table for each workload, target and timing policy.

The round trip loses what a table has no place for: details of failures, the state of the device, and the library's
latencies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from search_spaces import Schedule
from search_spaces.parsed_json import text
from search_spaces.schedules.plain_space import PlainValue
from tuning_logs.exchange.recorded_table import (
    Origin,
    RecordedTable,
    RecordedTrial,
    gathered,
    latest,
    names_in,
    point_of,
    spread,
    values_of,
)
from tuning_logs.measurement import CompileFacts, Measurement
from tuning_logs.ranking import standing
from tuning_logs.record import TuningRecord, record_of

# The knobs for sketch and backend of a point. No sketch has knobs of these names.
_SKETCH, _BACKEND = "sketch", "backend"


def tables_of(records: Iterable[TuningRecord]) -> Iterator[RecordedTable]:
    """A table for each workload, target and timing policy, in order of first appearance."""
    tasks: dict[tuple[str, str, str], list[TuningRecord]] = {}
    for record in records:
        tasks.setdefault((*record.key, record.provenance.policy), []).append(record)
    for task in tasks.values():
        yield _table_of(task)


def _table_of(records: Sequence[TuningRecord]) -> RecordedTable:
    last = records[-1]
    rows = [(_values(record.schedule), record) for record in standing(records)]
    orders = dict.fromkeys((record.schedule.sketch, tuple(record.schedule.knobs)) for _, record in rows)
    names = names_in(values for values, _ in rows)
    trials = latest(_trial(point_of(values, names), record) for values, record in rows)
    return RecordedTable(
        kernel=last.subject.label,
        device=last.target.device,
        names=names,
        values=values_of(trials, len(names)),
        trials=trials,
        origin=Origin(last.subject, last.target, last.provenance, tuple(orders)),
    )


def _values(schedule: Schedule) -> dict[str, PlainValue]:
    values: dict[str, PlainValue] = {_SKETCH: schedule.sketch, _BACKEND: schedule.backend}
    for name, value in schedule.values:
        values |= spread(name, value)
    return values


def _trial(point: tuple[PlainValue, ...], record: TuningRecord) -> RecordedTrial:
    measured = record.measurement
    return RecordedTrial(
        point=point,
        seconds=measured.latency_s if measured.ok else None,
        status=measured.status,
        repeats_s=measured.latencies_s,
        compile_s=measured.facts.seconds if measured.facts else 0.0,
        check_s=measured.check_s,
        timing_s=measured.timing_s,
        search_s=record.provenance.propose_s,
        unix_s=record.provenance.unix_s,
        source=measured.source or "",
    )


def records_of(table: RecordedTable) -> list[TuningRecord]:
    """The records of a table made from a tuning log; none of them is one of finals.

    Raises:
        ValueError: the table was made by another tuner, whose workload is not known here; or no record is like it.
    """
    if table.origin is None or _SKETCH not in table.names or _BACKEND not in table.names:
        raise ValueError(
            "expected a table that `autosched log export` wrote; of another tuner's kernel no tuning record can be "
            "made (give it to `autosched simulate`)"
        )
    return [_record(table, table.origin, trial, place) for place, trial in enumerate(table.trials)]


def _in_order(origin: Origin, sketch: str, knobs: dict[str, PlainValue]) -> dict[str, PlainValue]:
    """The knobs in the order of their sketch: the names of a table have the order of all its sketches together."""
    ours = (names for of, names in origin.orders if of == sketch and knobs.keys() == set(names))
    return {name: knobs[name] for name in next(ours, tuple(knobs))}


def _record(table: RecordedTable, origin: Origin, trial: RecordedTrial, place: int) -> TuningRecord:
    knobs = gathered(dict(zip(table.names, trial.point, strict=True)))
    sketch, backend = text(knobs.pop(_SKETCH, None), _SKETCH), text(knobs.pop(_BACKEND, ""), _BACKEND)
    provenance = origin.provenance
    repeats = (trial.repeats_s or (trial.seconds,)) if trial.seconds is not None else ()
    made = TuningRecord(
        subject=origin.subject,
        target=origin.target,
        schedule=Schedule.from_json({"sketch": sketch, "values": _in_order(origin, sketch, knobs)}, backend),
        measurement=Measurement(
            status=trial.status,
            latencies_s=repeats,
            facts=CompileFacts(trial.compile_s, source=trial.source or None),
            seconds=trial.check_s + trial.timing_s,
            timing_s=trial.timing_s,
        ),
        provenance=dataclasses.replace(
            provenance,
            unix_s=provenance.unix_s if trial.unix_s is None else trial.unix_s,
            trial=place,
            finals=0,
            propose_s=trial.search_s,
        ),
    )
    # Parsed as a log's reader would: a record that it would skip is refused here.
    return record_of(origin.subject, origin.target, made.to_json())
