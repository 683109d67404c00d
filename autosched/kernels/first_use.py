"""Check before first use: kernels compute on a user's tensors only after a check at their size, on such a device.

The check runs it on random inputs, on a poisoned output, between guard bands, and compares it with the reference, as
every trial does first. Loading a kernel calls it; calls of the kernel do not:

    known   this machine has checked the same code, with the same versions of everything: in a trial of this process,
            or in any process before it (`checked_kernels`)
    here    a trial elsewhere, or with other versions, has found the same code right: checked in this process
    apart   it never ran: another version's code, or a size that was not tuned. It gets a trial in a process of its
            own, as it might crash, or write anywhere

A check costs as much as the setup of a trial: drawing inputs, the reference in float64 with its error analysis, and two
runs of the kernel. One core of a CPU needs 0.04 s for a product of 512³ and 0.6 s for a softmax of 4096 × 1024; it
takes some 100 bytes of memory for every element of the largest tensor meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch

from autosched.backends.backend import Artefact, CompileError, Launcher
from autosched.backends.reproduction import fingerprint_of
from autosched.checking.trial_data import Failed
from autosched.kernels.checked_kernels import checked_kernels, key_of
from autosched.machine import memory
from autosched.machine.policies import Policy
from autosched.measuring import LocalMeasurer, TrialLimits
from autosched.measuring.local.kernel_check import check_once
from autosched.measuring.worker_setups import DEFAULT_BACKEND
from search_spaces import AutoschedError, OutOfMemoryError, Schedule, SearchSpace, Target, Workload
from tuning_logs import Measurement, Provenance, TuningRecord

_SEED = 0
# Number of reasons in a message.
_MOST_REASONS = 3


def remember(record: TuningRecord) -> None:
    """Note that a trial of this process has found a record's kernel right, so that loading it needs no check."""
    if record.measurement.source is not None:
        _remember(record, record.measurement.source, record.measurement)


def ensure_right(record: TuningRecord, schedule: Schedule, artefact: Artefact, launcher: Launcher) -> None:
    """Check a loaded kernel, unless it is known to be right.

    Raises:
        AutoschedError: it is not right; the message describes the error.
        OutOfMemoryError: there is no memory for the check.
    """
    made = artefact.facts.source
    assert made is not None
    if checked_kernels().latency_s(_key(record, made)) is not None:
        return
    if record.measurement.ok and record.measurement.source == made:
        _check_here(record, launcher)
        found = record.measurement
    else:
        with _measurer(record.target) as measurer:
            found = _put_to_trial(measurer, record.workload, schedule, record.provenance.policy)
        if not found.ok:
            raise AutoschedError(_why_refused(record, f"{found.status}: {found.detail}"))
    _remember(record, made, found)


def first_right(space: SearchSpace, schedules: Sequence[Schedule], origin: Provenance) -> TuningRecord:
    """A record of the first of these schedules whose kernel is right: known to be, else by a trial in another process.

    `origin` is the record's provenance; its policy is that of the trial.

    Raises:
        AutoschedError: none is; the message describes the errors.
    """
    op, target = space.workload, space.target
    for schedule in schedules:
        source = _printed(schedule, target)
        latency_s = None if source is None else checked_kernels().latency_s(key_of(op, target, source))
        if latency_s is not None:
            return TuningRecord(op, target, schedule, Measurement("ok", (latency_s,)), origin)
    reasons = []
    with _measurer(target) as measurer:
        for schedule in schedules:
            found = _put_to_trial(measurer, op, schedule, origin.policy)
            if found.ok:
                record = TuningRecord(op, target, schedule, found, origin)
                remember(record)
                return record
            reasons.append(f"{schedule.one_line}: {found.status}: {found.detail}")
    more = len(reasons) - _MOST_REASONS
    raise AutoschedError(
        f"{space.workload.label} on {space.target.label}: none of {len(reasons)} schedules passed its check: "
        + "; ".join([*reasons[:_MOST_REASONS], *([f"and {more} more"] if more > 0 else [])])
        + "; tune this workload: autosched.tune finds one that does"
    )


def _check_here(record: TuningRecord, launcher: Launcher) -> None:
    device = torch.device("cuda" if record.target.kind == "gpu" else "cpu")
    try:
        with torch.no_grad():
            check_once(record.workload, device, launcher, _SEED)
    except Failed as failure:
        raise AutoschedError(_why_refused(record, f"{failure.status}: {failure}")) from failure
    except RuntimeError as error:
        if memory.ran_out(error):
            raise OutOfMemoryError(
                f"out of memory: the check of {record.workload.label} before its first use"
            ) from error
        raise


def _measurer(target: Target) -> LocalMeasurer:
    """The measurer for single trials, in processes of its own."""
    return LocalMeasurer(target, limits=TrialLimits(compile_workers=1), backend=DEFAULT_BACKEND)


def _put_to_trial(measurer: LocalMeasurer, op: Workload, schedule: Schedule, policy: str) -> Measurement:
    (found,) = measurer.measure(op, [schedule], policy=cast(Policy, policy))
    return found


def _printed(schedule: Schedule, target: Target) -> str | None:
    """The fingerprint of the source that this version prints for a schedule; None where it cannot."""
    try:
        return fingerprint_of(schedule, target)
    except CompileError:
        return None


def _key(record: TuningRecord, source: str) -> str:
    return key_of(record.workload, record.target, source)


def _remember(record: TuningRecord, source: str, found: Measurement) -> None:
    label = f"{record.workload.label} on {record.target.label}: {record.schedule.one_line}"
    checked_kernels().add(_key(record, source), found.latency_s, label)


def _why_refused(record: TuningRecord, found: str) -> str:
    return (
        f"{record.workload.label} on {record.target.label}: the kernel does not pass the check before its first use "
        f"on this machine: {found}; expected the results of the reference, and nothing else written. It has not been "
        f"called on any other tensor. Tune again into another log: autosched.tune(…, log='new.jsonl'). Its schedule "
        f"is {record.schedule.one_line}"
    )
