"""Reads lines of a tuning log; lines of one workload and target share these two objects, and so parse fast."""

from __future__ import annotations

import json
import math
from typing import Any

from search_spaces import Target
from tuning_logs.measurement import Measurement
from tuning_logs.record import Provenance, Subject, TuningRecord, schedule_of

# What stands between the part that the lines of a search have in common and the part that differs.
_AFTER_TARGET = b', "schedule": '

# Everything that parsing a foreign line can raise.
FOREIGN_LINE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)

# How many workloads and targets are remembered at most: about 50 MB of them, and more than one log is known to hold.
_REMEMBERED = 4096
# No integer of a database is larger.
_LATEST_FINALS = 2**63 - 1


class LineParser:
    """Remembers the workloads and targets that it has seen."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[Subject, Target]] = {}

    def parse(self, line: bytes) -> TuningRecord:
        """The record of a line.

        Raises:
            one of FOREIGN_LINE: the line is not a record of this schema; the message says why.
        """
        head, mark, rest = line.partition(_AFTER_TARGET)
        seen = self._seen.get(head)
        if seen and mark:
            record = _record(*seen, json.loads(b'{"schedule": ' + rest))
        else:
            record = _whole_record(line)
            if mark and _is_whole(head):
                self._remember(head, record)
        _check(record)
        return record

    def _remember(self, head: bytes, record: TuningRecord) -> None:
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[head] = record.subject, record.target


def _whole_record(line: bytes) -> TuningRecord:
    data = json.loads(line)
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object, got {type(data).__name__}")
    record = TuningRecord.from_json(data)
    for name, text in (("workload name", record.subject.name), ("device", record.target.key)):
        if not isinstance(text, str):
            raise TypeError(f"{name} {text!r}, expected text")
    return record


def _record(subject: Subject, target: Target, data: dict[str, Any]) -> TuningRecord:
    return TuningRecord(
        subject=subject,
        target=target,
        schedule=schedule_of(data, target),
        measurement=Measurement.from_json(data["measurement"]),
        provenance=Provenance.from_json(data["provenance"]),
    )


def _check(record: TuningRecord) -> None:
    """Raise one of FOREIGN_LINE for a record that could not be filed or ranked."""
    for latency in record.measurement.latencies_s:
        if not (math.isfinite(latency) and latency > 0):
            raise ValueError(f"latency {latency}, expected a positive number of seconds")
    origin = record.provenance
    if not (isinstance(origin.generator, str) and isinstance(origin.policy, str)):
        raise TypeError(f"generator {origin.generator!r} and policy {origin.policy!r}, expected text")
    if not (isinstance(origin.finals, int) and 0 <= origin.finals <= _LATEST_FINALS):
        raise ValueError(f"finals {origin.finals!r}, expected 0 or milliseconds since 1970")
    hash(record.schedule)


def _is_whole(head: bytes) -> bool:
    """Whether the line was cut between two members of its object, and not inside a string."""
    try:
        return list(json.loads(head + b"}")) == ["schema", "workload", "target"]
    except ValueError:
        return False
