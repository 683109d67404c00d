"""Configurations that compile beside each other, and beside trials of those that have: some take ten times as long.

Of an attention most configurations for an H200 took the compiler 1 to 3 s on one core, and large tiles on two warps up
to 18 s, most of it to spill registers: none of these is fast. A search of 48 trials that waited for each took 23 s, and
one that does not 11 s.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from time import perf_counter

from autosched.tuning.autotune.calls.call import Call
from autosched.tuning.autotune.configurations import Configuration
from autosched.tuning.autotune.trials.launching import begin_compiling


@dataclass(frozen=True)
class Compiling:
    """A configuration whose compiler was started; `future` is None where there is nothing to wait for."""

    configuration: Configuration
    future: Future[object] | None

    @property
    def ended(self) -> bool:
        return self.future is None or self.future.done()


class Compilers:
    """As many threads as there are processors, in which configurations of a call compile."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._pool = ThreadPoolExecutor(os.cpu_count())

    def begin(self, configurations: Sequence[Configuration]) -> list[Compiling]:
        futures = begin_compiling(self._call, configurations, self._pool)
        return [Compiling(*pair) for pair in zip(configurations, futures, strict=True)]

    def end(self) -> None:
        """Begin no more; what is under way ends by itself, and is kept in Triton's cache."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def wait_for_most(some: Iterable[Compiling]) -> None:
    """Until half of these have ended, and then as long again for the others."""
    begin, futures = perf_counter(), _futures(some)
    for ended, _ in enumerate(as_completed(futures), 1):
        if 2 * ended >= len(futures):
            break
    wait(futures, perf_counter() - begin)


def wait_for_all(some: Iterable[Compiling], most_s: float | None = None) -> None:
    """Until all have ended, or for so many seconds."""
    wait(_futures(some), most_s)


def _futures(some: Iterable[Compiling]) -> list[Future[object]]:
    return [compiling.future for compiling in some if compiling.future is not None]
