"""Tuning while a compiled model is used: in a process of its own, one graph after the other.

A graph is called as it is until its kernels are tuned. What they then make of it is compared with what it is, and
exchanged, by the next call, in that call's thread: the only other use of the device is the tuning process's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, Any

from torch import Tensor

from autosched.kernels.static_tensors import is_captured
from autosched.measuring.local.fork_server import last_line
from autosched.torch_compile.composition import Boxed
from autosched.torch_compile.tuning.tuning_process import TuningWork

_log = logging.getLogger(__name__)
_MODULE = "autosched.torch_compile.tuning.tuning_process"

# Does some work, tells of its progress line by line, and returns the reason that it failed, "" for none.
Tuner = Callable[[TuningWork, Callable[[str], None]], str]


class BackgroundTuning:
    """The tuning of compiled models in the background: `torch.compile(…, options={"background": BackgroundTuning()})`.

    Its graphs are tuned in the order of their first calls. `str(…)` tells how far it is.
    """

    def __init__(self, tuner: Tuner | None = None) -> None:
        """`tuner` is by default a process on this machine."""
        self._process = TuningProcess()
        self._tuner = tuner or self._process
        self._changed = threading.Condition()
        self._waiting: deque[tuple[TuningWork, Callable[[], None]]] = deque()
        self._done, self._stopped, self._working = 0, False, False
        self._line = ""
        # Reasons of what failed.
        self.failures: list[str] = []

    def add(self, work: TuningWork, tuned: Callable[[], None]) -> None:
        """Have some work done, and a function called afterwards, whatever failed."""
        with self._changed:
            if self._stopped:
                return
            self._waiting.append((work, tuned))
            if not self._working:
                self._working = True
                threading.Thread(target=self._work, name="autosched background", daemon=True).start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all graphs so far are tuned, so many seconds at most; False if some are not.

        The next call of each graph then compares and exchanges its kernels.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not self._working, seconds)

    def stop(self) -> None:
        """End the tuning. What was measured is in the log, and the next one goes on from there."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
        self._process.end()
        self.wait()

    def failed(self, why: str) -> None:
        """Note and show a failure, once each."""
        if why not in self.failures:
            self.failures.append(why)
            _log.warning("tuning in the background: %s", why)

    def __str__(self) -> str:
        with self._changed:
            left = len(self._waiting) + self._working
            text = f"{self._done} of {self._done + left} graphs tuned"
            return "; ".join(filter(None, (text, self._line if left else "", *self.failures)))

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._working, self._line = False, ""
                    self._changed.notify_all()
                    return
                work, tuned = self._waiting.popleft()
            try:
                why = self._tuner(work, self._show)
                if not self._stopped:
                    if why:
                        self.failed(why)
                    tuned()
            except Exception as error:
                # The model is called as it is, and the other graphs are tuned.
                self.failed(f"{type(error).__name__}: {error}")
            with self._changed:
                self._done += 1

    def _show(self, line: str) -> None:
        self._line = line


class TuningProcess:
    """Work in a process that ends with this one, one at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock, self._ended = threading.Lock(), False

    def __call__(self, work: TuningWork, show: Callable[[str], None]) -> str:
        with tempfile.TemporaryFile() as errors:
            with self._lock:
                if self._ended:
                    return ""
                process = self._process = _started(errors)
            with process:
                assert process.stdin is not None
                assert process.stdout is not None
                # One that has ended before it reads has said why.
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(pickle.dumps(work))
                    process.stdin.flush()
                for line in process.stdout:
                    show(line.decode(errors="replace").strip())
            return f"{last_line(errors) or 'it ended'} (exit status {process.returncode})" if process.returncode else ""

    def end(self) -> None:
        """End the work at once, and do none from now on."""
        with self._lock:
            self._ended = True
            if self._process is not None:
                self._process.kill()


def _started(errors: IO[bytes]) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(dict.fromkeys(os.path.abspath(p) for p in sys.path))
    return subprocess.Popen(
        # -P: the working directory is no place to import from.
        [sys.executable, "-P", "-m", _MODULE],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        # Ctrl-C is this process's.
        start_new_session=True,
    )


class TunedLater:
    """A graph as a function of a list of its inputs, which it empties; another one from some call on."""

    def __init__(self, call: Boxed) -> None:
        self._call = call
        self._better: Callable[[], Boxed] | None = None
        self._lock = threading.Lock()
        # AOTAutograd's convention; wrappers of PyTorch's copy what is in the instance.
        self._boxed_call = True

    def become(self, better: Callable[[], Boxed]) -> None:
        """Have the next call find the function to go on with. `better` raises nothing."""
        self._better = better

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        if self._better is not None:
            self._exchange(inputs)
        return self._call(inputs)

    def _exchange(self, inputs: Sequence[Any]) -> None:
        if any(is_captured(x.device) for x in inputs if isinstance(x, Tensor)) or not self._lock.acquire(False):
            return
        try:
            if (better := self._better) is not None:
                self._call = better()
                self._better = None
        finally:
            self._lock.release()
