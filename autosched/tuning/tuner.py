"""`tune`: search for the fastest kernel of a workload, resuming from the log what earlier runs have measured."""

from __future__ import annotations

import functools
import os
from typing import overload

import cost_models
from autosched.kernels.dynamic_operator import DynamicOperator
from autosched.machine.deadline import NEVER, Deadline
from autosched.machine.policies import Policy
from autosched.measuring import Measurer
from autosched.measuring.measurer import Measurers
from autosched.strategies import StrategyFactory
from autosched.tracing.callables.traced import Traced
from autosched.tuning.many.gradient import Gradient
from autosched.tuning.many.sizes import tune_sizes
from autosched.tuning.many.spent import spent_on
from autosched.tuning.many.weighted_searches import WeightedSearches
from autosched.tuning.progress import OnProgress
from autosched.tuning.results import TuneResult
from autosched.tuning.searching.loop import Alone
from autosched.tuning.searching.preparation import Trials, device_for, prepare
from autosched.tuning.searching.search import Search
from autosched.tuning.searching.session import run_all
from autosched.tuning.searching.sources import OtherLogs, Sources
from autosched.tuning.searching.time_limit import check_seconds
from autosched.tuning.traced_result import TracedTuneResult
from cost_models import CostModel, SharedModel
from search_spaces import Target, Workload


@overload
def tune(
    op: Workload,
    target: str | Target | None = None,
    trials: Trials = 1000,
    *,
    strategy: str | StrategyFactory = ...,
    cost_model: str | CostModel = ...,
    seconds: float | None = ...,
    seed: int = ...,
    log: str | os.PathLike[str] | None = ...,
    history: OtherLogs = ...,
    policy: Policy = ...,
    measurer: Measurer | Measurers | None = ...,
    backend: str | None = ...,
    on_progress: OnProgress | None = ...,
) -> TuneResult: ...


@overload
def tune(
    op: Traced,
    target: str | Target | None = None,
    trials: Trials = 1000,
    *,
    strategy: str | StrategyFactory = ...,
    cost_model: str | CostModel = ...,
    seconds: float | None = ...,
    seed: int = ...,
    log: str | os.PathLike[str] | None = ...,
    history: OtherLogs = ...,
    policy: Policy = ...,
    measurer: Measurer | Measurers | None = ...,
    backend: str | None = ...,
    on_progress: OnProgress | None = ...,
) -> TracedTuneResult: ...


def tune(
    op: Workload | Traced,
    target: str | Target | None = None,
    trials: Trials = 1000,
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
) -> TuneResult | TracedTuneResult:
    """Search for the fastest kernel of `op`, writing every trial to the log; for each of a traced function's kernels.

    `target` is a name ("h200", "cpu"), a `Target`, or None for the device that is here. `trials` is the number of
    distinct schedules in the log in the end, those of earlier runs included: a second call on the same log measures
    nothing again, and an interrupted search resumes; for a function, of every kernel. "auto" stops where less than 1 %
    is expected of three times as many. A record does not count if this version makes another kernel of its schedule.
    `seconds` limits the time of all this, finals included: what is being compiled or run then ends, and a kernel
    without any success goes on until it has one.
    `log` is by default the user's (`tuning_logs.user_log_path`). `policy` is the timing policy: with "cold" or "hot"
    caches, launched by a CUDA "graph", or as within a "model": activations in the caches, weights in memory.

    `history` names logs for a warm start in addition to the user's own and the shipped records: a colleague's, another
    machine's (their paths, or `TuningLog`s). With `()` it starts cold: without either, though records of the same
    workload and target in `log` still count, and similar kernels of one call share theirs.

    `strategy` is a name ("evolutionary", "random", "exhaustive"), or a factory that is called for every search: the
    class of a strategy of your own, or a function of a search space, a cost model and a random generator. `cost_model`
    is a name ("xgboost", "roofline", "random"), or a model of your own or a loaded one, which the search then trains.
    `backend` makes the kernels, "triton", "cuda" or "llvm"; by default all that are here and make any for the target,
    and the backend of a kernel is a choice of the search. `measurer` replaces that of this process, whose workers stay
    for the next call, until the process ends or calls `close`. `on_progress` is called after every trial. Ctrl-C ends
    the search when the present measurements have ended; a second one, at once.

    Raises:
        InputError: an argument is not allowed. Nothing was written.
        TargetUnavailableError: this machine cannot run kernels for the target, and the message names the ways on; or it
            cannot compile them.
        EmptySearchSpaceError: no schedule is legal.
        LogError: the log cannot be read or written, or has no folder.
    """
    check_seconds(seconds)
    deadline = Deadline.after(seconds)
    prepare_one = functools.partial(
        prepare,
        trials=trials,
        strategy=strategy,
        cost_model=SharedModel(cost_models.create(cost_model, seed)) if isinstance(op, Traced) else cost_model,
        seed=seed,
        log=log,
        policy=policy,
        backend=backend,
        measured_elsewhere=measurer is not None,
        on_progress=on_progress,
        sources=Sources.of(history),
    )
    if isinstance(op, Traced):
        device = device_for(target, measurer is not None, backend)
        prepare_for_device = functools.partial(prepare_one, target=device)
        if isinstance(op, DynamicOperator):
            return tune_sizes(op, device, prepare_for_device, measurer, deadline)
        added = WeightedSearches(device, prepare_for_device)
        return _tuned(op.for_target(device), added, measurer, deadline)
    return run(prepare_one(op, target), measurer, deadline)


def _tuned(
    traced: Traced, added: WeightedSearches, measurer: Measurer | Measurers | None, deadline: Deadline
) -> TracedTuneResult:
    """All kernels of a function over one session, in the order of their expected gains."""
    added.add_cut(traced, 1.0)
    gradient = Gradient(added.searches, added.weights)
    if not all(search.complete for search in added.searches):
        run_all(added.searches, gradient, measurer, deadline)
    for search in added.searches:
        if search.unfit is not None:
            raise search.unfit
    return TracedTuneResult(traced, spent_on(added.searches, added.weights(), gradient.turns))


def run(search: Search, measurer: Measurer | Measurers | None = None, deadline: Deadline = NEVER) -> TuneResult:
    """The second part of `tune`: search, measuring on this machine unless a measurer is given.

    Raises:
        As `tune`.
    """
    if not search.complete:
        run_all([search], Alone(search), measurer, deadline)
    if search.unfit is not None:
        raise search.unfit
    return TuneResult.of(search)
