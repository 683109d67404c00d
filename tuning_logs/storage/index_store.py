"""The storage of a log's index: next to the log, else in the user's cache, else in memory. One process at a time."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from search_spaces import LogError
from tuning_logs.storage.appending import LOCK_TIMEOUT_S
from tuning_logs.storage.index import LogIndex, index_version

# Page cache that lets an index be written once, not page by page, while a log is indexed for the first time; a million
# records take about this much.
_CACHE_KIB = 64 * 1024

Answer = TypeVar("Answer")


class IndexStore:
    """The index of one log. It is used under a lock of its own, so that several processes may read one log at once."""

    def __init__(self, log: Path) -> None:
        self._places = list(_places(log))
        self._corrupt: set[Path] = set()
        self._made_anew: set[Path] = set()
        self._in_memory: sqlite3.Connection | None = None

    def run(self, work: Callable[[LogIndex], Answer]) -> Answer:
        """The result of `work` on the index, which is empty at first.

        An index that is corrupt, or was made by other code, is made anew. Where it cannot be kept (a folder that is
        read-only, a full disk, a process that blocks the lock) the next place is taken; the last one is memory. `work`
        then starts over: it must not depend on its earlier effects.

        Raises:
            LogError: whatever `work` raises.
        """
        while self._places:
            place = self._places[0]
            try:
                return self._run_at(place, work)
            except LogError:
                raise
            except (sqlite3.OperationalError, OSError):
                self._places.remove(place)
            except sqlite3.DatabaseError:
                self._renew(place)
        return work(self._memory())

    def _run_at(self, place: Path, work: Callable[[LogIndex], Answer]) -> Answer:
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{place}.lock", timeout=LOCK_TIMEOUT_S):
            if place in self._corrupt or (place.exists() and _version(place) not in (0, index_version())):
                _remove(place)
                self._corrupt.discard(place)
            with closing(_connect(str(place))) as connection:
                return work(_tables(connection))

    def _renew(self, place: Path) -> None:
        """Have a corrupt index deleted; if the new one is corrupt too, its disk is avoided."""
        if place in self._made_anew:
            self._places.remove(place)
        self._made_anew.add(place)
        self._corrupt.add(place)

    def _memory(self) -> LogIndex:
        if self._in_memory is None:
            self._in_memory = _connect(":memory:")
            weakref.finalize(self, self._in_memory.close)
        return _tables(self._in_memory)


def _places(log: Path) -> Iterator[Path]:
    yield log.with_name(f"{log.name}.index")
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():
        cache = Path(os.path.expanduser("~")) / ".cache"
    if cache.is_absolute():
        name = hashlib.sha256(str(log.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        yield cache / "autosched" / "indexes" / f"{name}.index"


def _connect(place: str) -> sqlite3.Connection:
    connection = sqlite3.connect(place, timeout=LOCK_TIMEOUT_S, check_same_thread=False)
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    return connection


def _tables(connection: sqlite3.Connection) -> LogIndex:
    if _user_version(connection) == 0:
        LogIndex.create(connection)
    return LogIndex(connection)


def _version(place: Path) -> int:
    with closing(_connect(str(place))) as connection:
        return _user_version(connection)


def _user_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _remove(place: Path) -> None:
    """Delete a database; its journal first, which would be rolled back into the next one of that name."""
    for path in (place.with_name(f"{place.name}-journal"), place):
        path.unlink(missing_ok=True)
