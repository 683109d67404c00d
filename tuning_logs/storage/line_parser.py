"""Reads lines of a tuning log; lines of one workload and target share these two objects, and so parse fast."""

from __future__ import annotations

from search_spaces import DataError, Target
from search_spaces.parsed_json import parsed
from tuning_logs.record import Subject, TuningRecord, record_of, subject_and_target

# What stands between the part that the lines of a search have in common and the part that differs.
_AFTER_TARGET = b', "schedule": '
# The members before it.
_HEAD = ["schema", "workload", "target"]

# How many workloads and targets are remembered at most: about 50 MB of them, and more than one log is known to hold.
_REMEMBERED = 4096


class LineParser:
    """Remembers the workloads and targets that it has seen."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[Subject, Target]] = {}

    def parse(self, line: bytes) -> TuningRecord:
        """The record of a line.

        Raises:
            DataError: the line is not a record of this schema; the message says why.
        """
        head, mark, rest = line.partition(_AFTER_TARGET)
        told = self._told(head) if mark else None
        if told is None:
            return TuningRecord.from_json(parsed(line))
        data = parsed(b'{"schedule": ' + rest)
        if again := [name for name in _HEAD if name in data]:
            raise DataError(f"{again[0]} is told twice")
        return record_of(*told, data)

    def _told(self, head: bytes) -> tuple[Subject, Target] | None:
        """What the first part of a line tells; None where the line was cut within a member of its object."""
        if head not in self._seen:
            try:
                data = parsed(head + b"}")
            except DataError:
                return None
            if not isinstance(data, dict) or list(data) != _HEAD:
                return None
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            self._seen[head] = subject_and_target(data)
        return self._seen[head]
