"""Appending to a tuning log: one write under an inter-process lock, then fsync; all of it arrives, or nothing does."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from search_spaces import LogError

# Timeout for another process's append, which takes milliseconds: a longer wait is a stuck process.
LOCK_TIMEOUT_S = 60.0
# Enough of a line to recognise a record; a record takes 2 to 10 kB.
HEAD_BYTES = 1 << 20


def append_lines(path: Path, made: Callable[[], bytes]) -> None:
    """Write whole lines at the end of a log; without any, only check that this would work.

    They are `made` while no other process appends. An absent file is created. A partial line of a killed writer gets a
    line end first.

    Raises:
        LogError: the file is not a tuning log, cannot be written, or the disk is full. It is left as it was.
    """
    if path.is_dir():
        raise LogError(f"{path} is a directory; expected the path of a tuning log, such as {path}/tuning.jsonl")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if reason := why_foreign(path):
            raise LogError(f"{path} is not a tuning log: {reason}; nothing was written")
        lock = Path(f"{path}.lock")
        if not lock.exists():
            # If no file can be made, FileLock may wait until one can.
            os.close(os.open(lock, os.O_RDWR | os.O_CREAT, 0o644))
        with FileLock(lock, timeout=LOCK_TIMEOUT_S):
            _append_locked(path, made())
    except Timeout:
        raise LogError(f"{path}: another process has held its lock for {LOCK_TIMEOUT_S:.0f} s") from None
    except LogError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise LogError(f"cannot append to {path}: {why}; nothing was written, its content is unharmed") from error


def append_line(path: Path, line: str) -> None:
    """Write one line at the end of a file that is no log, of which readers skip what they cannot read; made if absent.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # One write at the end of the file: lines of several processes do not mix.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def why_foreign(path: Path) -> str | None:
    """Reason that a file is no tuning log; None for one, for an absent file, or for one torn while written."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        lines = iter(lambda: file.readline(HEAD_BYTES), b"")
        return _why_foreign_line(next((line for line in lines if line.strip()), b""))


def _why_foreign_line(line: bytes) -> str | None:
    opening = b'{"schema"'
    line, ended = line.strip(), line.endswith(b"\n")
    if not line or line.startswith(opening) or (not ended and opening.startswith(line)):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    expected = 'expected a first line such as {"schema": 1, "workload": …}'
    return None if isinstance(data, dict) and "schema" in data else f"{expected}, got {line[:60]!r}"


def _append_locked(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
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


def _write_all(file: int, data: bytes) -> None:
    """One write; another for the rest where the system took only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
