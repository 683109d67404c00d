"""A worker process, seen from the process that tunes: started, given one job at a time, replaced when it is lost."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import signal
import tempfile
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Literal

from autosched.measuring.fork_server import ForkServer, last_line
from autosched.measuring.jobs import Born, Job, Ready, Reply, Setup
from search_spaces import TargetUnavailableError

# Importing PyTorch and creating a GPU context take seconds; on a busy machine with a cold disk, up to a minute.
STARTUP_TIMEOUT_S = 180.0

Loss = Literal["timeout", "crash"]


@dataclass(frozen=True)
class Lost:
    """A job without a reply: the worker was late and was killed, or it died. Its replacement is starting."""

    how: Loss
    detail: str


class WorkerProcess:
    """One worker, or the one that took its place."""

    def __init__(self, server: ForkServer, setup: Setup) -> None:
        self._server = server
        self._setup = setup
        self._pid: int | None = None
        self._starting = True
        self._start()

    @property
    def connection(self) -> Connection[Job, Reply]:
        """Where replies arrive."""
        return self._connection

    @property
    def deadline(self) -> float:
        """When what it does now is late, in `time.monotonic` seconds; infinite while it does nothing."""
        return self._deadline

    @property
    def pid(self) -> int | None:
        """Its process id, None until it is known."""
        return self._pid

    def available(self) -> bool:
        """Whether it can take a job now. One that died while it had nothing to do is replaced."""
        if self._deadline < math.inf:
            return False
        # A worker says nothing unasked: this is the end of the file.
        if self._connection.poll():
            self.restart()
            return False
        return True

    def send(self, job: Job, timeout_s: float) -> None:
        """Give an available worker a job, to be done within `timeout_s`."""
        self._since = time.monotonic()
        self._deadline = self._since + timeout_s
        # That a pipe broke just now is found by `poll`.
        with contextlib.suppress(OSError):
            self._connection.send(job)

    def poll(self, ready: Container[object]) -> Reply | Lost | None:
        """The reply, if `ready` holds the connection; what happened, if the job is lost; None: nothing to tell yet.

        Raises:
            TargetUnavailableError: the worker did not start.
        """
        if self._deadline == math.inf:
            return None
        if self._connection not in ready:
            late = time.monotonic() > self._deadline
            return self._lose("timeout", f"killed after {time.monotonic() - self._since:.1f} s") if late else None
        try:
            reply = self._connection.recv()
        except (EOFError, OSError):
            return self._lose("crash", self._last_words())
        if isinstance(reply, Born):
            self._pid = reply.pid
            return None
        self._deadline = math.inf
        if self._starting:
            assert isinstance(reply, Ready)
            self._starting = False
            return None
        return reply

    def restart(self) -> None:
        """Replace the worker, whatever it does."""
        self.close()
        self._start()

    def close(self) -> int | None:
        """Kill the worker and wait until it is gone; its exit code, when that is known."""
        self._connection.close()
        self._output.close()
        # One that is not born yet finds the connection closed.
        return None if self._pid is None else self._server.reap(self._pid)

    def _start(self) -> None:
        self._pid = None
        self._starting = True
        self._output = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        self._connection: Connection[Job, Reply]
        self._connection, there = multiprocessing.Pipe()
        with there:
            self._server.fork(there.fileno(), self._output.fileno())
        self.send(self._setup, STARTUP_TIMEOUT_S)

    def _lose(self, how: Loss, detail: str) -> Lost:
        if self._starting:
            raise TargetUnavailableError(f"the {self._setup.role} worker did not start: {detail}")
        self.restart()
        return Lost(how, detail)

    def _last_words(self) -> str:
        """How the process ended, with the last line that it printed."""
        if self._pid is None:
            return self._server.last_words
        code = self._server.reap(self._pid)
        self._pid = None
        ended = "gone" if code is None else signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return ": ".join(filter(None, (ended, last_line(self._output))))


def wait_for(workers: Sequence[WorkerProcess]) -> list[object]:
    """The connections with a reply, as soon as there is one or a worker is late; at once when none is at work."""
    busy = [w for w in workers if w.deadline < math.inf]
    if not busy:
        return []
    left = min(w.deadline for w in busy) - time.monotonic()
    # A little longer than to the deadline, so that it is over on return.
    return list(wait([w.connection for w in busy], max(0.0, left) + 1e-3))
