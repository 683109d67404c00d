"""Memory limits of candidates, signs that one was exceeded, and a check that an allocation fits.

Of the machine's memory all compile workers together may take a half, and a trial on a CPU a quarter. The last quarter
is for the process that tunes, the operands, and whatever else runs here: the system never has to choose whom to kill.

The limit is on address space, beyond what the process has when it begins: that is refused at once and in every process
that it starts, while memory in use can only be watched. The process that runs GPU kernels has no limit: CUDA reserves
far more than it uses, candidates have no code of their own on the host, and the device refuses what it does not have.

A tensor is checked before it is allocated: an operating system grants a process more than there is, and
kills one of them when it is used, too late for a message.
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

from search_spaces import OutOfMemoryError

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
    present = _address_space_bytes()
    if present is None:
        # Only Linux reports memory in use, and few others enforce a limit.
        yield
        return
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


def free_bytes(device: torch.device) -> int | None:
    """Memory that this process can still allocate on a device; None where the system does not report it."""
    if device.type == "cuda":
        # PyTorch's reserved and unused memory is free, too.
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    found = [free for free in (_available_bytes(), _below_limit_bytes()) if free is not None]
    return min(found, default=None)


@contextlib.contextmanager
def memory_for(what: str, needed_bytes: int, device: torch.device) -> Iterator[None]:
    """A block that allocates at least so much; `what` is a plural, such as "the inputs of matmul m=8".

    Raises:
        OutOfMemoryError: there is less, or an allocation in the block was refused.
    """
    free = free_bytes(device)
    if free is not None and needed_bytes > free:
        raise _no_room(what, needed_bytes, device)
    try:
        yield
    except RuntimeError as error:
        if ran_out(error):
            raise _no_room(what, needed_bytes, device) from error
        raise


def _no_room(what: str, needed_bytes: int, device: torch.device) -> OutOfMemoryError:
    where, free = "the GPU" if device.type == "cuda" else "this machine", free_bytes(device)
    there = "" if free is None else f"; {free / 1e9:.1f} GB are free on {where}"
    return OutOfMemoryError(f"out of memory: {what} need {needed_bytes / 1e9:.1f} GB{there}")


def _available_bytes() -> int | None:
    """Memory that Linux would grant without swapping (proc(5), MemAvailable)."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _read(Path("/proc/meminfo")), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else None


def _below_limit_bytes() -> int | None:
    """Address space left below this process's limit, if it has one (`ulimit -v`)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    present = _address_space_bytes()
    return None if limit == resource.RLIM_INFINITY or present is None else max(0, limit - present)


def _address_space_bytes() -> int | None:
    """The address space of this process: the first field, in pages (proc(5)); None where the system does not tell."""
    sizes = _read(Path("/proc/self/statm")).split()
    return int(sizes[0]) * os.sysconf("SC_PAGE_SIZE") if sizes else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
