"""Threads of the libraries behind numpy's linear algebra. They ask for their number once, when numpy is imported.

What a search computes is small: of matrices of a few hundred rows, two threads on two shared cores took five times as
long as one.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator

# What the libraries that numpy may come with look at.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# The numbers of OpenBLAS, by the names that builds of numpy give its functions.
_NUMBERS = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")
# What one thread puts back, another may just have changed.
_CHANGING = threading.RLock()


@contextlib.contextmanager
def one_meanwhile() -> Iterator[None]:
    """One thread while this lasts, in a process where numpy may long have taken more; of OpenBLAS alone."""
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
    """What says and what sets the number of threads; None where numpy is linked to another library."""
    spec = importlib.util.find_spec("numpy.linalg._umath_linalg")
    if spec is None or spec.origin is None:
        return None
    # A symbol is looked for in what a library was linked with, too.
    library = ctypes.CDLL(spec.origin)
    for name in _NUMBERS:
        with contextlib.suppress(AttributeError):
            return getattr(library, name.format("get")), getattr(library, name.format("set"))
    return None


def take_one() -> None:
    """One thread for this process, unless its environment says otherwise; before numpy is imported."""
    for name, one in ONE_THREAD.items():
        os.environ.setdefault(name, one)


@contextlib.contextmanager
def one_in_new_processes() -> Iterator[None]:
    """One thread for each process that begins meanwhile, whatever the environment says."""
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
