"""The index of a tuning log: the byte ranges of the records of a key, and the columns that select among them.

The log is the only truth. An index has no record, only byte ranges and what selects them, and is made anew when the log
was changed. It is an SQLite database, so that it can be extended and queried without reading it whole.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from search_spaces import Schedule
from search_spaces.code_hash import code_hash
from tuning_logs.record import TuningRecord
from tuning_logs.selection import Filter
from tuning_logs.storage.reading import Extent, FileState

_TABLES = """
BEGIN;
CREATE TABLE log (inode TEXT, size INTEGER, modified_ns INTEGER, extent INTEGER, lines INTEGER, crc INTEGER, tail BLOB);
CREATE TABLE tasks (task INTEGER PRIMARY KEY, key TEXT UNIQUE);
CREATE TABLE records (
    line INTEGER PRIMARY KEY, offset INTEGER, size INTEGER, crc INTEGER,
    task INTEGER, schedule INTEGER, finals INTEGER, latency REAL
);
CREATE INDEX standing ON records (task, schedule, finals, latency);
PRAGMA user_version = {version};
COMMIT;
"""
# Number of fastest schedules, by latest record, whose records `contenders` returns: a ranking may weigh more than
# latencies, but no schedule that is slower than this many others wins.
_CONTENDERS = 64


class LineSpan(NamedTuple):
    """The byte range of a record in the log, and the CRC-32 of its line."""

    offset: int
    size: int
    crc: int


class Task(NamedTuple):
    """The columns that records of one kind share: all that they are selected by."""

    workload: str
    family: str
    target: str
    policy: str
    kind: str

    @staticmethod
    def of(record: TuningRecord) -> Task:
        key, target = record.key
        return Task(key, record.subject.family, target, record.provenance.policy, record.target.kind)


class Entry(NamedTuple):
    """A record's row in the index; the latency is None for a failed trial. It does not refer to the record."""

    line: int
    place: LineSpan
    task: Task
    schedule: int
    finals: int
    latency_s: float | None

    @staticmethod
    def of(line: int, place: LineSpan, record: TuningRecord) -> Entry:
        measured = record.measurement
        latency_s = measured.latency_s if measured.ok else None
        finals = int(record.provenance.finals)
        return Entry(line, place, Task.of(record), schedule_digest(record.schedule), finals, latency_s)


def index_version() -> int:
    """A positive 31-bit number that changes with the code that recognises and indexes records.

    It also changes with all other code of these packages: an index is made anew in a second for 32 MB of the log, and a
    wrong one misleads.
    """
    return int(code_hash("search_spaces", "tuning_logs"), 16) % (2**31 - 1) + 1


class LogIndex:
    """The tables of an index, over a connection that no other process writes to meanwhile.

    All methods raise `sqlite3.Error` when the database cannot be read or written, or is corrupt.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        rows = connection.execute("SELECT key, task FROM tasks").fetchall()
        try:
            self._tasks = {Task(*json.loads(key)): int(task) for key, task in rows}
        except (ValueError, TypeError) as error:
            raise sqlite3.DatabaseError(f"the index names a task that is none: {error}") from error

    @staticmethod
    def create(connection: sqlite3.Connection) -> None:
        """Make the tables of an empty index in an empty database."""
        connection.executescript(_TABLES.format(version=index_version()))

    def covered(self) -> tuple[Extent, FileState | None]:
        """The indexed part of the log, and the log's state then; None when nothing is indexed."""
        row = self._connection.execute("SELECT extent, lines, crc, tail, inode, size, modified_ns FROM log").fetchone()
        return (Extent(*row[:4]), FileState(*row[4:])) if row else (Extent(), None)

    def clear(self) -> None:
        """Drop the whole index: the indexed log no longer exists."""
        with self._connection as connection:
            for table in ("log", "tasks", "records"):
                connection.execute(f"DELETE FROM {table}")
        self._tasks.clear()

    def extend(self, start: Extent, found: Sequence[Entry], end: Extent, state: FileState) -> None:
        """Add the entries found after `start`; from now on the log, in this state, is covered up to `end`.

        A record behind `start` is dropped first: its line had no end, and may have grown since.
        """
        with self._connection as connection:
            connection.execute("DELETE FROM records WHERE line > ?", (start.lines,))
            connection.executemany(
                "INSERT INTO records (line, offset, size, crc, task, schedule, finals, latency)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                ((e.line, *e.place, self._number(e.task), e.schedule, e.finals, e.latency_s) for e in found),
            )
            connection.execute("DELETE FROM log")
            connection.execute(
                "INSERT INTO log (extent, lines, crc, tail, inode, size, modified_ns) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*end, state.inode, state.size, state.modified_ns),
            )

    def _number(self, task: Task) -> int:
        if task not in self._tasks:
            # As JSON, because SQLite refuses half of a surrogate pair, which JSON can name.
            added = self._connection.execute("INSERT INTO tasks (key) VALUES (?)", (json.dumps(task),))
            assert added.lastrowid is not None
            self._tasks[task] = added.lastrowid
        return self._tasks[task]

    def tasks(self) -> list[Task]:
        """Every task with a record, in the order in which they were first tried."""
        # A task whose only record had no line end, and was dropped, has none.
        filed = (
            "SELECT key FROM tasks WHERE EXISTS (SELECT 1 FROM records WHERE records.task = tasks.task) ORDER BY task"
        )
        return [Task(*json.loads(key)) for (key,) in self._connection.execute(filed)]

    def matching(self, wanted: Filter) -> list[Task]:
        """The tasks whose records a filter admits."""
        return [t for t in self._tasks if wanted.admits(t.workload, t.target, t.policy)]

    def places(self, tasks: Sequence[Task]) -> list[LineSpan]:
        """The lines of these tasks' records, oldest first."""
        return self._places(f"WHERE task IN ({self._numbers(tasks)}) ORDER BY line")

    def example(self, task: Task) -> LineSpan:
        """The line of one record of a task."""
        return self._places(f"WHERE task = {self._tasks[task]} LIMIT 1")[0]

    def fastest(self, tasks: Sequence[Task], limit: int) -> list[LineSpan]:
        """The lines of the `limit` fastest successful records of these tasks, fast before slow, then oldest first."""
        where = f"WHERE task IN ({self._numbers(tasks)}) AND latency IS NOT NULL"
        return self._places(f"{where} ORDER BY latency, line LIMIT {int(limit)}")

    def contenders(self, tasks: Sequence[Task]) -> list[LineSpan]:
        """The lines of the records that decide the best one of these tasks, oldest first.

        These are all records of some schedules: of those in the round of finals that the log ends in, or, when it ends
        in a trial, of the fastest by their latest records, and of the last. So `tuning_logs.ranking.best_of`, which
        uses every schedule's latest record, in the order in which schedules were first tried, and the last record of
        all, has the same result as for all records.
        """
        among = f"task IN ({self._numbers(tasks)})"
        # SQLite takes columns next to a max() from the row that has it ("Bare columns in an aggregate query").
        last, finals, schedule = self._connection.execute(
            f"SELECT max(line), finals, schedule FROM records WHERE {among}"
        ).fetchone()
        if last is None:
            return []
        schedules = self._finalists(among, finals) if finals else self._leaders(among)
        chosen = ", ".join(map(str, {schedule, *schedules}))
        return self._places(f"WHERE {among} AND schedule IN ({chosen}) ORDER BY line")

    def _finalists(self, among: str, finals: int) -> set[int]:
        rows = self._connection.execute(
            f"SELECT DISTINCT schedule FROM records WHERE {among} AND finals = ?", (finals,)
        )
        return {schedule for (schedule,) in rows}

    def _leaders(self, among: str) -> set[int]:
        """The schedules with the fastest latest records, including all that tie with the slowest of these."""
        latest = f"(SELECT schedule, latency, max(line) FROM records WHERE {among} GROUP BY schedule)"
        # SQLite finds a few of the fastest in a third of the time of sorting them all.
        rows = self._connection.execute(
            f"SELECT latency, schedule FROM {latest} WHERE latency IS NOT NULL ORDER BY latency LIMIT {_CONTENDERS + 1}"
        ).fetchall()
        leaders = {schedule for _, schedule in rows}
        if len(rows) > _CONTENDERS and rows[-2][0] == rows[-1][0]:
            ties = self._connection.execute(f"SELECT schedule FROM {latest} WHERE latency = ?", (rows[-1][0],))
            leaders |= {schedule for (schedule,) in ties}
        return leaders

    def _places(self, condition: str) -> list[LineSpan]:
        rows = self._connection.execute(f"SELECT offset, size, crc FROM records {condition}")
        return [LineSpan(*row) for row in rows]

    def _numbers(self, tasks: Iterable[Task]) -> str:
        return ", ".join(str(self._tasks[t]) for t in tasks)


def schedule_digest(schedule: Schedule) -> int:
    """A signed 64-bit number, equal for equal schedules; two of a million differ but with a chance of 3e-8."""
    said = [schedule.sketch, schedule.values, schedule.backend]
    text = json.dumps(said)
    if "true" in text or "false" in text or "." in text:
        # In Python, and so among schedules, 1 == True == 1.0.
        text = json.dumps(_as_integers(said))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def _as_integers(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_as_integers(v) for v in value]
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return value
