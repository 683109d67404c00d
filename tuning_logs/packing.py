"""Compressed tuning logs, `.jsonl.gz`, the form in which records ship: names and writing.

The file of one workload and timing policy is called `<key of the workload>_<policy>_<label>.jsonl.gz`, so that a search
for one workload opens one file. Those of earlier versions, `<key>-<policy>-<label>.jsonl.gz`, have keys unknown to this
version: only their content identifies the workload.
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
# Names of files with one workload and policy only.
_NAMED = re.compile(r"([0-9a-f]{16})_([a-z]+)_[^/]*\.jsonl\.gz")
_NAMED_BEFORE = re.compile(r"[0-9a-f]{16}-([a-z]+)-[^/]*\.jsonl\.gz")


def is_packed(path: Path) -> bool:
    """True for the name of a compressed log."""
    return path.name.endswith(PACKED_SUFFIX)


def may_hold(path: Path, workload: Workload | None, policy: str) -> bool:
    """True if a log may have records of a workload (None: of any) with a timing policy, judging by its name."""
    if named := _NAMED.fullmatch(path.name):
        return named[2] == policy and (workload is None or named[1] == workload.key)
    before = _NAMED_BEFORE.fullmatch(path.name)
    return before is None or before[1] == policy


def packed_name(workload: Workload, policy: str) -> str:
    """The name of the file with a workload's records, and no others."""
    label = re.sub(r"[^a-z0-9]+", "-", workload.label.lower()).strip("-")
    return f"{workload.key}_{policy}_{label}{PACKED_SUFFIX}"


def packed(records: Sequence[TuningRecord]) -> bytes:
    """The content of a compressed log: the same bytes for the same records at any time."""
    lines = b"".join(json.dumps(r.to_json(), allow_nan=False).encode() + b"\n" for r in records)
    return gzip.compress(lines, mtime=0)


def write_packed(path: Path, records: Sequence[TuningRecord]) -> bool:
    """Replace a compressed log by the records; True if that changes it.

    Readers see the old file or the new one, whenever the process is killed.

    Raises:
        LogError: it cannot be written, and is as it was.
    """
    content = packed(records)
    try:
        if path.is_file() and path.read_bytes() == content:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise LogError(f"cannot write {path}: {error.strerror or error}; it is as it was") from error
    return True


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file's content: readers see the old one or the new one, never a part."""
    file, draft = tempfile.mkstemp(prefix=".", suffix=".draft", dir=path.parent)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(content)
        # A draft is private to its writer; the final file is for everybody who may read the folder.
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
