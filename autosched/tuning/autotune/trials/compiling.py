"""Configurations that compile beside each other, and beside trials of those that have: some take ten times as long.

Of an attention most configurations for an H200 took the compiler 1 to 3 s on one core, and large tiles on two warps up
to 18 s, most of it to spill registers: none of these is fast. A search of 48 trials that waited for each took 23 s, and
one that does not 11 s.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, as_completed, wait
from contextlib import suppress
from itertools import islice
from time import perf_counter

# All that are begun compile at once, beside those that never end: a thread that is never given back must not be what
# the next one waits for; they begin as they are needed.
MOST_THREADS = 1024


def wait_for_most(asked: Collection[Future[object]], every: Collection[Future[object]], most_s: float) -> None:
    """Until half as many as were asked for have ended, of every one; then as long again for what was asked for.

    One at least; and for the half no longer than so many seconds.
    """
    begin = perf_counter()
    with suppress(TimeoutError):
        for _ in islice(as_completed(every, most_s), max(1, (len(asked) + 1) // 2)):
            pass
    wait(asked, perf_counter() - begin)
