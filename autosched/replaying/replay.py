"""`replay`: from the logs to a kernel, without searching."""

from __future__ import annotations

import functools
import itertools
import os
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import overload

from autosched.backends.reproduction import Reproduction
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import random_inputs
from autosched.kernels.dispatch import as_tuple
from autosched.kernels.drift_measurement import DRIFT_S, drift_of
from autosched.kernels.dynamic_operator import DynamicOperator
from autosched.kernels.kernel import Kernel, load_kernel
from autosched.kernels.strict import is_strict
from autosched.kernels.tier import Tier
from autosched.machine import devices
from autosched.machine.policies import Policy
from autosched.replaying.arguments import check_policy, check_workload, log_path
from autosched.replaying.measured_sizes import with_measured_sizes
from autosched.replaying.missing_records import nearest_text, stale_text, why_none
from autosched.replaying.predicted_kernel import predicted_kernel
from autosched.tracing import LoadedFunction, Traced, TracedFunction, TracedKernel
from autosched.tracing.callables.traced import cuts_of, loaded
from search_spaces import (
    AutoschedError,
    EmptySearchSpaceError,
    InputError,
    Schedule,
    Target,
    TargetUnavailableError,
    Workload,
)
from tuning_logs import TuningLog, TuningRecord, shipped_logs
from tuning_logs.packing import may_hold
from tuning_logs.ranking import IsGood, tied_with

# Schedules of a log that are lowered and printed, some milliseconds each, before it is given up: four times as many as
# take part in finals. A kernel slower than so many others is not worth a replay.
MOST_PRINTED = 64


class StaleRecordWarning(UserWarning):
    """A kernel was made of a stale record: when measured, its schedule printed another kernel."""


@overload
def replay(
    op: Workload,
    target: str | Target | None = None,
    *,
    log: str | os.PathLike[str] | None = ...,
    policy: Policy = ...,
    predicted: bool = ...,
    strict: bool = ...,
    drift: bool = ...,
) -> Kernel: ...


@overload
def replay(
    op: TracedFunction,
    target: str | Target | None = None,
    *,
    log: str | os.PathLike[str] | None = ...,
    policy: Policy = ...,
    predicted: bool = ...,
    strict: bool = ...,
    drift: bool = ...,
) -> TracedKernel: ...


@overload
def replay(
    op: Traced,
    target: str | Target | None = None,
    *,
    log: str | os.PathLike[str] | None = ...,
    policy: Policy = ...,
    predicted: bool = ...,
    strict: bool = ...,
    drift: bool = ...,
) -> LoadedFunction: ...


def replay(
    op: Workload | Traced,
    target: str | Target | None = None,
    *,
    log: str | os.PathLike[str] | None = None,
    policy: Policy = "cold",
    predicted: bool = False,
    strict: bool = False,
    drift: bool = False,
) -> Kernel | LoadedFunction:
    """The kernel of the best record of `op` on `target`, built anew; for a traced function, all of its kernels.

    Looks in `log` when it is given, otherwise in the user's log and then in those that come with autosched. A record is
    exact while this version prints for its schedule the source that was measured, whichever version that was. If no log
    has an exact one, a stale one whose schedule is still legal is taken, with a `StaleRecordWarning`: its kernel is
    checked like any other, and may be faster or slower than the record says.

    `predicted` builds, instead of a record, the first right kernel of the schedules that `predict` has ranked for the
    target and stored next to the log. It gets one trial here, which its record reports.

    The kernel's `tier` says which of these it is. `strict`, or `AUTOSCHED_STRICT=1` in the environment, refuses all but
    exact records, and functions of which something is left to PyTorch.

    A kernel that this machine has not checked with these versions of everything is checked now, as in a trial: on
    random inputs, between guard bands, against the reference (`autosched.kernels.first_use` gives the cost); and so are
    all kernels of a traced function together, against the function (`tracing.callables.whole_check`).

    `drift` compares a kernel with the certificate of its finals: source, toolchain, device, and its speed against the
    library and the device's calibration kernel, in rounds of 50 ms at most, for all kernels of a function together. The
    result is the kernel's `drift`.

    Raises:
        InputError: an argument is not allowed, or no log has a usable record; the message says what to do, and with
            `strict` by what the nearest record differs.
        AutoschedError: a kernel cannot be built here, or is not right; none is returned.
        OutOfMemoryError: there is no memory for the check.
        TargetUnavailableError: this machine cannot run kernels for the target.
        LogError: a log cannot be read.
    """
    strict = is_strict(strict)
    if predicted:
        refuse_prediction(strict)
    if isinstance(op, Traced):
        device = _device(target)
        cut = op.for_target(device)
        if isinstance(cut, DynamicOperator):
            best = functools.cache(functools.partial(_best_schedules, cut, device, log_paths(log), policy))
            cut, _ = with_measured_sizes(cut, device, best)
        kernel_of = functools.partial(replay, target=target, log=log, policy=policy, predicted=predicted, strict=strict)
        kernels = kernels_of_cuts(cut, kernel_of)
        function = loaded(cut, kernels, strict)
        if strict and function.tier is not Tier.EXACT:
            raise InputError(
                f"strict: {op.label}: something is left to PyTorch: {op!r}; trace it without allow_fallback"
            )
        function.ensure_right()
        if drift:
            note_drift(kernels.values())
        return function
    check_workload(op)
    check_policy(policy)
    paths = log_paths(log)
    device = _device(target)
    if predicted:
        return predicted_kernel(op, device, paths[0], policy)
    kernel = load_kernel(find_best(op, device, paths, policy, strict), op)
    if drift:
        note_drift([kernel])
    return kernel


def note_drift(kernels: Collection[Kernel]) -> None:
    """Set the `drift` of kernels, each timed for an equal part of 50 ms."""
    for kernel in kernels:
        kernel.drift = drift_of(kernel, DRIFT_S / len(kernels))


def _device(target: str | Target | None) -> Target:
    try:
        return devices.resolve(target)
    except TargetUnavailableError as error:
        if target is None:
            raise
        ways = "for that machine, autosched.export writes a kernel to a file; `autosched replay … --source` prints one"
        raise TargetUnavailableError(f"{error}; {ways}") from None


def refuse_prediction(strict: bool = False) -> None:
    """Raise InputError where `strict`, or the environment, refuses a prediction."""
    if is_strict(strict):
        raise InputError("strict refuses predictions, which were never measured; expected predicted=True without it")


def kernels_of_cuts(op: Traced, kernel_of: Callable[[Workload], Kernel]) -> dict[str, Kernel]:
    """The kernels of everything traced, by their keys: of all of its cuts, as far as there are any.

    Raises:
        InputError, EmptySearchSpaceError: no cut has all; the reason of the first.
    """
    known: dict[str, Kernel] = {}
    missing: list[AutoschedError] = []
    for cut in cuts_of(op):
        try:
            for w in cut.workloads:
                known[w.key] = known.get(w.key) or kernel_of(w)
        except (InputError, EmptySearchSpaceError) as error:
            missing.append(error)
    if len(missing) == len(cuts_of(op)):
        raise missing[0]
    return known


def why_wrong_now(kernel: Kernel, seed: int) -> str | None:
    """Run the kernel on fresh random inputs; describe the error against the float64 reference, or None."""
    inputs = random_inputs(kernel.workload, seed, kernel.device)
    made = as_tuple(kernel(*inputs))
    reasons = map(why_wrong, made, expect(kernel.workload, inputs))
    named = zip(kernel.workload.output_names, reasons, strict=True)
    return next((r if len(made) == 1 else f"output {name}: {r}" for name, r in named if r), None)


def log_paths(log: str | os.PathLike[str] | None) -> tuple[Path, ...]:
    """Logs to search for records, first to last.

    Raises:
        InputError, LogError: as `log_path`.
    """
    return (log_path(log), *(shipped_logs() if log is None else ()))


def find_best(
    op: Workload, target: Target, paths: Sequence[Path], policy: str = "cold", strict: bool = False
) -> TuningRecord:
    """The best exact record of the first log that has one; else, with a warning, the best legal stale one.

    Raises:
        InputError: there is neither; or no exact one, with `strict` or `AUTOSCHED_STRICT=1`: then the message has the
            difference of the key to that of the nearest record.
    """
    strict = is_strict(strict)
    logs, made = _logs_of(op, paths, policy), Reproduction(MOST_PRINTED)
    if best := _best(op, target, logs, policy, made.is_exact):
        return best
    if strict:
        raise InputError(why_none(op, target, logs, policy) + nearest_text(op, target, paths, policy))
    if best := _best(op, target, logs, policy, made.is_legal):
        warnings.warn(stale_text(best, made.why_stale(best)), StaleRecordWarning, stacklevel=4)
        return best
    raise InputError(why_none(op, target, logs, policy))


def _logs_of(op: Workload, paths: Sequence[Path], policy: str) -> list[TuningLog]:
    return [TuningLog(p) for p in paths if may_hold(p, op, policy) or may_hold(p, op.varying, policy)]


def _best(op: Workload, target: Target, logs: Sequence[TuningLog], policy: str, is_good: IsGood) -> TuningRecord | None:
    """The best good record of the first log that has one."""
    # Its kernels, and those that know of no constants, which read them as they are given.
    known = tuple(dict.fromkeys((op, op.varying)))
    found = (log.best(each, target, policy, is_good) for log, each in itertools.product(logs, known))
    return next(filter(None, found), None)


def _best_schedules(
    operator: DynamicOperator, target: Target, paths: Sequence[Path], policy: str, size: int
) -> Sequence[Schedule]:
    """The schedules of the best exact record of that size, and of those that tie with it; none without one."""
    op, is_exact = operator.at(size), Reproduction(MOST_PRINTED).is_exact
    logs = _logs_of(op, paths, policy)
    best = _best(op, target, logs, policy, is_exact)
    if best is None:
        return ()
    return tied_with(best, itertools.chain.from_iterable(log.records(best.workload, target, policy) for log in logs))
