"""Tuning logs: append-only files of tuning records, one JSON line each.

Several processes may append to one log, and any of them may be killed at any byte: an append is one write under an
inter-process lock, followed by fsync, and a line that cannot be read costs that line only.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from filelock import FileLock, Timeout

from search_spaces import LogError, Target, Workload
from tuning_logs.line_parser import FOREIGN_LINE, LineParser
from tuning_logs.ranking import best_of
from tuning_logs.record import TuningRecord
from tuning_logs.shape_distance import shape_distance

# How long to wait for another process to end its append, which takes milliseconds: a longer wait is a stuck process.
LOCK_TIMEOUT_S = 60.0
# Bytes before the end of what was read that must be unchanged for the rest to be an append; any two lines differ there.
_ANCHOR_BYTES = 256
# Enough of a file to hold its first line; a record takes 2 to 10 kB.
_HEAD_BYTES = 1 << 20


def user_log_path() -> Path:
    """The log of this user: `$XDG_DATA_HOME/autosched/tuning.jsonl`, by default under `~/.local/share`.

    Source: XDG base directory specification, which says to ignore a relative path.
    """
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "share") / "autosched" / "tuning.jsonl"


def shipped_logs() -> tuple[Path, ...]:
    """The logs that come with the package, sorted by path."""
    return tuple(sorted((Path(__file__).parent / "records").rglob("*.jsonl")))


@dataclass
class _Parsed:
    """What was read of a file so far: `offset` bytes of whole lines, `lines` of them, and the file's state then."""

    inode: int = -1
    size: int = -1
    modified_ns: int = -1
    offset: int = 0
    lines: int = 0
    anchor: bytes = b""
    records: list[TuningRecord] = field(default_factory=list)
    # The record of a last line that does not end in a newline: read again next time, it may have grown.
    unended: TuningRecord | None = None


class TuningLog:
    """The records of one file, in the order they were written. A file that does not exist yet is an empty log.

    Lines are parsed once; later reads parse only what was appended since. A line that is torn, or is not a record, is
    skipped with a warning that names file and line.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._parsed = _Parsed()
        self._parser = LineParser()

    def append(self, *records: TuningRecord) -> None:
        """Write the records at the end: all of them or none.

        Raises:
            LogError: the file is not a tuning log, cannot be written, or the disk is full. It is left as it was.
        """
        if records:
            self._append(b"".join(json.dumps(r.to_json(), allow_nan=False).encode() + b"\n" for r in records))

    def check_writable(self) -> None:
        """Raise the LogError that `append` would raise now; an absent file is created, empty."""
        self._append(b"")

    def _append(self, data: bytes) -> None:
        if self.path.is_dir():
            raise LogError(
                f"{self.path} is a directory; expected the path of a tuning log, such as {self.path}/tuning.jsonl"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._refuse_foreign()
            with FileLock(f"{self.path}.lock", timeout=LOCK_TIMEOUT_S):
                self._append_locked(data)
        except Timeout:
            raise LogError(f"{self.path}: another process has held its lock for {LOCK_TIMEOUT_S:.0f} s") from None
        except LogError:
            raise
        except OSError as error:
            raise LogError(f"cannot append to {self.path}: {error.strerror or error}; nothing was written") from error

    def _refuse_foreign(self) -> None:
        """Raise LogError for a file that is no log, before a lock file is left beside it."""
        if self.path.is_file():
            with self.path.open("rb") as file:
                reason = _why_foreign(file.read(_HEAD_BYTES))
            if reason:
                raise LogError(f"{self.path} is not a tuning log: {reason}; nothing was written")

    def _append_locked(self, data: bytes) -> None:
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(file).st_size
            if data and size and os.pread(file, 1, size - 1) != b"\n":
                data = b"\n" + data
            try:
                _write_all(file, data)
                os.fsync(file)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(file, size)
                raise
        finally:
            os.close(file)

    def __iter__(self) -> Iterator[TuningRecord]:
        """Every record that can be read, oldest first.

        Raises:
            LogError: the file exists but cannot be read.
        """
        self._read()
        parsed = self._parsed
        yield from islice(parsed.records, len(parsed.records))
        if parsed.unended is not None:
            yield parsed.unended

    def records(
        self,
        workload: Workload | None = None,
        target: Target | None = None,
        generator: str | None = None,
        policy: str | None = None,
    ) -> list[TuningRecord]:
        """The records of that workload, target, generator and timing policy, oldest first; None stands for any."""
        return [
            r
            for r in self
            if (workload is None or r.workload.key == workload.key)
            and (target is None or r.target.key == target.key)
            and (generator is None or r.provenance.generator == generator)
            and (policy is None or r.provenance.policy == policy)
        ]

    def best(
        self, workload: Workload, target: Target, generator: str | None = None, policy: str = "cold"
    ) -> TuningRecord | None:
        """The fastest record, by `tuning_logs.ranking.best_of`; None when no trial succeeded."""
        return best_of(self.records(workload, target, generator, policy))

    def nearest(self, workload: Workload, target: Target, limit: int) -> list[TuningRecord]:
        """At most `limit` successful records of the same operator and dtype, to warm-start a search with.

        Closest shape first; at the same distance `target` before others, and fast before slow.
        """

        def rank(record: TuningRecord) -> tuple[float, bool, float]:
            distance = distances[record.workload.key]
            return distance, record.target.key != target.key, record.measurement.latency_s

        alike = [r for r in self if r.measurement.ok and _same_operator(r.workload, workload)]
        by_key = {r.workload.key: r.workload for r in alike}
        distances = {key: shape_distance(w, workload) for key, w in by_key.items()}
        return sorted(alike, key=rank)[:limit]

    def _read(self) -> None:
        try:
            with self.path.open("rb") as file:
                state = os.fstat(file.fileno())
                known = (self._parsed.inode, self._parsed.size, self._parsed.modified_ns)
                if known == (state.st_ino, state.st_size, state.st_mtime_ns):
                    return
                if not self._is_continued(file.fileno(), state):
                    self._parsed = _Parsed()
                file.seek(self._parsed.offset)
                self._parse(file.read())
                self._parsed.inode, self._parsed.size, self._parsed.modified_ns = (
                    state.st_ino,
                    self._parsed.offset if self._parsed.unended is None else state.st_size,
                    state.st_mtime_ns,
                )
        except FileNotFoundError:
            self._parsed = _Parsed()
        except OSError as error:
            raise LogError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _is_continued(self, file: int, state: os.stat_result) -> bool:
        """Whether the file still starts with what was read of it."""
        parsed = self._parsed
        if state.st_ino != parsed.inode or state.st_size < parsed.offset:
            return False
        return os.pread(file, len(parsed.anchor), parsed.offset - len(parsed.anchor)) == parsed.anchor

    def _parse(self, data: bytes) -> None:
        parsed = self._parsed
        *whole, rest = data.split(b"\n")
        for line in whole:
            parsed.lines += 1
            record = self._record(line, parsed.lines)
            if record is not None:
                parsed.records.append(record)
        ended = len(data) - len(rest)
        parsed.offset += ended
        parsed.anchor = (parsed.anchor + data[max(0, ended - _ANCHOR_BYTES) : ended])[-_ANCHOR_BYTES:]
        parsed.unended = self._record(rest, parsed.lines + 1)

    def _record(self, line: bytes, number: int) -> TuningRecord | None:
        if not line.strip():
            return None
        try:
            return self._parser.parse(line)
        except FOREIGN_LINE as error:
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"{self.path}, line {number}: skipped, not a tuning record ({reason})", stacklevel=4)
            return None


def _same_operator(a: Workload, b: Workload) -> bool:
    return (a.name, a.output.dtype) == (b.name, b.output.dtype)


def _why_foreign(head: bytes) -> str | None:
    """Why a file that starts like this is no tuning log; a first line that was torn while written is no reason."""
    line, ended, _ = head.lstrip().partition(b"\n")
    opening = b'{"schema"'
    if not line or line.startswith(opening) or (not ended and opening.startswith(line)):
        return None
    expected = 'expected a first line such as {"schema": 1, "workload": …}'
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    return None if isinstance(data, dict) and "schema" in data else f"{expected}, got {line[:60]!r}"


def _write_all(file: int, data: bytes) -> None:
    """One write; the rest of it where the system took only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
