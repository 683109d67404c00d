"""Fork server: a process with everything imported, whose forks start in milliseconds where an import takes seconds."""

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

# Enough for the traceback of a failed import, or for a compiler's message before it aborts.
_LAST_WORDS_BYTES = 2**16

_MODULE = "autosched.measuring.local.worker"


class ForkServer:
    """Starts and reaps worker processes. They end when it ends, and it ends when this process does.

    It imports nothing of the calling script and gets no signals from the terminal. It never touches a device, so that
    each of its children can.
    """

    def __init__(self) -> None:
        self._control, there = socket.socketpair()
        # No other thread may come between a request and its answer.
        self._lock = threading.Lock()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        self._owner = os.getpid()
        with there:
            self._process = _started_in_a_thread(there.fileno(), self._output)

    def fork(self, connection: int, output: int) -> None:
        """Start a worker, once everything is imported, with one file to communicate over and one to print to."""
        # A server that is gone starts none; the end of the worker's connection shows that.
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
        """True while it can start workers."""
        return self._process.poll() is None

    @property
    def last_words(self) -> str:
        """The last line that it printed: the reason of a failed import."""
        return last_line(self._output)

    def close(self) -> None:
        """End it and all of its workers; in a process forked from this one, close only its files."""
        self._control.close()
        self._output.close()
        if os.getpid() == self._owner:
            self._process.kill()
            self._process.wait()


class _Shared:
    """The server of a process, started on demand; a new one where the former has ended."""

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
    """End the server, if it was started, and all of its workers; the next request starts another."""
    _shared(os.getpid()).close()


@functools.cache
def _shared(process: int) -> _Shared:
    # A process forked from this one needs its own.
    shared = _Shared()
    atexit.register(shared.close)
    return shared


def _started_in_a_thread(descriptor: int, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """The server's process, started by a thread that outlives it.

    Linux ends a server with the thread that started it (prctl(2), PR_SET_PDEATHSIG), and the first worker may be
    requested by a thread that soon ends.
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
    """Environment of the server: this process's import path, and one thread for libraries, as forks lose threads."""
    path = os.pathsep.join(dict.fromkeys(os.path.abspath(p) for p in sys.path))
    return {**os.environ, "PYTHONPATH": path, **ONE_THREAD}
