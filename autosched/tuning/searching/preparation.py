"""Preparation of a search: checks everything that can be refused, and reads the log."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np

import cost_models
from autosched import backends, strategies
from autosched.backends import spaces
from autosched.backends.generator import generator_hash
from autosched.backends.reproduction import Reproduction
from autosched.machine import devices
from autosched.machine.policies import Policy, check_timing
from autosched.replaying.arguments import check_integer, check_workload, written_log_path
from autosched.strategies import StrategyFactory
from autosched.tuning.progress import OnProgress
from autosched.tuning.remaining_gain import StopRule
from autosched.tuning.searching.search import Search
from autosched.tuning.searching.sources import USUAL, Sources
from cost_models import CostModel
from search_spaces import EmptySearchSpaceError, InputError, Target, TargetUnavailableError, Workload
from tuning_logs import Provenance, TuningLog
from tuning_logs.ranking import standing

# Number of schedules measured in the end, or as many as are worth it.
Trials = int | Literal["auto"]


def check_trials(trials: object) -> None:
    """Raise InputError unless `trials` is a number of trials, or "auto"."""
    if isinstance(trials, str) and trials != "auto":
        raise InputError(f'trials={trials!r}; expected a number, or "auto" to stop where little more is to be gained')
    if trials != "auto":
        check_integer("trials", trials, 1)


def prepare(
    op: Workload,
    target: str | Target | None,
    trials: Trials,
    *,
    strategy: str | StrategyFactory = "evolutionary",
    cost_model: str | CostModel = "xgboost",
    seed: int = 0,
    log: str | os.PathLike[str] | None = None,
    policy: Policy = "cold",
    backend: str | None = None,
    measured_elsewhere: bool = False,
    on_progress: OnProgress | None = None,
    sources: Sources = USUAL,
) -> Search:
    """The first part of `tune`: checks everything that can be refused, and measures nothing.

    Takes milliseconds, and one to four for every schedule of the workload in the log: a measurement counts while its
    schedule prints the same kernel (`autosched.backends.reproduction`).

    With `measured_elsewhere` the target need not be on this machine.

    Raises:
        As `tune`.
    """
    check_workload(op)
    check_trials(trials)
    check_integer("seed", seed, 0)
    if backend is not None:
        # Before the device: a name that is wrong everywhere is an error on a machine without one, too.
        backends.named(backend)
    tuning_log = TuningLog(written_log_path(log))
    device = device_for(target, measured_elsewhere, backend, op)
    check_timing(policy, device)
    space = spaces.build(op, device, backends.usable(device, backend))
    # Raises if no schedule is legal, whatever the strategy would do about that.
    space.sample(np.random.default_rng(seed))
    model = cost_models.create(cost_model, seed)
    found = (r for r in tuning_log.records(op, device, policy=policy) if space.holds(r.schedule))
    records = list(filter(Reproduction().is_exact, found))
    # Another seed for every number of known trials: a resumed search does not draw the same candidates again.
    rng = np.random.default_rng([seed, len(standing(records))])
    searcher = strategies.create(strategy, space, model, rng)
    provenance = Provenance(generator_hash(), policy, 0.0, seed, 0)
    stop = StopRule() if trials == "auto" else None
    wanted = stop.most if stop else int(trials)
    search = Search(space, searcher, tuning_log, provenance, wanted, records, on_progress, stop, sources)
    if not search.complete:
        tuning_log.check_writable()
    return search


def device_for(
    target: str | Target | None, measured_elsewhere: bool, backend: str | None = None, op: Workload | None = None
) -> Target:
    """The target of that name, or the default one; with `measured_elsewhere` it need not be here.

    Raises:
        InputError: there is no such target, or it is not here and the backend makes no kernels for it anywhere.
        EmptySearchSpaceError: it is not here, and has no kernels of the workload anywhere.
        TargetUnavailableError: it is not here, and the message names the ways on.
    """
    if measured_elsewhere:
        return devices.described(target)
    try:
        return devices.resolve(target)
    except TargetUnavailableError as error:
        if target is None or str(target).lower() == "cuda":
            raise
        # Errors that no other machine would mend come first.
        absent = devices.described(target)
        if backend and (reason := backends.why_not_serving(absent, backend)):
            raise InputError(reason) from None
        if op and (reason := spaces.why_no_schedule(op, absent)):
            raise EmptySearchSpaceError(reason) from None
        raise TargetUnavailableError(f"{error}; {_ways_on(target)}") from None


def _ways_on(target: str | Target) -> str:
    """Advice for a device that is known, and not here."""
    name = f'"{target}"' if isinstance(target, str) else "…"
    return (
        f"to have kernels for it: (1) run this on a machine that has it; (2) autosched.predict(op, target={name}), or "
        f"`autosched predict`, ranks schedules for it by measurements of other devices, and measures nothing; "
        f"(3) autosched.tune(op, target={name}, measurer=…) with a measurer that reaches one (autosched.Measurer)"
    )
