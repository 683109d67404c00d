"""Reading a large log: an index has the lines of the records requested, and only these are parsed."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from search_spaces import LogError, Target
from tuning_logs.ranking import IsGood, any_record, best_of
from tuning_logs.record import Subject, TuningRecord
from tuning_logs.selection import Filter, distance
from tuning_logs.storage.index import Entry, LineSpan, LogIndex, Task
from tuning_logs.storage.index_store import IndexStore
from tuning_logs.storage.line_parser import LineParser
from tuning_logs.storage.reading import Extent, FileState, lines_between, opened, parse_line, still_begins_with

# Bytes of the log indexed before the index is saved and other processes may proceed: about a second's work.
_STEP_BYTES = 32 << 20
# Retries of a query while the log is replaced or edited.
_ATTEMPTS = 5

Records = list[TuningRecord]
Find = Callable[[LogIndex, BinaryIO], Records]


class _ChangedError(Exception):
    """The log was replaced or edited while it was read."""


class IndexedLog:
    """The records of a log, in its file. Iterating reads all of it; nothing is kept in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parser = LineParser()
        self._store = IndexStore(path)

    def __iter__(self) -> Iterator[TuningRecord]:
        with opened(self._path) as file:
            if file is None:
                return
            size = FileState.of(file).size
            for number, line in enumerate(lines_between(file, 0, size), 1):
                record = parse_line(self._parser, line, self._path, number)
                if record is not None:
                    yield record

    def records(self, wanted: Filter) -> Records:
        if wanted == Filter():
            return list(self)
        return self._ask(lambda index, file: self._load(file, index.places(index.matching(wanted))))

    def best(self, wanted: Filter, is_good: IsGood = any_record) -> TuningRecord | None:
        contenders = self._ask(lambda index, file: self._load(file, index.contenders(index.matching(wanted))))
        # If none of these is good, a slower one may be.
        return best_of(contenders, is_good) or (best_of(self.records(wanted), is_good) if contenders else None)

    def nearest(self, subject: Subject, target: Target, limit: int, policy: str | None = None) -> Records:
        def find(index: LogIndex, file: BinaryIO) -> Records:
            def rank(task: Task) -> tuple[tuple[float, bool, bool, bool], str, str]:
                away = distance(subjects[task.workload], task.target, subject, target)
                return away, task.workload, task.target

            alike = [t for t in index.tasks() if (t.family, t.kind) == (subject.family, target.kind)]
            alike = [t for t in alike if policy in (None, t.policy)]
            subjects = {t.workload: self._subject(index, file, t) for t in alike}
            places: list[LineSpan] = []
            for _, tasks in groupby(sorted(alike, key=rank), key=rank):
                if len(places) < limit:
                    places += index.fastest(list(tasks), limit - len(places))
            return self._load(file, places)

        return self._ask(find)

    def _subject(self, index: LogIndex, file: BinaryIO, task: Task) -> Subject:
        return self._load(file, [index.example(task)])[0].subject

    def _ask(self, find: Find) -> Records:
        """The result of `find`, with the index covering the present log."""
        for _ in range(_ATTEMPTS):
            with opened(self._path) as file:
                if file is None:
                    return []
                try:
                    return self._answer(file, find)
                except _ChangedError:
                    continue
        raise LogError(f"cannot read {self._path}: it was replaced or edited {_ATTEMPTS} times while it was read")

    def _answer(self, file: BinaryIO, find: Find) -> Records:
        def step(index: LogIndex) -> Records | None:
            if not self._catch_up(index, file):
                return None
            try:
                return find(index, file)
            except _ChangedError:
                index.clear()
                raise

        while (records := self._store.run(step)) is None:
            pass
        return records

    def _catch_up(self, index: LogIndex, file: BinaryIO) -> bool:
        """Index the next part of the rest of the log; True if nothing was left to do."""
        now = FileState.of(file)
        extent, then = index.covered()
        if then == now:
            return True
        if then is not None and not still_begins_with(file, extent, then, now):
            self._refuse_replaced(now)
            index.clear()
            extent = Extent()
        self._index_step(index, file, extent, now)
        return False

    def _refuse_replaced(self, now: FileState) -> None:
        """Raise _ChangedError when `file` is not the log any more: the index may be that of its replacement."""
        with opened(self._path) as current:
            if current is None or FileState.of(current).inode != now.inode:
                raise _ChangedError

    def _index_step(self, index: LogIndex, file: BinaryIO, start: Extent, now: FileState) -> None:
        end, offset = start, start.size
        # Entries instead of records: thousands of these would keep the garbage collector busy.
        found: list[Entry] = []
        for line in lines_between(file, start.size, now.size):
            record = parse_line(self._parser, line, self._path, end.lines + 1)
            if record is not None:
                found.append(Entry.of(end.lines + 1, LineSpan(offset, len(line), zlib.crc32(line)), record))
            offset += len(line)
            if not line.endswith(b"\n"):
                break
            end = end.after(line)
            if end.size - start.size >= _STEP_BYTES:
                break
        state = now if offset == now.size else FileState(now.inode, offset, now.modified_ns)
        index.extend(start, found, end, state)

    def _load(self, file: BinaryIO, places: Sequence[LineSpan]) -> Records:
        """The records of these lines.

        Raises:
            _ChangedError: a line is not the one that was indexed.
        """
        return [self._parser.parse(self._line(file, place)) for place in places]

    def _line(self, file: BinaryIO, place: LineSpan) -> bytes:
        line = os.pread(file.fileno(), place.size, place.offset)
        if zlib.crc32(line) != place.crc:
            raise _ChangedError
        return line
