"""`tune_many`: several operators and functions, over one session and one cost model, each trial where it gains most."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Iterable, Mapping, Sequence

import cost_models
from autosched.machine.deadline import Deadline
from autosched.machine.policies import Policy
from autosched.measuring import Measurer
from autosched.measuring.measurer import Measurers
from autosched.replaying.arguments import check_integer
from autosched.strategies import StrategyFactory
from autosched.tracing import Traced
from autosched.tracing.callables.traced import cuts_of
from autosched.tuning.many.gradient import Gradient
from autosched.tuning.many.results import TuneManyResult
from autosched.tuning.many.spent import Spent, spent_on
from autosched.tuning.many.weighted_searches import Weighted, WeightedSearches, checked
from autosched.tuning.progress import OnProgress, Pace, Progress
from autosched.tuning.results import TuneResult
from autosched.tuning.searching.preparation import Trials, check_trials, device_for, prepare
from autosched.tuning.searching.search import Search
from autosched.tuning.searching.session import run_all
from autosched.tuning.searching.sources import OtherLogs, Sources
from autosched.tuning.searching.time_limit import check_seconds
from autosched.tuning.traced_result import TracedTuneResult
from cost_models import CostModel, SharedModel
from search_spaces import EmptySearchSpaceError, Target, Workload


def tune_many(
    ops: Iterable[Workload | Traced | Weighted],
    target: str | Target | None = None,
    trials: Trials = 2000,
    *,
    strategy: str | StrategyFactory = "evolutionary",
    cost_model: str | CostModel = "xgboost",
    seconds: float | None = None,
    seed: int = 0,
    log: str | os.PathLike[str] | None = None,
    history: OtherLogs = None,
    policy: Policy = "cold",
    measurer: Measurer | Measurers | None = None,
    backend: str | None = None,
    on_progress: OnProgress | None = None,
) -> TuneManyResult:
    """Search for the fastest kernels of several operators, so that the weighted sum of their latencies is least.

    `ops` are operators and traced functions, alone or each with a weight, such as the number of its calls; a kernel of
    a function counts once for every launch. `trials` is the number of schedules in the log in the end, for all of them
    together; with "auto" each has as many as are worth it. `seconds` limits the time of all together, as for
    `tune`. Each batch goes where it should take most off the sum. One session measures all of them: while one is
    measured, others are compiled and proposed, and they share one cost model. Everything else is as for `tune`: the log
    is the same, and a second call resumes where the first one ended.

    Operators and functions that cannot be tuned are left out, and the result has the reasons.

    Raises:
        As `tune`; EmptySearchSpaceError: none of them has a legal schedule.
    """
    begin = time.perf_counter()
    given = checked(ops)
    check_trials(trials)
    check_seconds(seconds)
    deadline = Deadline.after(seconds)
    check_integer("seed", seed, 0)
    device = device_for(target, measurer is not None, backend)
    prepare_one = functools.partial(
        prepare,
        target=device,
        trials=trials,
        strategy=strategy,
        cost_model=SharedModel(cost_models.create(cost_model, seed)),
        seed=seed,
        log=log,
        policy=policy,
        backend=backend,
        measured_elsewhere=measurer is not None,
        sources=Sources.of(history),
    )
    added = WeightedSearches(device, prepare_one)
    cuts = tuple(added.add(op, weight) for op, weight in given)
    if added.refused and not added.searches:
        raise EmptySearchSpaceError("; ".join(f"{label}: {why}" for label, why in added.refused.items()))
    budget = None if trials == "auto" else trials
    gradient = Gradient(added.searches, added.weights, budget)
    if on_progress is not None:
        show_together(added.searches, budget, on_progress)
    if not gradient.over or any(search.finals_due for search in added.searches):
        run_all(added.searches, gradient, measurer, deadline)
    weights = tuple(weight for _, weight in given)
    return _result(cuts, weights, added, gradient, time.perf_counter() - begin)


def show_together(searches: Sequence[Search], wanted: int | None, on_progress: OnProgress) -> None:
    """Have every search show the progress of all together; None is wanted where each stops by itself."""
    most = sum(search.wanted for search in searches) if wanted is None else wanted
    pace = Pace(sum(search.known for search in searches))

    def show(progress: Progress) -> None:
        known = sum(search.known for search in searches)
        on_progress(
            dataclasses.replace(
                progress,
                trials=known,
                wanted=most,
                known_before=pace.known_before,
                remaining_s=None if wanted is None else pace.remaining_s(known, wanted),
            )
        )

    for search in searches:
        search.on_progress = show


def _result(
    cuts: Sequence[Workload | Traced | None],
    weights: tuple[float, ...],
    added: WeightedSearches,
    gradient: Gradient,
    wall_s: float,
) -> TuneManyResult:
    spent = spent_on(added.searches, added.weights(), gradient.turns)
    found = {one.result.workload.key: one for one in spent}
    results = tuple(None if cut is None else _of_cut(cut, found) for cut in cuts)
    return TuneManyResult(added.target, results, weights, tuple(added.refused.items()), spent, wall_s)


def _of_cut(cut: Workload | Traced, found: Mapping[str, Spent]) -> TuneResult | TracedTuneResult:
    if isinstance(cut, Workload):
        return found[cut.key].result
    keys = dict.fromkeys(workload.key for each in cuts_of(cut) for workload in each.workloads)
    return TracedTuneResult(cut, tuple(found[key] for key in keys if key in found))
