"""The main program of a worker process: `python -m autosched.measuring.worker <file descriptor> <parent's id>`."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch

from autosched.backends.backend import Backend
from autosched.measuring.jobs import Job, Ready, Reply, Setup
from search_spaces import Target

# From <sys/prctl.h>.
_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int) -> None:
    """Serve jobs until the other end is closed."""
    _end_with(parent)
    connection: Connection[Reply, Job] = Connection(descriptor)
    setup = connection.recv()
    assert isinstance(setup, Setup)
    serve = _role(setup)
    connection.send(Ready())
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        connection.send(serve(job))


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when the parent ends, even in the middle of a job, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that started this worker is gone")


def _role(setup: Setup) -> Callable[[Job], Reply]:
    if setup.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, setup.cores)
    torch.set_num_threads(setup.threads)
    backend = load_backend(setup.backend, setup.target)
    if setup.role == "compile":
        from autosched.measuring.compiler import Compiler

        return Compiler(backend, setup.target).serve
    from autosched.measuring.bench import Bench

    return Bench(backend, setup).serve


def load_backend(name: str, target: Target) -> Backend:
    """The backend that the function `name`, "module:function", gives for the target."""
    module, _, function = name.partition(":")
    backend: Backend = getattr(importlib.import_module(module), function)(target)
    return backend


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
