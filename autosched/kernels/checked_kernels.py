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
        try:
            self._text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            self._text = ""
        self._added: dict[str, float] = {}

    def latency_s(self, key: str) -> float | None:
        """Latency of a checked kernel; None for one that was not checked."""
        # Thousands of lines take longer to parse than a model's kernels to load.
        return self._added.get(key, _latency_s(self._text, key))

    def add(self, key: str, latency_s: float, label: str) -> None:
        if self.latency_s(key) is not None:
            return
        self._added[key] = latency_s
        with contextlib.suppress(OSError):
            append_line(self._path, json.dumps({"checked": key, "latency_s": latency_s, "kernel": label}))


def _latency_s(text: str, key: str) -> float | None:
    """The latency in the last line that begins with a key and can be read."""
    end = len(text)
    while (found := text.rfind(f'{{"checked": "{key}"', 0, end)) >= 0:
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
            return float(json.loads(text[found:].partition("\n")[0])["latency_s"])
        end = found
    return None


def checked_kernels() -> CheckedKernels:
    """This user's: the file `checked.jsonl` next to the user's log."""
    return _of(user_log_path().with_name("checked.jsonl"))


@functools.cache
def _of(path: Path) -> CheckedKernels:
    return CheckedKernels(path)
