"""Ctrl-C as a request to stop when the present measurements have ended, so that none is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """True once Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.requested = False

    def __bool__(self) -> bool:
        return self.requested


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Make the first Ctrl-C set a flag; the second one interrupts at once.

    Only the main thread can do this. In any other thread, or if SIGINT has another handler already, nothing is changed.
    """
    wish = Interruption()
    default = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not default:
        yield wish
        return

    def request(number: int, frame: FrameType | None) -> None:
        wish.requested = True
        signal.signal(signal.SIGINT, default)

    signal.signal(signal.SIGINT, request)
    try:
        yield wish
    finally:
        signal.signal(signal.SIGINT, default)
