"""`replay`: from the logs to a kernel, without searching."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from autosched import backends, devices
from autosched.arguments import check_policy, check_workload, log_path
from autosched.correctness import expect, why_wrong
from autosched.generator import generator_hash
from autosched.kernel import Kernel, load_kernel
from autosched.reference import random_inputs
from autosched.timing import Policy, policy_text
from search_spaces import InputError, Target, Workload
from tuning_logs import TuningLog, TuningRecord, shipped_logs


def replay(
    op: Workload,
    target: str | Target | None = None,
    *,
    log: str | os.PathLike[str] | None = None,
    policy: Policy = "cold",
    allow_stale: bool = False,
) -> Kernel:
    """The kernel of the best record of `op` on `target`, built anew.

    Looks in `log` when it is given, otherwise in the user's log and then in those that come with autosched. A record
    made by another version of the code generator describes a kernel that this version does not make: `allow_stale`
    takes its schedule anyway, and what comes of it may be faster or slower than the record says.

    Raises:
        InputError: an argument is not allowed, or no log holds a usable record; the message says what to do.
        TargetUnavailableError: this machine cannot run kernels for the target.
        LogError: a log cannot be read.
    """
    check_workload(op)
    check_policy(policy)
    paths = log_paths(log)
    device = devices.resolve(target)
    return load_kernel(find_best(op, device, paths, policy, allow_stale))


def why_wrong_now(kernel: Kernel, seed: int) -> str | None:
    """Run the kernel on fresh random inputs; what is wrong with the result against the float64 reference, or None."""
    inputs = random_inputs(kernel.workload, seed, kernel.device)
    return why_wrong(kernel(*inputs), expect(kernel.workload, inputs))


def log_paths(log: str | os.PathLike[str] | None) -> tuple[Path, ...]:
    """Where records are looked for, first to last.

    Raises:
        InputError, LogError: as `log_path`.
    """
    return (log_path(log), *(shipped_logs() if log is None else ()))


def find_best(
    op: Workload, target: Target, paths: Iterable[Path], policy: Policy = "cold", allow_stale: bool = False
) -> TuningRecord:
    """The best record of the first log that has one.

    Raises:
        InputError: none has.
    """
    paths = tuple(paths)
    generator = generator_hash(backends.for_target(target))
    logs = [TuningLog(path) for path in paths]
    for log in logs:
        best = log.best(op, target, generator, policy)
        if best is not None:
            return best
    stale = [best for log in logs if (best := _best_stale(log, op, target, policy)) is not None]
    if stale and allow_stale:
        return stale[0]
    raise InputError(_why_none(op, target, paths, policy, stale))


def _best_stale(log: TuningLog, op: Workload, target: Target, policy: Policy) -> TuningRecord | None:
    """The best record of the generator that wrote last."""
    records = log.records(op, target, policy=policy)
    return log.best(op, target, records[-1].provenance.generator, policy) if records else None


def _why_none(op: Workload, target: Target, paths: tuple[Path, ...], policy: Policy, stale: list[TuningRecord]) -> str:
    searched = ", ".join(map(str, paths))
    if stale:
        return (
            f"the records of {op.label} on {target.device} are stale: generator {stale[0].provenance.generator} made "
            f"them, which is not the one here; tune again, or replay with allow_stale=True (--allow-stale) to "
            f"build the same schedule anyway (searched {searched})"
        )
    return (
        f"no successful record of {op.label} on {target.device} with {policy_text(policy)}; expected one in "
        f"{searched}; make one with autosched.tune(op, trials=100) or `autosched tune`"
    )
