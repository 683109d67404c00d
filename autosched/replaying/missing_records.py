"""Reasons that no record answers, in words: where it was looked for, what is nearest, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from autosched.backends.environment import environment
from autosched.backends.generator import generator_hash
from autosched.backends.reproduction import Reproduction
from autosched.machine.policies import policy_text
from autosched.replaying.key_difference import key_difference, version_difference
from search_spaces import Target, Workload
from tuning_logs import Subject, TuningLog, TuningRecord, user_log_path
from tuning_logs.packing import is_packed
from tuning_logs.shape_distance import shape_distance
from tuning_logs.storage.packed_log import nearest_packed


def why_none(op: Workload, target: Target, logs: Sequence[TuningLog], policy: str) -> str:
    """The reason that none of these logs has a usable record; and what it has, and how to make one."""
    searched = ", ".join(str(log.path) for log in logs)
    for log in logs:
        if stale := log.best(op, target, policy):
            what = f"the records of {op.label} on {target.label} (the best by generator {stale.provenance.generator})"
            again = f"tune again, with {tune_call(target, policy)}"
            return f"{what} cannot be used: {Reproduction().why_stale(stale)}; {again} (searched {searched})"
    return (
        f"no successful record of {op.label} on {target.label}, timed with {policy_text(policy)}; expected one in "
        f"{searched}{_others(op, logs)}{_absent(logs)}; make one with {tune_call(target, policy)}"
        f"{' or `autosched tune`' if op.arguments else ', or for all of a model with autosched.tune_model(…)'}"
    )


def nearest_text(op: Subject, target: Target, paths: Sequence[Path], policy: str) -> str:
    """The difference of the key to that of the nearest record in these logs: a clause, for an error."""

    def rank(record: TuningRecord) -> tuple[int, float]:
        return len(key_difference(record, op, target, policy)), shape_distance(record.subject, op)

    record: TuningRecord | None = min(_candidates(op, target, paths), key=rank, default=None)
    if record is None:
        first = next((r for path in paths if not is_packed(path) for r in TuningLog(path)), None)
        return "; no record is of such an operator" + (f", the first is of {first.subject.label}" if first else "")
    what = f"the nearest record ({record.subject.label})"
    if differing := key_difference(record, op, target, policy):
        return f"; {what} differs in {'; '.join(differing)}"
    changed = version_difference(record, generator_hash(), dict(environment(target)))
    return f"; {what} is stale, and differs in {'; '.join(changed) or 'the kernel alone'}"


def stale_text(record: TuningRecord, reason: str | None) -> str:
    """The warning of a stale record."""
    what, call = (
        f"{record.workload.label} on {record.target.label}",
        tune_call(record.target, record.provenance.policy),
    )
    return f"{what}: the record is stale: {reason}; this one is checked, and not timed. {call} measures it again"


def tune_call(target: Target, policy: str) -> str:
    """The call of `tune` that makes a record."""
    several = target.kind == "cpu" and target.threads > 1
    on = f"autosched.cpu_target({target.threads})" if several else f'"{target.name}"'
    timed = "" if policy == "cold" else f', policy="{policy}"'
    return f"autosched.tune(…, {on}, trials=100{timed})"


def _candidates(op: Subject, target: Target, paths: Iterable[Path]) -> list[TuningRecord]:
    """Successful records of the same key for any device and policy, and of the nearest shapes."""
    own, packed = [p for p in paths if not is_packed(p)], [p for p in paths if is_packed(p)]
    return [*(r for path in own for r in _of_log(TuningLog(path), op, target)), *nearest_packed(packed, op, target, 1)]


def _of_log(log: TuningLog, op: Subject, target: Target) -> list[TuningRecord]:
    same = {(r.target.key, r.provenance.policy): r for r in log.records(op) if r.measurement.ok}
    return [*same.values(), *log.nearest(op, target, 1)]


def _others(op: Workload, logs: Iterable[TuningLog]) -> str:
    """Clause on the workload's records for other targets and policies in the logs."""
    found = (r for log in logs for r in log.records(op) if r.measurement.ok)
    others = dict.fromkeys(f"{r.target.label} with {policy_text(r.provenance.policy)}" for r in found)
    return f", got one on {'; '.join(others)}" if others else ""


def _absent(logs: Iterable[TuningLog]) -> str:
    """Clause on logs that do not exist, as with a misspelt name; the user's own may not have been made."""
    absent = [str(log.path) for log in logs if log.path != user_log_path() and not log.path.exists()]
    return f"; there is no file {', '.join(absent)}" if absent else ""
