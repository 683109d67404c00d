"""A process that has imported everything and forks workers: one is up in milliseconds where importing takes seconds."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from typing import IO

from autosched.machine.blas_threads import ONE_THREAD

# A message either way is one integer of this many bytes, so that no framing is needed.
MESSAGE_BYTES = 8
# To the server: fork a worker; its two files come along. Any other message is the id of a worker to reap.
FORK = 0

# Enough for the traceback of an import that failed, or for what a compiler says before it aborts.
_LAST_WORDS_BYTES = 2**16

_MODULE = "autosched.measuring.local.worker"


class ForkServer:
    """Starts worker processes and knows how they ended. They end when it ends, and it ends when this process does.

    It imports nothing of the calling script and gets no signals from the terminal. It never touches a device, so that
    each of its children can.
    """

    def __init__(self) -> None:
        self._control, there = socket.socketpair()
        # A request and its answer are not to be parted by another thread's.
        self._lock = threading.Lock()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        self._owner = os.getpid()
        with there:
            self._process = _started_in_a_thread(there.fileno(), self._output)

    def fork(self, connection: int, output: int) -> None:
        """Have a worker started, once everything is imported, that talks over one file and prints to the other."""
        # A server that is gone starts none; that is found when the worker's connection ends.
        with contextlib.suppress(OSError), self._lock:
            socket.send_fds(self._control, [FORK.to_bytes(MESSAGE_BYTES)], [connection, output])

    def reap(self, worker: int) -> int | None:
        """Kill a worker, if it still lives, and wait for it: its exit code as `subprocess` has it, None if unknown."""
        try:
            os.kill(worker, signal.SIGKILL)
            with self._lock:
                self._control.sendall(worker.to_bytes(MESSAGE_BYTES))
                answer = self._control.recv(MESSAGE_BYTES, socket.MSG_WAITALL)
        except OSError:
            return None
        return int.from_bytes(answer, signed=True) if answer else None

    @property
    def alive(self) -> bool:
        """Whether it can still start workers."""
        return self._process.poll() is None

    @property
    def last_words(self) -> str:
        """What it printed last: why it could not import something."""
        return last_line(self._output)

    def close(self) -> None:
        """End it, and every worker with it; in a process that was forked from this one, nothing but its own files."""
        self._control.close()
        self._output.close()
        if os.getpid() == self._owner:
            self._process.kill()
            self._process.wait()


class _Shared:
    """The server of a process, started when it is first asked for; another one where it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: ForkServer | None = None

    def started(self) -> ForkServer:
        with self._lock:
            if self._server is None or not self._server.alive:
                self._server = ForkServer()
            return self._server

    def close(self) -> None:
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None


def shared_server() -> ForkServer:
    """The server of this process, which lives as long as the process, or until `close_shared_server`."""
    return _shared(os.getpid()).started()


def close_shared_server() -> None:
    """End it, if it was started, and every worker with it; who asks next gets another one."""
    _shared(os.getpid()).close()


@functools.cache
def _shared(process: int) -> _Shared:
    # A process that was forked from this one needs its own.
    shared = _Shared()
    atexit.register(shared.close)
    return shared


def _started_in_a_thread(descriptor: int, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """The server's process, started by a thread that ends after it.

    The system ends a server with the thread that started it (prctl(2), PR_SET_PDEATHSIG), and who asks for the first
    worker may be a thread that is soon gone.
    """
    started: Future[subprocess.Popen[bytes]] = Future()

    def run() -> None:
        try:
            process = subprocess.Popen(
                # -P: the working directory is no place to import from.
                [sys.executable, "-P", "-m", _MODULE, str(descriptor), str(os.getpid())],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(descriptor,),
                start_new_session=True,
            )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    threading.Thread(target=run, name="autosched-fork-server", daemon=True).start()
    return started.result()


def last_line(output: IO[bytes]) -> str:
    """The last line with text near the end of a file of output, cut to a moderate length."""
    # A process may have printed gigabytes.
    output.seek(max(0, output.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
    lines = output.read().decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def _environment() -> dict[str, str]:
    """What can be imported here can be imported there; and no library starts threads, which forks would lose."""
    path = os.pathsep.join(dict.fromkeys(os.path.abspath(p) for p in sys.path))
    return {**os.environ, "PYTHONPATH": path, **ONE_THREAD}
