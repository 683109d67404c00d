"""A shared store of tuning records: a folder, or an object store such as S3, with one part for each writer.

    store/
      3f9c2a71d0b46e55.jsonl.gz     the records of one log, as it was when its writer last pushed it
      8e1f06ab92c4d310.jsonl.gz     those of another one
      .d83k.draft                   a part that is being written, or was when its writer was killed: left alone

Nobody writes to a part but its writer, who replaces it whole, so that no lock and no server is needed.
"""

from __future__ import annotations

import gzip
import hashlib
import platform
import tempfile
import uuid
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from search_spaces import InputError, LogError
from tuning_logs.log import TuningLog
from tuning_logs.packing import PACKED_SUFFIX, packed, replace_file
from tuning_logs.record import TuningRecord
from tuning_logs.several.merging import merged, new_to

_DIGITS = 16
# Of the file beside a log that tells it from those of the same path elsewhere.
_IDENTITY_SUFFIX = ".identity"


class _Parts(Protocol):
    """Files of a store, by name."""

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def replace(self, name: str, content: bytes) -> None: ...


class SharedStore:
    """The store at a path, or at an address of fsspec ("s3://bucket/records").

    Raises:
        InputError: fsspec, or its package for such a store, is not installed.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._parts: _Parts = _Objects(place) if "://" in place else _Folder(Path(place))

    def pull(self, log: TuningLog) -> int:
        """Append the records of all whole parts that the log lacks; their number. Damaged parts are left out.

        Raises:
            LogError: the store cannot be read, or the log cannot be written.
        """
        found = merged(record for part in self._read() for record in part)
        return len(log.append_chosen(lambda: new_to(log, found)))

    def push(self, log: TuningLog) -> int:
        """Replace the log's own part by its records; their number.

        Raises:
            LogError: the log cannot be read, or the store cannot be written.
        """
        records = list(log)
        try:
            self._parts.replace(part_name(log), packed(records))
        except OSError as error:
            raise LogError(f"cannot write to {self._place}: {error}; nothing was written") from error
        return len(records)

    def _read(self) -> Iterator[list[TuningRecord]]:
        try:
            parts = [(name, self._parts.read(name)) for name in sorted(self._parts.names()) if _is_part(name)]
        except OSError as error:
            raise LogError(f"cannot read {self._place}: {error}") from error
        for name, content in parts:
            try:
                yield _records(content)
            except (OSError, EOFError, zlib.error, LogError) as error:
                warnings.warn(f"{self._place}/{name} is left out: {error}", stacklevel=3)


def part_name(log: TuningLog) -> str:
    """The name of a log's part: of its path on this machine, its first line, and an identity in a file of its own.

    Machines and containers may share their names and paths, and a new log may have the path of one that is gone.
    """
    first = ""
    if log.path.exists():
        with log.path.open("rb") as file:
            first = hashlib.sha256(file.readline()).hexdigest()
    written = f"{_identity(log.path)} {platform.node()} {log.path.resolve()} {first}"
    return f"{hashlib.sha256(written.encode()).hexdigest()[:_DIGITS]}{PACKED_SUFFIX}"


def _identity(path: Path) -> str:
    """The random identity of a log, which is made when it is first asked for."""
    beside = path.with_name(f"{path.name}{_IDENTITY_SUFFIX}")
    if not beside.exists():
        replace_file(beside, uuid.uuid4().hex.encode())
    return beside.read_text(encoding="ascii", errors="replace")


def _is_part(name: str) -> bool:
    return name.endswith(PACKED_SUFFIX) and not name.startswith(".")


def _records(content: bytes) -> list[TuningRecord]:
    """The records of a part, whole or not at all."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.jsonl"
        path.write_bytes(gzip.decompress(content))
        return TuningLog(path).readable()


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        return [path.name for path in self._path.iterdir()] if self._path.exists() else []

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def replace(self, name: str, content: bytes) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        replace_file(self._path / name, content)


class _Objects:
    """Objects of a store that fsspec knows. Such stores show an object once it is whole."""

    def __init__(self, address: str) -> None:
        try:
            import fsspec

            system, path = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise InputError(f"no store at {address}: {error}; pip install 'autosched[store]'") from error
        self._system: Any = system
        self._path: str = path.rstrip("/")

    def names(self) -> list[str]:
        if not self._system.exists(self._path):
            return []
        # Other writers push meanwhile.
        self._system.invalidate_cache()
        return [path.rpartition("/")[2] for path in self._system.ls(self._path, detail=False)]

    def read(self, name: str) -> bytes:
        content: bytes = self._system.cat_file(f"{self._path}/{name}")
        return content

    def replace(self, name: str, content: bytes) -> None:
        self._system.makedirs(self._path, exist_ok=True)
        self._system.pipe_file(f"{self._path}/{name}", content)
