"""Reading a compressed log, the form in which records ship: the lines of any other log. It is never appended to."""

from __future__ import annotations

import functools
import gzip
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from search_spaces import LogError, Target
from tuning_logs.record import Subject, TuningRecord
from tuning_logs.selection import are_alike, distance, nearest
from tuning_logs.storage.appending import HEAD_BYTES
from tuning_logs.storage.line_parser import LineParser
from tuning_logs.storage.reading import FileState, opened, parse_line

# Exceptions of a compressed stream that is torn, damaged, or none.
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


class PackedLog:
    """The records of a compressed log, in memory: read whole by the first query, and again when it was replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state: FileState | None = None
        self._records: list[TuningRecord] = []

    def __iter__(self) -> Iterator[TuningRecord]:
        with opened(self._path) as file:
            now = FileState.of(file) if file else None
            if file and now != self._state:
                self._records = list(_records(self._path, file))
            elif not file:
                self._records = []
            self._state = now
        return iter(self._records)


def nearest_packed(
    paths: Iterable[Path], subject: Subject, target: Target, limit: int, policy: str | None = None
) -> list[TuningRecord]:
    """The result of `TuningLog.nearest` for these logs, each of one workload and target, as one.

    Of most only the first line is read.

    Raises:
        LogError: one of them exists but cannot be read.
    """
    first = [(example, path) for path in paths if (example := _first(path)) and _guides(example, subject, target)]
    found: list[TuningRecord] = []
    for _, path in sorted(first, key=lambda pair: distance(pair[0].subject, pair[0].target.key, subject, target)):
        if len(found) < limit:
            found += nearest(PackedLog(path), subject, target, limit, policy)
    return nearest(found, subject, target, limit)


def _guides(example: TuningRecord, subject: Subject, target: Target) -> bool:
    return example.target.kind == target.kind and are_alike(example.subject, subject)


def _first(path: Path) -> TuningRecord | None:
    with opened(path) as file:
        state = FileState.of(file) if file else None
    return None if state is None else _first_in(path, state)


# Every search of a process asks for those of all shipped logs.
@functools.lru_cache(maxsize=1024)
def _first_in(path: Path, state: FileState) -> TuningRecord | None:
    """The first record of a file in a state, which is in the key of the cache alone."""
    with opened(path) as file:
        return next(_records(path, file), None) if file else None


def refuse_foreign_packed(path: Path) -> None:
    """Raise LogError for a file that is no compressed tuning log; an absent one, or a torn one, is no reason."""
    with opened(path) as file:
        if file is None:
            return
        try:
            first = gzip.GzipFile(fileobj=file).readline(HEAD_BYTES)
        except EOFError:
            return
        except (zlib.error, gzip.BadGzipFile) as error:
            raise LogError(f"{path} is not a compressed tuning log: {error}") from error
    if first.strip() and not first.startswith(b'{"schema"'):
        raise LogError(f"{path} is not a compressed tuning log: it begins with {first[:60]!r}")


def _records(path: Path, content: BinaryIO) -> Iterator[TuningRecord]:
    parser = LineParser()
    try:
        for number, line in enumerate(gzip.GzipFile(fileobj=content), 1):
            record = parse_line(parser, line, path, number)
            if record is not None:
                yield record
    except _DAMAGED as error:
        warnings.warn(f"{path}: what follows is lost, the file is torn or not compressed ({error})", stacklevel=4)
