"""Configurations that compile beside each other, and beside trials of those that have: some take ten times as long.

Of an attention most configurations for an H200 took the compiler 1 to 3 s on one core, and large tiles on two warps up
to 18 s, most of it to spill registers: none of these is fast. A search of 48 trials that waited for each took 23 s, and
one that does not 11 s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from time import perf_counter

from autosched.tuning.autotune.calls.call import Call
from autosched.tuning.autotune.configurations import Configuration
from autosched.tuning.autotune.trials.launching import begin_compiling

# A thread that is never given back must not be what the next one waits for; they begin as they are needed.
_MOST_THREADS = 1024


@dataclass(frozen=True)
class Compiling:
    """A configuration whose compiler was started; `future` is None where there is nothing to wait for."""

    configuration: Configuration
    future: Future[object] | None

    @property
    def ended(self) -> bool:
        return self.future is None or self.future.done()


class Compilers:
    """Threads in which configurations of a call compile: all that are begun at once, beside those that never end."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._pool = ThreadPoolExecutor(_MOST_THREADS)

    def begin(self, configurations: Sequence[Configuration]) -> list[Compiling]:
        futures = begin_compiling(self._call, configurations, self._pool)
        return [Compiling(*pair) for pair in zip(configurations, futures, strict=True)]

    def end(self) -> None:
        """Begin no more; what is under way ends by itself, and is kept in Triton's cache."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def wait_for_most(asked: Collection[Compiling], every: Collection[Compiling], most_s: float) -> None:
    """Until half as many as were asked for have ended, of every one; then as long again for what was asked for.

    One at least; and for the half no longer than so many seconds.
    """
    begin = perf_counter()
    missing = max(1, (len(asked) + 1) // 2) - sum(compiling.future is None for compiling in every)
    with suppress(TimeoutError):
        for _ in islice(as_completed(_futures(every), most_s), max(0, missing)):
            pass
    wait(_futures(asked), perf_counter() - begin)


def wait_for_all(some: Iterable[Compiling], most_s: float | None = None) -> None:
    """Until all have ended, or for so many seconds."""
    wait(_futures(some), most_s)


def _futures(some: Iterable[Compiling]) -> list[Future[object]]:
    return [compiling.future for compiling in some if compiling.future is not None]
