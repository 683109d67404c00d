"""Reads lines of a tuning log; lines of one workload and target share these two objects, and so parse fast."""

from __future__ import annotations

import json
import math

from search_spaces import Schedule, Target, Workload
from tuning_logs.measurement import Measurement
from tuning_logs.record import Provenance, TuningRecord

# What stands between the part that the lines of a search have in common and the part that differs.
_AFTER_TARGET = b', "schedule": '

# Everything that parsing a foreign line can raise.
FOREIGN_LINE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class LineParser:
    """Remembers the workloads and targets that it has seen."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[Workload, Target]] = {}

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
            data = json.loads(line)
            if not isinstance(data, dict):
                raise ValueError(f"expected a JSON object, got {type(data).__name__}")
            record = TuningRecord.from_json(data)
            if mark and _is_whole(head):
                self._seen[head] = record.workload, record.target
        for latency in record.measurement.latencies_s:
            if not (math.isfinite(latency) and latency > 0):
                raise ValueError(f"latency {latency}, expected a positive number of seconds")
        return record


def _record(workload: Workload, target: Target, data: dict[str, dict[str, object]]) -> TuningRecord:
    return TuningRecord(
        workload=workload,
        target=target,
        schedule=Schedule.from_json(data["schedule"]),
        measurement=Measurement.from_json(data["measurement"]),
        provenance=Provenance.from_json(data["provenance"]),
    )


def _is_whole(head: bytes) -> bool:
    """Whether the line was cut between two members of its object, and not inside a string."""
    try:
        return list(json.loads(head + b"}")) == ["schema", "workload", "target"]
    except ValueError:
        return False
