"""Cache of kernels: another process that compiles the same graph neither reads the log nor prints nor compiles them.

An entry is a file next to the user's log, `kernels/<key>`: the record that was chosen, its program and its binaries.
Its key is made of all that these follow from: the workload, the device, the contents of the logs, and the versions of
everything. Only exact records have entries. What cannot be read is a miss; the check before a kernel's first use is as
without the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from autosched.backends.environment import environment
from autosched.kernels.kernel import Kernel
from autosched.kernels.stored import as_bytes, from_bytes
from autosched.kernels.tier import Tier
from autosched.machine.devices import processor
from autosched.machine.entries import sealed, unsealed, write_entry
from autosched.replaying.arguments import log_path
from autosched.replaying.replay import kernels_of_cuts, log_paths
from autosched.replaying.replay import replay as from_logs
from autosched.replaying.rivals import in_models
from autosched.torch_compile.choosing.place import right_or_as_written
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing.callables.traced import loaded
from search_spaces import Target, Workload
from search_spaces.code_hash import code_hash
from tuning_logs import TuningLog, TuningRecord, user_log_path
from tuning_logs.packing import may_hold

_POLICY = "cold"
# A kernel takes 5 to 100 kB; a large model has twenty, and a changed log or version reads none of the old ones.
_MOST_ENTRIES = 1000
# Larger logs are read by their index, which takes less time than their digest.
_MOST_LOG_BYTES = 64 << 20
_KEY_DIGITS = 32


def replay(
    traced: TracedFunction, target: Target, *, log: str | os.PathLike[str] | None = None, strict: bool = False
) -> TracedKernel:
    """As `autosched.replay`, from the cache as far as it has the kernels."""
    cut, logs, versions = traced.for_target(target), _Logs(log), _versions(target)
    kernels = kernels_of_cuts(cut, lambda workload: _kernel(workload, target, logs, versions, strict))
    function = loaded(cut, kernels, strict)
    assert isinstance(function, TracedKernel)
    function = right_or_as_written(function)
    function.ensure_right()
    return function


def note(
    functions: Iterable[TracedKernel], records: Sequence[TuningRecord], log: str | os.PathLike[str] | None
) -> None:
    """Append records to the log that these functions' kernels are of. The cache has these kernels as well then.

    Raises:
        LogError: as `TuningLog.append`.
    """
    kernels = [(kernel, _versions(f.target)) for f in functions for kernel in f.by_key.values()]
    before, after = _Logs(log), _Logs(log)
    known = [_key_of(kernel.workload, before, versions) for kernel, versions in kernels]
    TuningLog(log_path(log)).append(*records)
    for key, (kernel, versions) in zip(known, kernels, strict=True):
        # Otherwise the log may have another one by now.
        if key is not None and _path(key).exists() and (key := _key_of(kernel.workload, after, versions)) is not None:
            _store(key, kernel)


def _versions(target: Target) -> str:
    code = code_hash("search_spaces", "autosched"), code_hash("tuning_logs")
    return repr((target.key, environment(target), processor(target), sys.version_info, code))


class _Logs:
    """The logs that are searched for records, as they are now."""

    def __init__(self, log: str | os.PathLike[str] | None) -> None:
        self.log = log
        self.paths = log_paths(log)
        self._digests: dict[Path, str | None] = {}

    def digests(self, workload: Workload) -> tuple[str, ...] | None:
        """The contents of those that may have records of a workload, in order; None where that takes too long."""
        wanted = [p for p in self.paths if any(may_hold(p, w, _POLICY) for w in (workload, workload.varying))]
        for path in wanted:
            if path not in self._digests:
                self._digests[path] = _digest(path)
        found = [self._digests[path] for path in wanted]
        return None if None in found else tuple(d for d in found if d is not None)


def _digest(path: Path) -> str | None:
    """The digest of a log, "" if there is none; None if it is large, or cannot be read."""
    try:
        if path.stat().st_size > _MOST_LOG_BYTES:
            return None
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""
    except OSError:
        return None


def _kernel(workload: Workload, target: Target, logs: _Logs, versions: str, strict: bool) -> Kernel:
    key = _key_of(workload, logs, versions)
    if key is not None and (known := _read(key, workload)) is not None:
        return known
    kernel = in_models(from_logs(workload, target, log=logs.log, strict=strict), logs.paths)
    # A log that was appended to meanwhile has no entry yet.
    if key is not None and _key_of(workload, _Logs(logs.log), versions) == key:
        _store(key, kernel)
    return kernel


def _store(key: str, kernel: Kernel) -> None:
    # A stale record warns every time.
    if kernel.tier is not Tier.EXACT:
        return
    # Not every program has bytes; then the next process makes it anew.
    with contextlib.suppress(Exception):
        content = sealed(as_bytes(kernel))
        write_entry(_path(key), content, _MOST_ENTRIES)
        CacheArtifactManager.record_artifact(KernelArtifact.type(), key, content)


def _read(key: str, workload: Workload) -> Kernel | None:
    try:
        content = _path(key).read_bytes()
        body = unsealed(content)
        if body is None:
            return None
        found = from_bytes(body, workload)
    except Exception:
        # There is no such file, or it is another's: whatever is wrong with it, the kernel is made anew.
        return None
    CacheArtifactManager.record_artifact(KernelArtifact.type(), key, content)
    return found


@CacheArtifactFactory.register
class KernelArtifact(CacheArtifact):
    """An entry among the artifacts of PyTorch's caches."""

    def populate_cache(self) -> None:
        write_entry(_path(self.key), self.content, _MOST_ENTRIES)

    @staticmethod
    def type() -> str:
        return "autosched_kernel"


def _key_of(workload: Workload, logs: _Logs, versions: str) -> str | None:
    """The key of a kernel's entry; None where the logs have no digests."""
    digests = logs.digests(workload)
    if digests is None:
        return None
    text = repr((workload.key, workload.varying.key, versions, digests))
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


def _path(key: str) -> Path:
    return user_log_path().with_name("kernels") / Path(key).name
