"""The kernels of several traced functions, tuned together until a deadline."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence

import cost_models
from autosched.machine.deadline import NEVER, Deadline
from autosched.measuring.measurer import Measurer, Measurers
from autosched.tracing import TracedFunction
from autosched.tuning.every_cut import launches
from autosched.tuning.many.gradient import Gradient
from autosched.tuning.many.tune_many import show_together
from autosched.tuning.many.weighted_searches import WeightedSearches
from autosched.tuning.progress import OnProgress
from autosched.tuning.searching.loop import TaskScheduler
from autosched.tuning.searching.preparation import Trials, prepare
from autosched.tuning.searching.search import Search
from autosched.tuning.searching.session import run_all
from autosched.tuning.searching.sources import Sources
from cost_models import SharedModel
from search_spaces import Target
from tuning_logs.selection import MOST_TOLD

_SEED = 0
# Records from elsewhere that a search of limited time learns from. Their features take 10 to 50 ms each, and a model
# has dozens of kernels: with all 256, searches of a minute on an H200's host had no trial of most in the first half.
_MOST_HISTORY = 64
# A function, its target, and how often it is called.
Function = tuple[TracedFunction, Target, int]


def tune_together(
    functions: Sequence[Function],
    trials: Trials,
    ends: tuple[Deadline, Deadline],
    log: str | os.PathLike[str] | None,
    on_progress: OnProgress | None = None,
    measurer: Measurer | Measurers | None = None,
) -> list[Exception | None]:
    """Search for the fastest kernels of functions; returns for every one the error that kept it from being tuned.

    Each batch goes where it should take most off the sum of all their times. `trials` are those of every kernel. What
    has no success at the first of both `ends` goes on until it has one, or until the last one. `measurer` is
    as for `tune`.

    Raises:
        KeyboardInterrupt: the user has interrupted it; what was measured is in the log.
    """
    errors: dict[int, Exception | None] = {}
    deadline, last = ends
    targets = list(dict.fromkeys(target for _, target, _ in functions))
    for done, target in enumerate(targets):
        numbers = [n for n, (_, of, _) in enumerate(functions) if of == target]
        prepare_one = functools.partial(
            prepare,
            target=target,
            trials=trials,
            cost_model=SharedModel(cost_models.create("xgboost", _SEED)),
            seed=_SEED,
            log=log,
            sources=Sources(most=MOST_TOLD if deadline is NEVER else _MOST_HISTORY),
        )
        found = _tuned(
            [functions[n] for n in numbers],
            WeightedSearches(target, prepare_one),
            functools.partial(run_all, measurer=measurer, deadline=deadline.part(1 / (len(targets) - done)), last=last),
            on_progress,
        )
        errors |= dict(zip(numbers, found, strict=True))
    return [errors[n] for n in range(len(functions))]


def _tuned(
    functions: Sequence[Function],
    added: WeightedSearches,
    run: Callable[[Sequence[Search], TaskScheduler], None],
    on_progress: OnProgress | None,
) -> list[Exception | None]:
    errors = [_added(added, *each) for each in functions]
    searches = added.searches
    if on_progress is not None:
        show_together(searches, None, on_progress)
    if all(search.complete for search in searches):
        return errors
    try:
        run(searches, Gradient(searches, added.weights))
    except Exception as error:
        return [each or error for each in errors]
    if any(search.interrupted for search in searches):
        raise KeyboardInterrupt
    unfit = {search.space.workload.key: search.unfit for search in searches if search.unfit}
    return [error or _why_unfit(*each, unfit) for error, each in zip(errors, functions, strict=True)]


def _added(added: WeightedSearches, traced: TracedFunction, target: Target, times: int) -> Exception | None:
    try:
        added.add_cut(traced.for_target(target), times)
    except Exception as error:
        # The others are tuned.
        return error
    return None


def _why_unfit(
    traced: TracedFunction, target: Target, times: int, unfit: Mapping[str, Exception | None]
) -> Exception | None:
    keys = (key for cut in launches(traced.for_target(target)) for key in cut)
    return next((unfit[key] for key in keys if key in unfit), None)
