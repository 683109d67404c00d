"""Check for free memory before an allocation.

An operating system grants a process more than there is, and kills one when that is used: too late for a message.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from search_spaces import OutOfMemoryError

# The message of PyTorch's host allocator when the system refuses; the device's has a type of its own.
_REFUSED = "can't allocate memory"


def free_bytes(device: torch.device) -> int | None:
    """Memory that this process can still allocate on a device; None where the system does not report it."""
    if device.type == "cuda":
        # PyTorch's reserved and unused memory is free, too.
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    found = [free for free in (_available_bytes(), _below_limit_bytes()) if free is not None]
    return min(found, default=None)


@contextmanager
def memory_for(what: str, needed_bytes: int, device: torch.device) -> Iterator[None]:
    """A block that allocates at least so much; `what` is a plural, such as "the inputs of matmul m=8".

    Raises:
        OutOfMemoryError: there is less, or an allocation in the block was refused.
    """
    free = free_bytes(device)
    if free is not None and needed_bytes > free:
        raise _error(what, needed_bytes, device)
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or _REFUSED in str(error):
            raise _error(what, needed_bytes, device) from error
        raise


def _error(what: str, needed_bytes: int, device: torch.device) -> OutOfMemoryError:
    where, free = "the GPU" if device.type == "cuda" else "this machine", free_bytes(device)
    there = "" if free is None else f"; {free / 1e9:.1f} GB are free on {where}"
    return OutOfMemoryError(f"out of memory: {what} need {needed_bytes / 1e9:.1f} GB{there}")


def _available_bytes() -> int | None:
    """Memory that Linux would grant without swapping (proc(5), MemAvailable)."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _text(Path("/proc/meminfo")), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else None


def _below_limit_bytes() -> int | None:
    """Address space left below this process's limit, if it has one (`ulimit -v`)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    sizes = _text(Path("/proc/self/statm")).split()
    if limit == resource.RLIM_INFINITY or not sizes:
        return None
    return max(0, limit - int(sizes[0]) * resource.getpagesize())


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
