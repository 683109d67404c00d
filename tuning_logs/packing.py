"""Compressed tuning logs, `.jsonl.gz`, the form in which records ship: how they are called, and how they are written.

The file of one workload and timing policy is called `<key of the workload>-<policy>-<label>.jsonl.gz`, so that whoever
looks for one knows the file. The key may be one of an older version: then what the file holds says whose it is.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from search_spaces import LogError, Workload
from tuning_logs.record import TuningRecord

PACKED_SUFFIX = ".jsonl.gz"
# The name of a file that holds one workload and policy only.
_NAMED = re.compile(r"([0-9a-f]{16})-([a-z]+)-[^/]*\.jsonl\.gz")


def is_packed(path: Path) -> bool:
    """Whether a log of this name is a compressed one."""
    return path.name.endswith(PACKED_SUFFIX)


def named_for(path: Path) -> tuple[str, str] | None:
    """The workload's key and the timing policy in the name of a file that holds nothing else; None for other names."""
    named = _NAMED.fullmatch(path.name)
    return (named[1], named[2]) if named else None


def packed_name(workload: Workload, policy: str) -> str:
    """The name of the file that holds a workload's records, and no others."""
    label = re.sub(r"[^a-z0-9]+", "-", workload.label.lower()).strip("-")
    return f"{workload.key}-{policy}-{label}{PACKED_SUFFIX}"


def packed(records: Sequence[TuningRecord]) -> bytes:
    """The content of a compressed log: the same bytes for the same records, whenever it is made."""
    lines = b"".join(json.dumps(r.to_json(), allow_nan=False).encode() + b"\n" for r in records)
    return gzip.compress(lines, mtime=0)


def write_packed(path: Path, records: Sequence[TuningRecord]) -> bool:
    """Put the records in a compressed log, in place of what is there; whether that changes it.

    Readers see the old file or the new one, whenever the process is killed.

    Raises:
        LogError: it cannot be written, and is as it was.
    """
    content = packed(records)
    try:
        if path.is_file() and path.read_bytes() == content:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)
    except OSError as error:
        raise LogError(f"cannot write {path}: {error.strerror or error}; it is as it was") from error
    return True


def _replace(path: Path, content: bytes) -> None:
    file, draft = tempfile.mkstemp(prefix=".", suffix=".draft", dir=path.parent)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(content)
        # A draft is its writer's alone; what it becomes is for everybody who may read the folder.
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
