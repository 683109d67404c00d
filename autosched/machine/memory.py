"""Memory limits of candidates, and detection of those that exceeded them.

All compile workers together may take a half of the machine's memory, and a trial on a CPU a quarter. The last quarter
is for the tuning process, the operands, and other processes: the system never has to choose whom to kill.

The limit is on address space, beyond the process's own at the start: an excess is refused at once, in every process
that it starts, too, while memory in use can only be watched. The process that runs GPU kernels has no limit: CUDA
reserves far more than it uses, candidates have no code of their own on the host, and the device refuses what it does
not have.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import torch

_COMPILERS_SHARE = 1 / 2
_TRIAL_SHARE = 1 / 4
# Largest file that a worker may write, as output or as a compiler's temporary file: a full disk would end the run. The
# largest of these, dumps of whole modules, take megabytes.
_MOST_FILE_BYTES = 2**30
# Messages of refused allocations: PyTorch, LLVM, the C++ library, ptxas, the system, the CUDA driver.
_REFUSED = re.compile(
    r"out of memory|bad_alloc|memory allocation failure|can(?:'|no)t allocate memory|CUDA_ERROR_OUT_OF_MEMORY", re.I
)
# Files with a container's limit: version 2 of cgroups, then version 1.
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def machine_bytes() -> int:
    """Memory that this process could use: the machine's, or its container's if that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [int(text) for path in _CGROUP_LIMITS if (text := _read(path).strip()).isdigit()]
    return min([physical, *limits])


def compiler_bytes(workers: int) -> int:
    """Memory that each of so many compile workers may take on top of its initial size."""
    return int(machine_bytes() * _COMPILERS_SHARE / workers)


def trial_bytes() -> int:
    """Memory that a trial on a CPU may take on top of the measuring worker's own."""
    return int(machine_bytes() * _TRIAL_SHARE)


@contextlib.contextmanager
def limited(extra_bytes: int) -> Iterator[None]:
    """Limit the additional memory of this process and its children: allocations beyond it are refused."""
    sizes = _read(Path("/proc/self/statm")).split()
    if not sizes:
        # Only Linux reports memory in use, and few others enforce a limit.
        yield
        return
    # The first field, in pages: the whole address space (proc(5)).
    present = int(sizes[0]) * os.sysconf("SC_PAGE_SIZE")
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    ceilings = [limit for limit in (before, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([present + extra_bytes, *ceilings]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def limit_files() -> None:
    """Limit the length of files that this process and its children may write."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    soft = _MOST_FILE_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILE_BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def ran_out(error: BaseException | None) -> bool:
    """True if an exception, or its cause, is a refused allocation on the host or the device."""
    while error is not None:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or says_ran_out(str(error)):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        error = error.__cause__ or error.__context__
    return False


def says_ran_out(words: str) -> bool:
    """True if the last words of a process report a refused allocation."""
    return bool(_REFUSED.search(words))


def oom_kills() -> int:
    """Number of processes that the system has killed so far for want of memory; 0 where it does not report it."""
    found = re.search(r"^oom_kill (\d+)$", _read(Path("/proc/vmstat")), re.M)
    return int(found.group(1)) if found else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
