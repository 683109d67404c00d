"""The main program of the fork server and, in its children, of the workers.

python -m autosched.measuring.local.worker <file descriptor> <id of the parent>
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import torch

from autosched.backends import import_own
from autosched.backends.backend import Backend
from autosched.machine import memory
from autosched.machine.cores import usable_cores
from autosched.measuring.local.compile_server import CompileServer
from autosched.measuring.local.fork_server import FORK, MESSAGE_BYTES
from autosched.measuring.local.jobs import Born, Job, Ready, Reply, Setup
from autosched.measuring.local.trial_server import TrialServer
from search_spaces import Target

# From <sys/prctl.h>.
_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int) -> None:
    """Fork and reap workers as asked until the other end is closed."""
    _end_with(parent)
    import_own()
    # Imported modules stay: workers need neither scan them for garbage nor copy them by doing so.
    gc.collect()
    gc.freeze()
    server = os.getpid()
    with socket.socket(fileno=descriptor) as control:
        while True:
            message, files, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2)
            if not message:
                return
            worker = int.from_bytes(message)
            if worker != FORK:
                _, status = os.waitpid(worker, 0)
                control.sendall(os.waitstatus_to_exitcode(status).to_bytes(MESSAGE_BYTES, signed=True))
            elif os.fork() == 0:
                control.close()
                work(files[0], files[1], parent=server)
                return
            else:
                for file in files:
                    os.close(file)


def work(descriptor: int, output: int, parent: int) -> None:
    """Serve jobs until the other end is closed."""
    _end_with(parent)
    os.dup2(output, 1)
    os.dup2(output, 2)
    connection: Connection[Reply, Job] = Connection(descriptor)
    try:
        connection.send(Born(os.getpid()))
        setup = connection.recv()
        assert isinstance(setup, Setup)
        serve = _role(setup)
        connection.send(Ready())
        while True:
            connection.send(serve(connection.recv()))
    except (EOFError, BrokenPipeError):
        return


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when the parent ends, even in the middle of a job, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that started this one is gone")


def _role(setup: Setup) -> Callable[[Job], Reply]:
    if setup.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, setup.cores)
    torch.set_num_threads(setup.threads)
    if setup.role == "measure":
        return TrialServer(load_backends(setup.backend, setup.target), setup).serve
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    memory.limit_files()
    # By the number of cores, which is the default number of compile workers.
    share = memory.compiler_bytes(workers=len(usable_cores()))
    return CompileServer(load_backends(setup.backend, setup.target), setup.target, share).serve


def load_backends(location: str, target: Target) -> dict[str, Backend]:
    """The backends, by name, that the function at `location`, "module:function", returns for the target."""
    module, _, function = location.partition(":")
    backends: Sequence[Backend] = getattr(importlib.import_module(module), function)(target)
    return {backend.name: backend for backend in backends}


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
