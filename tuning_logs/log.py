"""Tuning logs: append-only files of tuning records, one JSON line each; shipped ones are compressed and read-only.

Several processes may append to one log, and any of them may be killed at any byte: an append is one write under an
inter-process lock, followed by fsync, and an unreadable line costs that line only.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from search_spaces import LogError, Target
from tuning_logs.packing import PACKED_SUFFIX, is_packed
from tuning_logs.ranking import IsGood, any_record
from tuning_logs.record import Subject, TuningRecord
from tuning_logs.selection import Filter
from tuning_logs.storage.appending import append_lines, why_foreign
from tuning_logs.storage.indexed_log import IndexedLog
from tuning_logs.storage.memory_log import MemoryLog
from tuning_logs.storage.packed_log import PackedLog, refuse_foreign_packed
from tuning_logs.storage.parsed_log import ParsedLog
from tuning_logs.storage.reading import LogReader

# A log of this size (about 4,000 records) is parsed in a fifth of a second. A smaller one needs no index: parsing it
# costs less than a user notices, and no file appears next to it.
INDEX_FROM_BYTES = 8 << 20


def user_log_path() -> Path:
    """The log of this user: `$XDG_DATA_HOME/autosched/tuning.jsonl`, by default under `~/.local/share`.

    Source: XDG base directory specification, which says to ignore a relative path.
    """
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "share") / "autosched" / "tuning.jsonl"


def shipped_logs() -> tuple[Path, ...]:
    """The logs that come with the package, sorted by path: `records/<target>/<workload …>.jsonl.gz`."""
    return tuple(sorted((Path(__file__).parent / "records").rglob(f"*{PACKED_SUFFIX}")))


class TuningLog:
    """The records of one file, in the order they were written. A file that does not exist yet is an empty log.

    A log below `INDEX_FROM_BYTES` is parsed once and kept; later reads parse only what was appended since. A larger one
    is not kept in memory: `records`, `best` and `nearest` find the records they need by an index. The index is a file
    `<log>.index` (in the user's cache where the log's folder is read-only, in memory where nothing is writable). It is
    made by the first look-up, extended when the log was appended to, made anew when the log was changed in another way,
    and may be deleted at any time.

    A line that is torn, or is not a record, is skipped with a warning that names file and line. Every reader of a line
    warns of it: a small log when it is parsed, a large one when it is indexed and whenever it is iterated over;
    look-ups in an index do not repeat it.

    A log whose name ends in `.jsonl.gz` is a compressed one: it is read whole, and refuses appends.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._last_kind: Callable[[Path], LogReader] = _parsed
        self._last_reader = _parsed(self.path)

    def append(self, *records: TuningRecord) -> None:
        """Write the records at the end: all of them or none.

        Raises:
            LogError: the file is not a tuning log, is a compressed one, cannot be written, or the disk is full. It is
                left as it was.
        """
        if records:
            self._refuse_packed()
            data = _lines(records)
            append_lines(self.path, lambda: data)

    def append_chosen(self, choose: Callable[[], Sequence[TuningRecord]]) -> Sequence[TuningRecord]:
        """Append the records that `choose` returns while no other process appends, such as those the log lacks so far.

        Raises:
            LogError: as of `append`.
        """
        self._refuse_packed()
        chosen: list[TuningRecord] = []

        def made() -> bytes:
            chosen.extend(choose())
            return _lines(chosen)

        append_lines(self.path, made)
        return chosen

    def check_is_log(self) -> None:
        """Raise LogError for a file that is no tuning log, or cannot be read, before it warns of every line."""
        if is_packed(self.path):
            refuse_foreign_packed(self.path)
            return
        try:
            reason = why_foreign(self.path)
        except OSError as error:
            raise LogError(f"cannot read {self.path}: {error.strerror or error}") from error
        if reason:
            raise LogError(f"{self.path} is not a tuning log: {reason}")

    def check_writable(self) -> None:
        """Raise the LogError that `append` would raise now; an absent file is created, empty."""
        self._refuse_packed()
        append_lines(self.path, bytes)

    def readable(self) -> list[TuningRecord]:
        """All of its records, with one warning for all lines that cannot be read.

        Raises:
            LogError: the file cannot be read, or none of its lines can, as in a log of another version.
        """
        with warnings.catch_warnings(record=True) as skipped:
            warnings.simplefilter("always")
            # With a new reader: one that has read a line does not warn of it again.
            found = list(self._kind()(self.path))
        if skipped:
            first = str(skipped[0].message)
            if not found:
                raise LogError(f"no record of this log can be read: {first}")
            more = f"; so are {len(skipped) - 1} further lines" if len(skipped) > 1 else ""
            warnings.warn(f"{first}{more}", stacklevel=2)
        return found

    def __iter__(self) -> Iterator[TuningRecord]:
        """Every record that can be read, oldest first.

        Raises:
            LogError: the file exists but cannot be read.
        """
        return iter(self._reader())

    def records(
        self,
        workload: Subject | None = None,
        target: Target | None = None,
        policy: str | None = None,
    ) -> list[TuningRecord]:
        """The records of that workload (or own kernel), target and timing policy, oldest first; None: of any."""
        wanted = Filter(
            workload=None if workload is None else workload.key,
            target=None if target is None else target.key,
            policy=policy,
        )
        return self._reader().records(wanted)

    def best(
        self, workload: Subject, target: Target, policy: str = "cold", is_good: IsGood = any_record
    ) -> TuningRecord | None:
        """The best of the records that are good, by `tuning_logs.ranking.best_of`; None when no trial succeeded."""
        return self._reader().best(Filter(workload.key, target.key, policy), is_good)

    def nearest(self, workload: Subject, target: Target, limit: int, policy: str | None = None) -> list[TuningRecord]:
        """At most `limit` successful records of the same family (`Workload.family`), to warm-start a search with.

        They are of devices of this kind, GPUs or CPUs, and timed by `policy` (None: by any). Closest shape first; at
        the same distance elements of the same width and type before others, and `target` before other devices. Those of
        one workload and device stand together, fast before slow.
        """
        return self._reader().nearest(workload, target, limit, policy)

    def _reader(self) -> LogReader:
        kind = self._kind()
        if kind is not self._last_kind:
            self._last_kind, self._last_reader = kind, kind(self.path)
        return self._last_reader

    def _kind(self) -> Callable[[Path], LogReader]:
        if is_packed(self.path):
            return _packed
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            size = 0
        except OSError as error:
            raise LogError(f"cannot read {self.path}: {error.strerror or error}") from error
        return IndexedLog if size >= INDEX_FROM_BYTES else _parsed

    def _refuse_packed(self) -> None:
        if is_packed(self.path):
            raise LogError(
                f"{self.path} is compressed, and compressed logs are only read; write to one that ends in .jsonl"
            )


def _lines(records: Iterable[TuningRecord]) -> bytes:
    return b"".join(json.dumps(r.to_json(), allow_nan=False).encode() + b"\n" for r in records)


def _parsed(path: Path) -> LogReader:
    return MemoryLog(ParsedLog(path))


def _packed(path: Path) -> LogReader:
    return MemoryLog(PackedLog(path))
