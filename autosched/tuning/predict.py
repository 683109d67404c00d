"""`predict`: the fastest schedules for a device that is not here. Nothing is measured."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from autosched import backends, strategies
from autosched.backends import Backend, spaces
from autosched.machine import devices
from autosched.machine.policies import Policy
from autosched.measuring.compiling import compile_all
from autosched.replaying.arguments import check_integer, check_policy, check_workload, log_path, written_log_path
from autosched.replaying.prediction_file import PredictionFile
from autosched.replaying.predictions import Prediction, Predictions
from autosched.strategies.strategy import Family, family_of
from autosched.tracing import Traced
from autosched.tuning.every_cut import of_all_workloads
from autosched.tuning.learning import MOST_HELD_OUT, Errors, Lessons, basis_text, lessons
from cost_models.corrected_estimate import CorrectedEstimate
from search_spaces import InputError, Schedule, SearchSpace, Target, Workload
from tuning_logs import CompileFacts, Measurement, TuningLog, TuningRecord, shipped_logs
from tuning_logs.text import duration_text

# Batches asked of the strategy without results: each evolves a population of its own. With twice as many the first ten
# of four operators were predicted to be 1 % faster at most.
_BATCHES = 4
_BATCH = 64
# So many schedules of a family (equal tiles) are compiled before all others: a defect of one, such as a lack of
# registers, is mostly one of all.
_PER_FAMILY = 3
# Most schedules compiled if too few compile well; at least twice the wanted number.
_MOST_COMPILED = 40
# Among records of an H200, those that spilled as much for every thread took 1.2 to 1.3 times the prediction.
_SPILLS_BADLY_BYTES = 128

# A schedule, and its predicted latency.
_Predicted = tuple[Schedule, float]


@dataclass(frozen=True, repr=False)
class TracedPredictions:
    """The predictions for every workload of all cuts of `traced`, each once."""

    traced: Traced
    results: tuple[Predictions, ...]

    @property
    def fastest(self) -> Traced:
        """The cut with the least predicted latency."""
        return self.traced.fastest(self._seconds)

    @property
    def _seconds(self) -> dict[str, float]:
        return {found.workload.key: found.best.predicted_s for found in self.results}

    def __repr__(self) -> str:
        return f"<TracedPredictions {self.traced.label}: {len(self.results)} kernels predicted, never measured>"

    def __str__(self) -> str:
        if not self.results:
            return f"{self.traced.label}: nothing to predict, PyTorch computes all of it"
        if len(self.traced.cuts) == 1:
            return "\n\n".join([self.traced.label, *map(str, self.results)])
        cuts = [f"  {line}" for cut in self.traced.cuts for line in self._lines_of(cut)]
        return "\n\n".join(["\n".join([self.traced.label, *cuts]), *map(str, self.results)])

    def _lines_of(self, cut: Traced) -> Iterator[str]:
        """One cut of the function: its predicted latency, and its kernels."""
        if any(w.key not in self._seconds for w in cut.workloads):
            return
        taken = f"{duration_text(cut.latency_s(self._seconds))} predicted, never measured"
        chosen = ", the fastest cut" if cut.workloads == self.fastest.workloads else ""
        count = len(cut.launched)
        yield f"{count} kernel{'s' * (count != 1)}: {taken}{chosen}"
        yield from (f"  {w.label}" for w in cut.workloads)


@overload
def predict(
    op: Workload,
    target: str | Target | None = None,
    *,
    count: int = ...,
    history: Sequence[str | os.PathLike[str]] = ...,
    log: str | os.PathLike[str] | None = ...,
    policy: Policy = ...,
    seed: int = ...,
    backend: str | None = ...,
) -> Predictions: ...


@overload
def predict(
    op: Traced,
    target: str | Target | None = None,
    *,
    count: int = ...,
    history: Sequence[str | os.PathLike[str]] = ...,
    log: str | os.PathLike[str] | None = ...,
    policy: Policy = ...,
    seed: int = ...,
    backend: str | None = ...,
) -> TracedPredictions: ...


def predict(
    op: Workload | Traced,
    target: str | Target | None = None,
    *,
    count: int = 10,
    history: Sequence[str | os.PathLike[str]] = (),
    log: str | os.PathLike[str] | None = None,
    policy: Policy = "cold",
    seed: int = 0,
    backend: str | None = None,
) -> Predictions | TracedPredictions:
    """The `count` schedules of `op` that should be fastest on `target`, which need not be here; nothing is measured.

    A cost model learns from the records of other devices of its kind and of other shapes: in the user's log or `log`,
    in the logs of `history`, and in those that come with autosched. It ranks the candidates of an evolutionary search.
    The best are compiled for the target, so that registers, spills and shared memory are the compiler's figures;
    schedules that do not compile, or spill badly, fall behind. `policy` is the timing policy of the training records.
    `backend` names the backend of the kernels; by default those with measured kernels, or all if none of them serves
    the target. The result is stored in `<log>.predictions`, never in the log: `replay(op, target, predicted=True)` on a
    machine with the device builds the first that is right there. For a traced function, all kernels are predicted.

    Raises:
        InputError: an argument is not allowed, or the log has a measurement of every schedule.
        TargetUnavailableError: no target is named, and none is here; or compilers do not start.
        EmptySearchSpaceError: no schedule is legal.
        LogError: a log cannot be read, or the predictions not be written.
    """
    if isinstance(op, Traced):
        device = devices.described(target)
        predict_one = functools.partial(
            predict,
            target=device,
            count=count,
            history=history,
            log=log,
            policy=policy,
            seed=seed,
            backend=backend,
        )
        cut = op.for_target(device)
        return TracedPredictions(cut, of_all_workloads(cut, predict_one))
    check_workload(op)
    check_policy(policy)
    check_integer("count", count, 1)
    check_integer("seed", seed, 0)
    kept = written_log_path(log)
    device = devices.described(target)
    taught = lessons((kept, *map(log_path, history), *shipped_logs()), op, device, policy)
    space = spaces.build(op, device, makers(taught, device, backend))
    known = [r for r in TuningLog(kept).records(op, device, policy) if space.holds(r.schedule)]
    ranked, errors = _ranked(space, taught, known, count, seed)
    found = Predictions(op, device, policy, ranked, basis_text(taught, errors, space))
    PredictionFile(kept).add(found)
    return found


def makers(taught: Lessons, target: Target, backend: str | None) -> Sequence[Backend]:
    """The usable backends with measured kernels; all usable ones if there are none."""
    usable = backends.usable(target, backend)
    return [maker for maker in usable if maker.name in taught.backends] or usable


def _ranked(
    space: SearchSpace, taught: Lessons, known: Sequence[TuningRecord], count: int, seed: int
) -> tuple[tuple[Prediction, ...], Errors]:
    """The most promising schedules that are not known, compiled, and the errors of such predictions."""
    model = CorrectedEstimate(seed, spaces.build)
    schedules = proposed(space, model, taught.records, known, seed)
    if not schedules:
        op, device = space.workload.label, space.target.label
        raise InputError(f"every schedule of {op} on {device} is in the log, measured: autosched.replay has the best")
    errors = Errors.of(model.held_out(space, taught.records, taught.resemble, MOST_HELD_OUT))
    predicted = model.latencies_s(space, schedules)
    fast_first = [(schedules[n], float(predicted[n])) for n in np.argsort(predicted, kind="stable")]
    compiled = _compiled(_varied(fast_first), space, errors, count)
    return tuple(sorted(compiled, key=lambda p: (bool(p.drawback), p.predicted_s))[:count]), errors


def proposed(
    space: SearchSpace,
    model: CorrectedEstimate,
    taught: Sequence[TuningRecord],
    known: Sequence[TuningRecord],
    seed: int,
) -> list[Schedule]:
    """The strategy's proposals, after it and the model observed the training records and the known ones."""
    searcher = strategies.create("evolutionary", space, model, np.random.default_rng(seed))
    searcher.tell(taught, elsewhere=True)
    searcher.tell(known)
    return [schedule for _ in range(_BATCHES) for schedule in searcher.ask(_BATCH)]


def _varied(fast_first: Sequence[_Predicted]) -> list[_Predicted]:
    """The first few of every family, in this order, then the others."""
    families: Counter[Family] = Counter()
    first: list[_Predicted] = []
    others: list[_Predicted] = []
    for schedule, predicted_s in fast_first:
        family = family_of(schedule)
        families[family] += 1
        (first if families[family] <= _PER_FAMILY else others).append((schedule, predicted_s))
    return [*first, *others]


def _compiled(candidates: Sequence[_Predicted], space: SearchSpace, errors: Errors, count: int) -> list[Prediction]:
    """Compile from the front, until `count` are free of drawbacks, or too many are not."""
    found: list[Prediction] = []
    for begin in range(0, min(len(candidates), max(_MOST_COMPILED, 2 * count)), count):
        part = candidates[begin : begin + count]
        outcomes = compile_all(space.workload, space.target, [schedule for schedule, _ in part])
        found += [
            _prediction(*each, errors, outcome, space.target) for each, outcome in zip(part, outcomes, strict=True)
        ]
        if sum(not p.drawback for p in found) >= count:
            break
    return found


def _prediction(
    schedule: Schedule, predicted_s: float, errors: Errors, outcome: CompileFacts | Measurement, target: Target
) -> Prediction:
    within = (errors.low * predicted_s, errors.high * predicted_s) if errors.groups else None
    if isinstance(outcome, Measurement):
        return Prediction(schedule, predicted_s, within, None, f"{outcome.status}: {outcome.detail}")
    return Prediction(schedule, predicted_s, within, outcome, why_behind(outcome, target))


def why_behind(facts: CompileFacts, target: Target) -> str:
    """Drawback of a kernel by the compiler's figures; empty if there is none."""
    shared, spilled = facts.shared_memory_bytes or 0, facts.spill_bytes or 0
    if target.kind == "gpu" and shared > target.shared_memory_bytes:
        return f"needs {shared} bytes of shared memory, {target.name} has {target.shared_memory_bytes}"
    return f"spills {spilled} bytes per thread" if spilled >= _SPILLS_BADLY_BYTES else ""
