"""`tune`: search for the fastest kernel of a workload, resuming from the log what earlier runs have measured."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar, overload

import numpy as np

import cost_models
from autosched import backends, strategies
from autosched.backends import spaces
from autosched.backends.generator import generator_hash
from autosched.backends.reproduction import Reproduction
from autosched.kernels import first_use
from autosched.machine import devices
from autosched.machine.noise import why_disturbed
from autosched.machine.timing import Policy, check_timing
from autosched.measuring import LocalMeasurer, Measurer, local_measurer
from autosched.replaying.arguments import check_integer, check_workload, written_log_path
from autosched.strategies import StrategyFactory
from autosched.tracing.callables.traced import Traced, cuts_of
from autosched.tuning.effort import WorkSeconds, ladder
from autosched.tuning.interruption import interruptible
from autosched.tuning.loop import Alone, Loop
from autosched.tuning.progress import OnProgress
from autosched.tuning.results import TracedTuneResult, TuneResult
from autosched.tuning.search import Ending, Search
from autosched.tuning.warm_start import history
from cost_models import CostModel
from search_spaces import EmptySearchSpaceError, Target, TargetUnavailableError, Workload
from tuning_logs import Provenance, TuningLog
from tuning_logs.ranking import standing

# What is found for one workload.
Found = TypeVar("Found")


@overload
def tune(
    op: Workload,
    target: str | Target | None = None,
    trials: int = 1000,
    *,
    strategy: str | StrategyFactory = ...,
    cost_model: str | CostModel = ...,
    seed: int = ...,
    log: str | os.PathLike[str] | None = ...,
    policy: Policy = ...,
    measurer: Measurer | None = ...,
    backend: str | None = ...,
    on_progress: OnProgress | None = ...,
) -> TuneResult: ...


@overload
def tune(
    op: Traced,
    target: str | Target | None = None,
    trials: int = 1000,
    *,
    strategy: str | StrategyFactory = ...,
    cost_model: str | CostModel = ...,
    seed: int = ...,
    log: str | os.PathLike[str] | None = ...,
    policy: Policy = ...,
    measurer: Measurer | None = ...,
    backend: str | None = ...,
    on_progress: OnProgress | None = ...,
) -> TracedTuneResult: ...


def tune(
    op: Workload | Traced,
    target: str | Target | None = None,
    trials: int = 1000,
    *,
    strategy: str | StrategyFactory = "evolutionary",
    cost_model: str | CostModel = "xgboost",
    seed: int = 0,
    log: str | os.PathLike[str] | None = None,
    policy: Policy = "cold",
    measurer: Measurer | None = None,
    backend: str | None = None,
    on_progress: OnProgress | None = None,
) -> TuneResult | TracedTuneResult:
    """Search for the fastest kernel of `op`, writing every trial to the log; for each of a traced function's kernels.

    `target` is a name ("h200", "cpu"), a `Target`, or None for the device that is here. `trials` counts the distinct
    schedules that the log knows in the end, those of earlier runs included: a second call on the same log measures
    nothing again, and an interrupted search resumes. A schedule of which this version makes another kernel than was
    measured is not known. `log` is by default the user's (`tuning_logs.user_log_path`). `policy` is how kernels are
    timed: with "cold" or "hot" caches, or launched by a CUDA "graph".

    `strategy` is a name ("evolutionary", "random", "exhaustive"), or what makes one for every search: the class of a
    strategy of your own, or a function of a search space, a cost model and a random generator. `cost_model` is a name
    ("xgboost", "roofline", "random"), or a model of your own or one that was loaded, which the search then trains.
    `backend` makes the kernels, "triton", "cuda" or "llvm"; by default all that are here and make any for the target,
    and which one makes a kernel is a choice of the search. `measurer` stands in for that of this process, whose workers
    stay for the next call, until the process ends or calls `close`. `on_progress` is called after every trial. Ctrl-C
    ends the search when what is being measured has ended; a second one, at once.

    Raises:
        InputError: an argument is not allowed. Nothing was written.
        TargetUnavailableError: this machine cannot run kernels for the target, and the message names the ways on; or
            it cannot compile them.
        EmptySearchSpaceError: no schedule is legal.
        LogError: the log cannot be read or written, or has no folder.
    """
    if isinstance(op, Traced):
        search_one = functools.partial(
            tune,
            target=target,
            trials=trials,
            strategy=strategy,
            cost_model=cost_model,
            seed=seed,
            log=log,
            policy=policy,
            measurer=measurer,
            backend=backend,
            on_progress=on_progress,
        )
        cut = op.for_target(_device(target, measurer is not None))
        return TracedTuneResult(cut, of_all_workloads(cut, search_one))
    search = prepare(
        op,
        target,
        trials,
        strategy=strategy,
        cost_model=cost_model,
        seed=seed,
        log=log,
        policy=policy,
        backend=backend,
        measured_elsewhere=measurer is not None,
    )
    search.on_progress = on_progress
    return run(search, measurer)


def of_all_workloads(traced: Traced, search: Callable[[Workload], Found]) -> tuple[Found, ...]:
    """What is found for every workload of everything it was cut into that can be computed on the target.

    Raises:
        EmptySearchSpaceError: of what is cut as it is on every device, something has no legal schedule.
    """
    found: dict[str, Found] = {}
    for number, cut in enumerate(cuts_of(traced)):
        try:
            for workload in cut.workloads:
                found[workload.key] = found.get(workload.key) or search(workload)
        except EmptySearchSpaceError:
            if number == 0:
                raise
    return tuple(found.values())


def prepare(
    op: Workload,
    target: str | Target | None,
    trials: int,
    *,
    strategy: str | StrategyFactory,
    cost_model: str | CostModel,
    seed: int,
    log: str | os.PathLike[str] | None,
    policy: Policy,
    backend: str | None = None,
    measured_elsewhere: bool = False,
) -> Search:
    """The first part of `tune`: everything that can be refused is checked, and nothing measured.

    Takes milliseconds, and one to four for every schedule that the log knows of the workload: what was measured counts
    while its schedule prints the same kernel (`autosched.backends.reproduction`).

    With `measured_elsewhere` the target need not be on this machine.

    Raises:
        As `tune`.
    """
    check_workload(op)
    check_integer("trials", trials, 1)
    check_integer("seed", seed, 0)
    if backend is not None:
        # Before the device: a name that is wrong everywhere is told where there is none.
        backends.named(backend)
    tuning_log = TuningLog(written_log_path(log))
    device = _device(target, measured_elsewhere)
    check_timing(policy, device)
    space = spaces.build(op, device, backends.usable(device, backend))
    # Raises where no schedule is legal, whatever the strategy would make of that.
    space.sample(np.random.default_rng(seed))
    model = cost_models.create(cost_model, seed)
    found = (r for r in tuning_log.records(op, device, policy=policy) if space.holds(r.schedule))
    records = list(filter(Reproduction().is_good, found))
    # Another seed for every number of known trials: a resumed search does not draw the same candidates again.
    rng = np.random.default_rng([seed, len(standing(records))])
    searcher = strategies.create(strategy, space, model, rng)
    provenance = Provenance(generator_hash(), policy, 0.0, seed, 0)
    search = Search(space, searcher, tuning_log, provenance, trials, records)
    if not search.complete:
        tuning_log.check_writable()
    return search


def _device(target: str | Target | None, measured_elsewhere: bool) -> Target:
    if measured_elsewhere:
        return devices.described(target)
    try:
        return devices.resolve(target)
    except TargetUnavailableError as error:
        if target is None or str(target).lower() == "cuda":
            raise
        raise TargetUnavailableError(f"{error}; {_ways_on(target)}") from None


def _ways_on(target: str | Target) -> str:
    """What to do about a device that is known, and not here."""
    name = f'"{target}"' if isinstance(target, str) else "…"
    return (
        f"to have kernels for it: (1) run this on a machine that has it; (2) autosched.predict(op, target={name}), or "
        f"`autosched predict`, ranks schedules for it by what was measured on other devices, and measures nothing; "
        f"(3) autosched.tune(op, target={name}, measurer=…) with a measurer that reaches one (autosched.Measurer)"
    )


def run(search: Search, measurer: Measurer | None = None) -> TuneResult:
    """The second part of `tune`: search, measuring on this machine unless a measurer is given."""
    begin = time.perf_counter()
    if search.complete:
        return _result(search, "known", begin)
    op, device, origin = search.space.workload, search.space.target, search.provenance
    measured_here = measurer is None or isinstance(measurer, LocalMeasurer)
    with interruptible() as interruption, ExitStack() as opened:
        # First of all: its workers may take seconds to start, and what follows is done meanwhile.
        measurer = local_measurer(device) if measurer is None else measurer
        if isinstance(measurer, LocalMeasurer):
            opened.enter_context(measurer.reserved(device))
        search.strategy.tell(history(search.log, op, device, origin.policy, search.records), elsewhere=True)
        search.strategy.tell(standing(search.records))
        Loop(measurer, interruption, Alone(search)).run()
        if search.unfit is not None:
            raise search.unfit
        if not interruption:
            search.finish(measurer)
        result = _result(search, "interrupted" if interruption else search.ending, begin)
    best = result.best
    if measured_here and best is not None and any(best is tried for tried in (*search.trials, *search.finals)):
        first_use.remember(best)
    return result


def _result(search: Search, ending: Ending, begin: float) -> TuneResult:
    return TuneResult(
        workload=search.space.workload,
        target=search.space.target,
        best=search.best,
        backends=tuple(search.space.backends),
        trials_done=len(search.trials),
        trials_known=search.known_before,
        failures=search.failures,
        all_failures=search.all_failures,
        ladder=ladder(search.strategy.stopped, search.trials, len(search.finals)),
        work=sum(map(WorkSeconds.of, search.trials), WorkSeconds(log=search.log_s)),
        wall_s=time.perf_counter() - begin,
        disturbed=why_disturbed(r.measurement for r in search.trials),
        ending=ending,
        log=search.log.path,
    )
