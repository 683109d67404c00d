"""A worker process as seen by the tuning process: started, given one job at a time, replaced when it is lost."""

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

from autosched.machine import memory
from autosched.measuring.local.fork_server import ForkServer, last_line
from autosched.measuring.local.jobs import Born, Job, Ready, Reply, Role, Setup
from search_spaces import TargetUnavailableError
from tuning_logs import Status

# Importing PyTorch and creating a GPU context take seconds; on a busy machine with a cold disk, up to a minute.
STARTUP_TIMEOUT_S = 180.0
# A worker killed by others before it is up is restarted so often: more kills are meant.
_MOST_KILLED_STARTING = 3

# Timed out; died; died for want of memory; or killed by something else, for which the job is not to blame.
Loss = Literal["timeout", "crash", "memory", "killed"]

_STATUSES: dict[Role, dict[Loss, Status]] = {
    "compile": {"timeout": "compile_timeout", "crash": "compile_crash", "killed": "compile_crash"},
    "measure": {"timeout": "run_timeout", "crash": "run_crash", "killed": "run_crash"},
}


@dataclass(frozen=True)
class Lost:
    """A job without a reply: the worker timed out and was killed, or died. Its replacement is starting."""

    how: Loss
    detail: str

    def status(self, role: Role) -> Status:
        """Status of a candidate lost by a worker of this role."""
        return _STATUSES[role].get(self.how, "out_of_memory")


def how_it_ended(exit_code: int | None, words: str, oom_kills: int) -> Loss:
    """Cause of death of a process that this one did not kill: `exit_code` as `subprocess` has it, and its last words.

    `oom_kills`: number of processes that the system killed for want of memory meanwhile, the only sign that
    distinguishes such a SIGKILL from one that a person or a program sent.
    """
    if memory.says_ran_out(words):
        return "memory"
    if exit_code == -signal.SIGKILL:
        return "memory" if oom_kills else "killed"
    return "crash"


class WorkerProcess:
    """One worker, or its replacement."""

    def __init__(self, server: ForkServer, setup: Setup) -> None:
        self._server = server
        self._setup = setup
        self._pid: int | None = None
        self._starting = True
        self._killed_starting = 0
        self._start()

    @property
    def connection(self) -> Connection[Job, Reply]:
        """Connection on which replies arrive."""
        return self._connection

    @property
    def deadline(self) -> float:
        """Deadline of its present job, in `time.monotonic` seconds; infinite while it is idle."""
        return self._deadline

    @property
    def pid(self) -> int | None:
        """Its process id, None until it is known."""
        return self._pid

    def available(self) -> bool:
        """True if it can take a job now. One that died idle is replaced."""
        if self._deadline < math.inf:
            return False
        # A worker sends nothing unasked: this is the end of the file.
        if self._connection.poll():
            self.restart()
            return False
        return True

    def send(self, job: Job, timeout_s: float) -> None:
        """Give an available worker a job, to be done within `timeout_s`."""
        self._since = time.monotonic()
        self._deadline = self._since + timeout_s
        self._oom_kills = memory.oom_kills()
        # Output from now on is about this job. The worker shares the position in the file.
        self._output.seek(0)
        self._output.truncate()
        # `poll` finds a pipe that broke just now.
        with contextlib.suppress(OSError):
            self._connection.send(job)

    def poll(self, ready: Container[object]) -> Reply | Lost | None:
        """The reply, if `ready` contains the connection; Lost, if the job is lost; None while it is running.

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
            return self._lose(*self._last_words())
        if isinstance(reply, Born):
            self._pid = reply.pid
            return None
        self._deadline = math.inf
        if self._starting:
            assert isinstance(reply, Ready)
            self._starting, self._killed_starting = False, 0
            return None
        return reply

    def restart(self) -> None:
        """Replace the worker, idle or not."""
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

    def _lose(self, how: Loss, detail: str) -> Lost | None:
        """Start another one; Lost, or None if it was killed while it started, and so had no job."""
        if not self._starting:
            self.restart()
            return Lost(how, detail)
        self._killed_starting += 1
        if how != "killed" or self._killed_starting > _MOST_KILLED_STARTING:
            raise TargetUnavailableError(f"the {self._setup.role} worker did not start: {detail}")
        self.restart()
        return None

    def _last_words(self) -> tuple[Loss, str]:
        """Cause of the process's end, with the last line that it printed."""
        if self._pid is None:
            return "crash", self._server.last_words
        code, words = self._server.reap(self._pid), last_line(self._output)
        self._pid = None
        ended = "gone" if code is None else signal.Signals(-code).name if code < 0 else f"exit code {code}"
        how = how_it_ended(code, words, memory.oom_kills() - self._oom_kills)
        return how, ": ".join(filter(None, (ended, words)))


def wait_for(workers: Sequence[WorkerProcess], *woken: Connection[None, None]) -> list[object]:
    """The connections with a reply; returns at the first one, at a worker's deadline, or at a message to `woken`."""
    busy = [w for w in workers if w.deadline < math.inf]
    deadline = min((w.deadline for w in busy), default=None)
    # A little after the deadline, so that it has passed on return.
    timeout_s = None if deadline is None else max(0.0, deadline - time.monotonic()) + 1e-3
    return list(wait([*woken, *(w.connection for w in busy)], timeout_s))
