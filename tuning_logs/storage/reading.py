"""Reading the file of a tuning log: the bytes read already, a check that they are still there, and the lines after
them.
"""

from __future__ import annotations

import contextlib
import os
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from search_spaces import DataError, LogError, Target
from tuning_logs.ranking import IsGood
from tuning_logs.record import Subject, TuningRecord
from tuning_logs.selection import Filter
from tuning_logs.storage.line_parser import LineParser

# Bytes at the end of the part read already that are compared to recognise an append: any two lines of a log differ
# there.
_TAIL_BYTES = 256
# Block size of comparing an unchanged file: more is not faster, and must not crowd out memory.
_BLOCK_BYTES = 1 << 20


class Extent(NamedTuple):
    """The start of a log, up to the end of a line: its size in bytes and lines, its CRC-32, and its last bytes."""

    size: int = 0
    lines: int = 0
    crc: int = 0
    tail: bytes = b""

    def after(self, line: bytes) -> Extent:
        """The extent that ends one line later."""
        tail = (self.tail + line[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        return Extent(self.size + len(line), self.lines + 1, zlib.crc32(line, self.crc), tail)


@dataclass(frozen=True)
class FileState:
    """The state of a file that distinguishes a changed one. The inode is text: databases know only 63 bits."""

    inode: str
    size: int
    modified_ns: int

    @staticmethod
    def of(file: BinaryIO) -> FileState:
        stat = os.fstat(file.fileno())
        return FileState(str(stat.st_ino), stat.st_size, stat.st_mtime_ns)


def still_begins_with(file: BinaryIO, extent: Extent, then: FileState, now: FileState) -> bool:
    """True if a file that began with `extent` in state `then` still does.

    A file that only grew was appended to: the last bytes of the extent confirm it. (This misses a line in the middle
    replaced, in place, by one of the same length, with lines appended since.) After any other change the whole extent
    is compared, at the speed of reading it.
    """
    if now.inode == then.inode and now.size > then.size:
        start = extent.size - len(extent.tail)
        return os.pread(file.fileno(), len(extent.tail), start) == extent.tail
    return _crc(file, extent.size) == extent.crc


def _crc(file: BinaryIO, size: int) -> int:
    file.seek(0)
    crc = 0
    while size > 0 and (block := file.read(min(size, _BLOCK_BYTES))):
        crc = zlib.crc32(block, crc)
        size -= len(block)
    return crc


def lines_between(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """The lines from byte `start` to `end`, with their line ends; the last one may lack its own."""
    file.seek(start)
    while start < end and (line := file.readline(end - start)):
        start += len(line)
        yield line


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO | None]:
    """The log, open for reading; None when there is no such file.

    Raises:
        LogError: the file exists but cannot be read.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise _unreadable(path, error) from error
    with file:
        try:
            yield file
        except LogError:
            raise
        except OSError as error:
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> LogError:
    return LogError(f"cannot read {path}: {error.strerror or error}")


def parse_line(parser: LineParser, line: bytes, path: Path, number: int) -> TuningRecord | None:
    """The record of a line; None for a blank one, and, with a warning that names file and line, for a foreign one."""
    if not line.strip():
        return None
    try:
        return parser.parse(line)
    except DataError as error:
        warnings.warn(f"{path}, line {number}: skipped, not a tuning record ({error})", stacklevel=5)
        return None


class LogReader(Protocol):
    """The queries of a `TuningLog`; see there for their results."""

    def __iter__(self) -> Iterator[TuningRecord]: ...

    def records(self, wanted: Filter) -> list[TuningRecord]: ...

    def best(self, wanted: Filter, is_good: IsGood) -> TuningRecord | None: ...

    def nearest(
        self, subject: Subject, target: Target, limit: int, policy: str | None = None
    ) -> list[TuningRecord]: ...
