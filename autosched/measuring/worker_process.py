"""A worker process, seen from the process that tunes: started, given one job at a time, replaced when it is lost."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Literal

from autosched.measuring.jobs import Job, Reply, Setup
from search_spaces import TargetUnavailableError

# Importing PyTorch and creating a GPU context take seconds; on a busy machine with a cold disk, up to a minute.
STARTUP_TIMEOUT_S = 180.0
# A killed process that used a GPU is gone when the driver has torn its work down.
_EXIT_TIMEOUT_S = 60.0


Loss = Literal["timeout", "crash"]


@dataclass(frozen=True)
class Lost:
    """A job without a reply: the worker was late and was killed, or it died. Its replacement is starting."""

    how: Loss
    detail: str


class WorkerProcess:
    """One worker at a time.

    It imports nothing of the calling script, gets no signals from the terminal, and ends when this process does.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
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
    def pid(self) -> int:
        return self._process.pid

    def available(self) -> bool:
        """Whether it can take a job now. One that died while it had nothing to do is replaced."""
        if self._deadline != math.inf:
            return False
        if self._process.poll() is None:
            return True
        self.restart()
        return False

    def send(self, job: Job, timeout_s: float) -> None:
        """Give an available worker a job, to be done within `timeout_s`."""
        self._since = time.monotonic()
        self._deadline = self._since + timeout_s
        # Of a pipe that broke just now, `poll` finds the end.
        with contextlib.suppress(OSError):
            self._connection.send(job)

    def poll(self, ready: Container[object]) -> Reply | Lost | None:
        """The reply, if `ready` holds the connection; what happened, if the job is lost; None: nothing to tell yet.

        Raises:
            TargetUnavailableError: the worker did not start.
        """
        if self._deadline == math.inf:
            return None
        late = time.monotonic() > self._deadline
        if self._connection not in ready:
            return self._lose("timeout", f"killed after {time.monotonic() - self._since:.1f} s") if late else None
        try:
            reply = self._connection.recv()
        except (EOFError, OSError):
            return self._lose("crash", self._last_words())
        self._deadline = math.inf
        if self._starting:
            self._starting = False
            return None
        return reply

    def restart(self) -> None:
        """Replace the worker, whatever it does."""
        self.close()
        self._start()

    def close(self) -> None:
        """Kill the worker and wait until it is gone."""
        self._connection.close()
        self._process.kill()
        self._process.wait(_EXIT_TIMEOUT_S)
        self._output.close()

    def _start(self) -> None:
        here, there = multiprocessing.Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        self._process = subprocess.Popen(
            # -P: the working directory is no place to import from.
            [sys.executable, "-P", "-m", "autosched.measuring.worker", str(there.fileno()), str(os.getpid())],
            env=_environment(self._setup),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=(there.fileno(),),
            start_new_session=True,
        )
        there.close()
        self._connection: Connection[Job, Reply] = here
        self._starting = True
        self.send(self._setup, STARTUP_TIMEOUT_S)

    def _lose(self, how: Loss, detail: str) -> Lost:
        if self._starting:
            self.close()
            raise TargetUnavailableError(f"the {self._setup.role} worker did not start: {how}, {detail}")
        self.restart()
        return Lost(how, detail)

    def _last_words(self) -> str:
        """How the process ended, with the last line that it printed."""
        try:
            code = self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        ended = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{ended}: {last[:300]}" if last else ended


def wait_for(workers: Sequence[WorkerProcess]) -> list[object]:
    """The connections with a reply, as soon as there is one or a worker is late; at once when none is at work."""
    busy = [w for w in workers if w.deadline < math.inf]
    if not busy:
        return []
    left = min(w.deadline for w in busy) - time.monotonic()
    # A little longer than to the deadline, so that it is over on return.
    return list(wait([w.connection for w in busy], max(0.0, left) + 1e-3))


def _environment(setup: Setup) -> dict[str, str]:
    """The environment of a worker: what can be imported here can be imported there."""
    path = os.pathsep.join(dict.fromkeys(os.path.abspath(p) for p in sys.path))
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": str(setup.threads), "MKL_NUM_THREADS": str(setup.threads)}
    if setup.role == "compile":
        own["CUDA_VISIBLE_DEVICES"] = ""
    return {**os.environ, **own}
