"""One session of a measurer for any number of searches: from its opening to the finals of all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from autosched.kernels import first_use
from autosched.machine.deadline import NEVER, Deadline
from autosched.measuring.measurer import Measurer, Measurers, Reservable
from autosched.measuring.session import local_measurer
from autosched.tuning.searching.interruption import interruptible
from autosched.tuning.searching.loop import Loop, TaskScheduler
from autosched.tuning.searching.parts import NOTHING_LENT
from autosched.tuning.searching.search import Search
from autosched.tuning.searching.time_limit import TimeLimit
from search_spaces import Schedule
from tuning_logs import Measurement

# Schedules of other sizes for the finals of a search, with what they took there.
Lend = Callable[[Search], Mapping[Schedule, Measurement]]

# One is measured, one is compiled, and one is proposed, of up to three searches.
_AHEAD_OF_SEVERAL = 3
# Part of a limited time that is for finals: a search of a minute takes finals of some seconds.
_FINALS_PART = 0.2


def run_all(
    searches: Sequence[Search],
    scheduler: TaskScheduler,
    measurer: Measurer | Measurers | None = None,
    deadline: Deadline = NEVER,
    last: Deadline = NEVER,
    lend: Lend = lambda search: NOTHING_LENT,
) -> None:
    """Search as `scheduler` says, all of one target, then hold finals; on this machine unless a measurer is given.

    Finals follow in the order of the searches, each with the schedules that `lend` gives then.

    After the deadline no search that has a kernel measures anything but what is being compiled or run, and after the
    `last` one none.

    Raises:
        InputError: the measurer is in use, or for another target.
        TargetUnavailableError: it breaks.
        LogError: a log cannot be read or written.
    """
    device = searches[0].space.target
    begin = time.perf_counter()
    limit = TimeLimit(deadline.part(1 - _FINALS_PART), searches, last)
    with interruptible() as interruption, ExitStack() as opened:
        # First of all: its workers may take seconds to start, in parallel with the following work.
        if measurer is None:
            measurer = local_measurer(device)
        elif isinstance(measurer, Measurers):
            measurer = opened.enter_context(measurer.session(device))
        if here := isinstance(measurer, Reservable):
            opened.enter_context(measurer.reserved(device))
        searches[0].wall_s += time.perf_counter() - begin
        Loop(measurer, interruption, scheduler, 2 if len(searches) == 1 else _AHEAD_OF_SEVERAL, limit).run()
        for number, search in enumerate(searches):
            share = deadline.part(1 / (len(searches) - number))
            search.finish(measurer, interruption, share, lend(search))
    for search in searches:
        best = search.best
        if here and best is not None and any(best is tried for tried in (*search.trials, *search.finals)):
            first_use.remember(best)
