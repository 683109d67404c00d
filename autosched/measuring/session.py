"""The measurers that `tune` opens: one for every target, open until the process ends or `close` is called."""

from __future__ import annotations

import functools
import os
import threading

from autosched.measuring.local.fork_server import close_shared_server
from autosched.measuring.local_measurer import LocalMeasurer
from search_spaces import Target


class LocalMeasurers:
    """The open measurers of a process, by target; a CPU with another number of threads is another target."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the device and its threads: the clock rate, part of a CPU's target, is not always the same.
        self._by_key: dict[str, LocalMeasurer] = {}

    def of(self, target: Target) -> LocalMeasurer:
        """The measurer of a target, opened on demand, and anew where it broke."""
        with self._lock:
            found = self._by_key.get(target.key)
            if found is None or not found.usable:
                if found is not None:
                    found.close()
                found = self._by_key[target.key] = LocalMeasurer(target)
            return found

    def close(self) -> None:
        with self._lock:
            for measurer in self._by_key.values():
                measurer.close()
            self._by_key.clear()


def local_measurer(target: Target) -> LocalMeasurer:
    """The measurer of this process for a target."""
    return _of_process(os.getpid()).of(target)


def close() -> None:
    """End all measuring processes of this one; the next search starts others.

    Without it they end with this process. Other open measurers are closed, too.
    """
    _of_process(os.getpid()).close()
    close_shared_server()


@functools.cache
def _of_process(process: int) -> LocalMeasurers:
    # A process forked from this one has measurers of its own.
    return LocalMeasurers()
