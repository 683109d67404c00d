"""Training records of a prediction: those of other devices and shapes, and their similarity to the task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cost_models.corrected_estimate import Group, HeldOut
from search_spaces import SearchSpace, Target, Workload
from tuning_logs import TuningLog, TuningRecord
from tuning_logs.export import worth_shipping
from tuning_logs.log import INDEX_FROM_BYTES
from tuning_logs.packing import is_packed, may_hold
from tuning_logs.ranking import standing
from tuning_logs.selection import are_alike
from tuning_logs.shape_distance import shape_distance

# Groups (workloads on devices), nearest shapes first, and the fastest schedules of each (with a quarter as many slower
# ones): some thousand records, which are lowered in two seconds. 200 of each ranked five measured shapes no better, 60
# worse.
_MOST_GROUPS = 48
_MOST_OF_GROUP = 100
# Records to look up in a log too large to be read whole.
_MOST_LOOKED_UP = 4096

# Novelty of a task to its training records: its shape alone, its device, or such reductions altogether.
Novelty = Literal["shape", "device", "operator"]
_WITHOUT: dict[Novelty, str] = {
    "shape": "without its own records",
    "device": "without any record of its device",
    "operator": "without any record of its operator",
}
# Number of groups, nearest shapes first, that are held out, one after the other: a third of a second for each.
MOST_HELD_OUT = 16
# The schedules of a held-out group that count, and the part of them at either end that an interval leaves out.
_FIRST = 10
_LEFT_OUT = 0.1


@dataclass(frozen=True)
class Lessons:
    """Successful training records, of workloads nearest in shape first, and the novelty of the task to them."""

    records: tuple[TuningRecord, ...]
    novelty: Novelty

    @property
    def groups(self) -> tuple[Group, ...]:
        """Their workloads and devices."""
        return tuple(dict.fromkeys((r.workload, r.target) for r in self.records))

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(r.target.label for r in self.records))

    @property
    def backends(self) -> Mapping[str, int]:
        """Number of records by backend."""
        return Counter(r.backend for r in self.records)

    def has_code(self, backend: str, target: Target) -> bool:
        """True if any of their kernels is code like that of a backend for a target."""
        return any((r.backend, r.target.capability) == (backend, target.capability) for r in self.records)

    def resemble(self, group: Group, other: Group) -> bool:
        """True if a fair held-out prediction of `group` must not learn from `other`."""
        (workload, target), (other_workload, other_target) = group, other
        match self.novelty:
            case "shape":
                return (workload.key, target.key) == (other_workload.key, other_target.key)
            case "device":
                return target.key == other_target.key
            case "operator":
                return are_alike(workload, other_workload)


def lessons(logs: Iterable[Path], op: Workload, target: Target, policy: str) -> Lessons:
    """Training records in these logs for a workload on a target: from devices of its kind, and similar shapes if any.

    Raises:
        LogError: a log cannot be read.
    """
    groups: dict[tuple[str, str], list[TuningRecord]] = {}
    for record in _timed_alike(logs, op, target, policy):
        groups.setdefault(record.key, []).append(record)
    alike = {k: g for k, g in groups.items() if are_alike(g[0].workload, op)}
    # A group alone could not be held out.
    taken = alike if len(alike) > 1 else groups
    nearest = sorted(taken.values(), key=lambda g: shape_distance(g[0].workload, op))[:_MOST_GROUPS]
    records = tuple(r for group in nearest for r in worth_shipping(standing(group), _MOST_OF_GROUP))
    return Lessons(records, _novelty(records, target, known_operator=len(alike) > 1))


def _novelty(records: Iterable[TuningRecord], target: Target, known_operator: bool) -> Novelty:
    devices = {r.target.key for r in records}
    if not known_operator:
        return "operator"
    # With one device alone nothing would be left to learn from.
    return "shape" if target.key in devices or len(devices) < 2 else "device"


def _timed_alike(logs: Iterable[Path], op: Workload, target: Target, policy: str) -> Iterator[TuningRecord]:
    for log in (TuningLog(path) for path in logs if may_hold(path, None, policy)):
        for record in _held(log, op, target, policy):
            timed_alike = record.provenance.policy == policy and record.measurement.ok
            computed = isinstance(record.subject, Workload)
            if computed and timed_alike and record.target.kind == target.kind:
                yield record


def _held(log: TuningLog, op: Workload, target: Target, policy: str) -> Iterable[TuningRecord]:
    """The records of a log; of a large one, which is indexed, those of the nearest shapes."""
    large = not is_packed(log.path) and log.path.is_file() and log.path.stat().st_size >= INDEX_FROM_BYTES
    return log.nearest(op, target, _MOST_LOOKED_UP, policy) if large else log


@dataclass(frozen=True)
class Errors:
    """Errors of held-out predictions: kernels took between `low` and `high` times as long.

    The first ten choices of every group count, since only such schedules are proposed, without the extreme one at
    either end. The errors of a group have much in common: the extremes over groups show what a further group may add;
    the middle nine tenths of all errors do not: 37 of 50 first choices of five shapes measured afterwards on an H200
    were within these. docs/predict.md has the figures.
    """

    low: float
    high: float
    groups: int

    @staticmethod
    def of(held_out: Sequence[HeldOut]) -> Errors:
        if not held_out:
            return Errors(0.0, math.inf, 0)
        inner = (_LEFT_OUT, 1 - _LEFT_OUT)
        ends = [np.quantile(h.errors(_FIRST), inner, method="nearest") for h in held_out]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        return Errors(float(np.exp2(low)), float(np.exp2(high)), len(held_out))


def basis_text(taught: Lessons, errors: Errors, space: SearchSpace) -> str:
    """Text on the training records of predictions for a space, the meaning of their intervals, and its limits."""
    if not taught.records:
        return f"learnt from nothing: the logs hold no record of a {space.target.kind}; the analytic estimate alone"
    made = " and ".join(f"{count} by {name}" for name, count in taught.backends.items())
    learnt = (
        f"learnt from {len(taught.records)} records of {len(taught.groups)} (device, shape) groups, "
        f"all measured on {' and '.join(taught.devices)}; their kernels: {made}"
    )
    if not errors.groups:
        return f"{learnt}; no interval: nothing can be held out"
    found = f"took {errors.low:.2f} to {errors.high:.2f} times what was predicted"
    how = f"of {errors.groups} groups, each predicted {_WITHOUT[taught.novelty]}, 8 of the 10 first choices {found}"
    lacking = "".join(f"; {what} is not in them" for what in _untaught(taught, space))
    return f"{learnt}\nintervals: {how}{lacking}"


def _untaught(taught: Lessons, space: SearchSpace) -> Iterator[str]:
    """Differences between the task and all records that could not be held out."""
    if taught.novelty != "device" and space.target.label not in taught.devices:
        yield "no other device could be held out: what one adds"
    for name in space.backends:
        if name not in taught.backends:
            yield f"no kernel by {name} was measured: what that adds"
        elif taught.novelty != "device" and not taught.has_code(name, space.target):
            code = f"code by {name} for compute capability {space.target.capability / 10}"
            yield f"no {code} was measured: what that adds"
