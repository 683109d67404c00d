"""Parser of a tuning log's lines; lines of one workload and target share these two objects, and so parse fast."""

from __future__ import annotations

from search_spaces import DataError, Target
from search_spaces.parsed_json import parsed
from tuning_logs.record import Subject, TuningRecord, record_of, subject_and_target

# Separator of the part that the lines of a search share and the part that differs.
_AFTER_TARGET = b', "schedule": '
# The members before it.
_HEAD = ["schema", "workload", "target"]

# Most workloads and targets kept: about 50 MB of them, and more than any known log has.
_REMEMBERED = 4096


class LineParser:
    """A parser with a cache of workloads and targets."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[Subject, Target]] = {}

    def parse(self, line: bytes) -> TuningRecord:
        """The record of a line.

        Raises:
            DataError: the line is not a record of this schema; the message says why.
        """
        head, mark, rest = line.partition(_AFTER_TARGET)
        found = self._head(head) if mark else None
        if found is None:
            return TuningRecord.from_json(parsed(line))
        data = parsed(b'{"schedule": ' + rest)
        if again := [name for name in _HEAD if name in data]:
            raise DataError(f"{again[0]} is given twice")
        return record_of(*found, data)

    def _head(self, head: bytes) -> tuple[Subject, Target] | None:
        """Subject and target of a line's first part; None where the line was split within a member of its object."""
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
