"""Cache of kernels that passed their check on this user's machines: spares the next process the same check."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from pathlib import Path

from autosched.backends.environment import environment
from search_spaces import Target, Workload
from tuning_logs import user_log_path
from tuning_logs.storage.appending import append_line

# Raised when the check becomes stricter: kernels are then checked anew.
_CHECK = 1
_KEY_DIGITS = 32


def key_of(workload: Workload, target: Target, source: str) -> str:
    """Key of a check: workload, fingerprint of the code, device, and versions of everything that builds and runs it."""
    parts = (_CHECK, workload.key, target.key, source, environment(target))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:_KEY_DIGITS]


class CheckedKernels:
    """The kernels of one file, by key, with the latency at their first check: a line each, only ever appended.

    A line that cannot be read is skipped; the file may be deleted at any time. Where it cannot be written, checks are
    known to this process only.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._latencies_s = dict(_entries(path))

    def latency_s(self, key: str) -> float | None:
        """Latency of a checked kernel; None for one that was not checked."""
        return self._latencies_s.get(key)

    def add(self, key: str, latency_s: float, label: str) -> None:
        if key in self._latencies_s:
            return
        self._latencies_s[key] = latency_s
        with contextlib.suppress(OSError):
            append_line(self._path, json.dumps({"checked": key, "latency_s": latency_s, "kernel": label}))


def checked_kernels() -> CheckedKernels:
    """This user's: the file `checked.jsonl` next to the user's log."""
    return _of(user_log_path().with_name("checked.jsonl"))


@functools.cache
def _of(path: Path) -> CheckedKernels:
    return CheckedKernels(path)


def _entries(path: Path) -> list[tuple[str, float]]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            data = json.loads(line)
            found.append((str(data["checked"]), float(data["latency_s"])))
    return found
