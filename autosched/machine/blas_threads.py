"""Threads of the libraries behind numpy's linear algebra. They read their number once, when numpy is imported.

A search's matrices are small: with a few hundred rows, two threads on two shared cores took five times as long as one.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator

# Environment variables that set the number of threads of the libraries that numpy may come with.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# OpenBLAS's functions for its number of threads, by the names that builds of numpy give them.
_NUMBERS = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")
# Guards the number of threads: one thread could restore it over another's change.
_CHANGING = threading.RLock()


@contextlib.contextmanager
def one_meanwhile() -> Iterator[None]:
    """One thread while the block lasts, in a process where numpy may have taken more; for OpenBLAS only."""
    functions = openblas_threads()
    if functions is None:
        yield
        return
    number, take = functions
    with _CHANGING:
        before = number()
        take(1)
        try:
            yield
        finally:
            take(before)


@functools.cache
def openblas_threads() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """Getter and setter of the number of threads; None where numpy is linked to another library."""
    spec = importlib.util.find_spec("numpy.linalg._umath_linalg")
    if spec is None or spec.origin is None:
        return None
    # A symbol is looked up in the libraries that it is linked with, too.
    library = ctypes.CDLL(spec.origin)
    for name in _NUMBERS:
        with contextlib.suppress(AttributeError):
            return getattr(library, name.format("get")), getattr(library, name.format("set"))
    return None


def take_one() -> None:
    """One thread for this process, unless its environment says otherwise; call it before numpy is imported."""
    for name, one in ONE_THREAD.items():
        os.environ.setdefault(name, one)


@contextlib.contextmanager
def one_in_new_processes() -> Iterator[None]:
    """One thread for each process started while the block lasts, whatever the environment says."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
