"""Threads of the libraries behind numpy's linear algebra. They ask for their number once, when numpy is imported.

What a search computes is small: of matrices of a few hundred rows, two threads on two cores took twice as long as one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

# What the libraries that numpy may come with look at.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


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
