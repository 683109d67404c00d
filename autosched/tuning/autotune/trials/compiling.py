"""Parallel compilation of configurations, also during trials of finished ones: some take ten times as long.

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

# All that are submitted compile at once, including those that never end: the next one must not wait for a thread that
# is never returned; threads start on demand.
MOST_THREADS = 1024


def wait_for_most(asked: Collection[Future[object]], every: Collection[Future[object]], most_s: float) -> None:
    """Wait until as many futures of `every` have ended as half of `asked`; then as long again for `asked`.

    One at least; and for the half no longer than so many seconds.
    """
    begin = perf_counter()
    with suppress(TimeoutError):
        for _ in islice(as_completed(every, most_s), max(1, (len(asked) + 1) // 2)):
            pass
    wait(asked, perf_counter() - begin)
