"""Exclusive use of a measurer: one search at a time, of one thread, in the process that opened it."""

from __future__ import annotations

import os
import threading

from search_spaces import InputError

_OTHER = "autosched.LocalMeasurer(target)"


class Reservation:
    """Reservation of one measurer, which measures on `device`. Only `check_process` may be called without the lock.

    The lock is the measurer's own: a process forked while another thread has it would wait for ever.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._process = os.getpid()
        self._thread: int | None = None

    @property
    def here(self) -> bool:
        """True in the process that opened the measurer, False in one that was forked from it."""
        return os.getpid() == self._process

    @property
    def taken(self) -> bool:
        """True while a search has it."""
        return self._thread is not None

    def check_process(self) -> None:
        """Raise InputError in a forked process."""
        if not self.here:
            raise InputError(
                f"the measurer for {self._device} belongs to process {self._process}, from which this one "
                f"({os.getpid()}) was forked; open another one: {_OTHER}"
            )

    def check_thread(self) -> None:
        """Raise InputError while another thread's search has it."""
        if self._thread not in (None, threading.get_ident()):
            raise self._in_use("another thread")

    def take(self) -> None:
        """Reserve it for a search of this thread. Raises InputError while any search has it."""
        if self._thread is not None:
            raise self._in_use("this thread" if self._thread == threading.get_ident() else "another thread")
        self._thread = threading.get_ident()

    def end(self) -> None:
        self._thread = None

    def _in_use(self, whose: str) -> InputError:
        return InputError(
            f"the measurer for {self._device} is in use by a search of {whose}; expected one search at a time: wait "
            f"for it, or give this one a measurer of its own: with {_OTHER} as measurer"
        )
