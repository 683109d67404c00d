"""Reading a small log: every line is parsed once and kept; later reads parse only what was appended since."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tuning_logs.record import TuningRecord
from tuning_logs.storage.line_parser import LineParser
from tuning_logs.storage.reading import Extent, FileState, lines_between, opened, parse_line, still_begins_with


class ParsedLog:
    """The records of a log, in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parser = LineParser()
        self._forget()

    def _forget(self) -> None:
        self._extent = Extent()
        self._state: FileState | None = None
        self._records: list[TuningRecord] = []
        # The record of a last line that does not end in a newline: read again next time, it may have grown.
        self._unended: TuningRecord | None = None

    def __iter__(self) -> Iterator[TuningRecord]:
        self._read()
        unended = self._unended
        yield from islice(self._records, len(self._records))
        if unended is not None:
            yield unended

    def _read(self) -> None:
        with opened(self._path) as file:
            if file is None:
                self._forget()
                return
            now, then = FileState.of(file), self._state
            if now == then:
                return
            if then is not None and not still_begins_with(file, self._extent, then, now):
                self._forget()
            self._unended = None
            for line in lines_between(file, self._extent.size, now.size):
                self._add(line)
            self._state = now

    def _add(self, line: bytes) -> None:
        record = parse_line(self._parser, line, self._path, self._extent.lines + 1)
        if not line.endswith(b"\n"):
            self._unended = record
            return
        self._extent = self._extent.after(line)
        if record is not None:
            self._records.append(record)
