"""Latencies of schedules without any measurement: the analytic estimate, corrected by measurements of other devices.

Trees learn log2(latency / estimate) from records of other devices and shapes, over the features of the tile program on
its target and the figures of the device itself. Unlike `XGBoostModel`, whose labels compare schedules of one workload
and target with each other, it predicts latencies, also for a device or a shape without any record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.feature_rows import FeatureRows
from cost_models.features import FEATURE_NAMES, PICOSECONDS
from cost_models.roofline import bound_s
from cost_models.trees import Floats, Trees, train
from search_spaces import Schedule, SearchSpace, Target, Workload
from tuning_logs import TuningRecord

# Successful records below which trees know less than the analytic estimate, as in `XGBoostModel`.
_ENOUGH_RECORDS = 16
# Deeper than a search's trees, as they learn from thousands of records, and the mean of a few models with different
# seeds. Of 22 shapes of products, each held out, the first choice took 1.06 times the best of some 250; by one model of
# 100 trees 1.09, of 60 trees of depth 3, 1.15.
_MODELS = 4
_ROUNDS = 50
_TREES: dict[str, str | float] = {
    "objective": "reg:squarederror",
    "base_score": 0.0,
    "max_depth": 5,
    "eta": 0.25,
    "gamma": 0.001,
    "min_child_weight": 0.5,
    "subsample": 0.9,
    "colsample_bytree": 0.6,
    "max_bin": 64,
}
# Weight of schedules ten times slower than the best of their workload, or more: the fast end counts.
_LOWEST_WEIGHT = 0.1
_ESTIMATE = FEATURE_NAMES.index("latency_s")

# Records are grouped by workload and device.
Group = tuple[Workload, Target]


@dataclass(frozen=True)
class HeldOut:
    """Schedules of one workload on one device, predicted by a model trained without them and anything that resembles
    them.
    """

    workload: Workload
    target: Target
    measured_s: NDArray[np.float64]
    predicted_s: NDArray[np.float64]

    def errors(self, first: int) -> NDArray[np.float64]:
        """log2(measured / predicted) of the `first` fastest by prediction."""
        chosen = np.argsort(self.predicted_s, kind="stable")[:first]
        return np.asarray(np.log2(self.measured_s[chosen] / self.predicted_s[chosen]))


@dataclass(frozen=True)
class _Correction:
    """log2(latency / estimate) = `usual` + the mean of the models; without enough records there are none."""

    usual: float = 0.0
    models: tuple[Trees, ...] = ()

    def latencies_s(self, rows: Floats) -> NDArray[np.float64]:
        usual = np.full(len(rows), self.usual, np.float32)
        said = [model.predict(rows, usual) for model in self.models] or [usual.astype(np.float64)]
        return np.asarray(np.exp2(rows[:, _ESTIMATE] + np.mean(said, axis=0)) / PICOSECONDS, dtype=np.float64)


class CorrectedEstimate:
    """A cost model of latencies; scores are bound of the workload / predicted latency.

    Until there are enough successful records, the analytic estimate alone. `build` makes the spaces of records, whose
    devices may have other backends than the predicted one.
    """

    def __init__(self, seed: int, build: Callable[[Workload, Target], SearchSpace]) -> None:
        self._seed = seed
        self._rows = FeatureRows(build)
        self._correction = _Correction()

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        kept, rows = self._of_records(space, records)
        self._correction = _fit(rows, kept, self._seed)

    def latencies_s(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        """The predicted latency of each schedule of the space, in seconds."""
        rows = _with_device(self._rows.of_schedules(space, schedules), [space.target] * len(schedules))
        if not len(rows):
            return np.zeros(0)
        return self._correction.latencies_s(rows)

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        return np.asarray(bound_s(space.workload, space.target) / self.latencies_s(space, schedules))

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        """0: failures do not transfer between devices."""
        return np.zeros(len(schedules))

    def held_out(
        self,
        space: SearchSpace,
        records: Sequence[TuningRecord],
        resemble: Callable[[Group, Group], bool],
        most: int,
    ) -> list[HeldOut]:
        """The first `most` groups of records, each predicted by a model trained without all groups that resemble it.

        A group always resembles itself. Groups without any records left to train with are left out.
        """
        kept, rows = self._of_records(space, records)
        groups = list(dict.fromkeys(_group(r) for r in kept))
        number = {group: n for n, group in enumerate(groups)}
        of = np.array([number[_group(r)] for r in kept])
        models: dict[bytes, _Correction] = {}
        found = []
        for n, group in enumerate(groups[:most]):
            teaches = np.array([not resemble(group, other) for other in groups])[of]
            if teaches.sum() < _ENOUGH_RECORDS:
                continue
            known = teaches.tobytes()
            if known not in models:
                models[known] = _fit(rows[teaches], [r for r, t in zip(kept, teaches, strict=True) if t], self._seed)
            measured = np.array([kept[i].measurement.undisturbed_s for i in np.flatnonzero(of == n)])
            found.append(HeldOut(*group, measured, models[known].latencies_s(rows[of == n])))
        return found

    def _of_records(self, space: SearchSpace, records: Sequence[TuningRecord]) -> tuple[list[TuningRecord], Floats]:
        kept, rows = self._rows.of_records(space, [r for r in records if r.measurement.ok])
        return kept, _with_device(rows, [r.target for r in kept])


def _group(record: TuningRecord) -> Group:
    return record.workload, record.target


def _fit(rows: Floats, records: Sequence[TuningRecord], seed: int) -> _Correction:
    if len(records) < _ENOUGH_RECORDS:
        return _Correction()
    latencies = np.array([r.measurement.undisturbed_s for r in records])
    weights = np.maximum(_ratios_to_best(latencies, records), _LOWEST_WEIGHT).astype(np.float32)
    labels = (np.log2(PICOSECONDS * latencies) - rows[:, _ESTIMATE]).astype(np.float32)
    usual = float(np.average(labels, weights=weights))
    margin = np.full(len(rows), usual, np.float32)
    seeds = range(_MODELS * seed, _MODELS * (seed + 1))
    models = (train(rows, labels, {**_TREES, "seed": s}, _ROUNDS, weights, margin) for s in seeds)
    return _Correction(usual, tuple(models))


def _ratios_to_best(latencies: NDArray[np.float64], records: Sequence[TuningRecord]) -> NDArray[np.float64]:
    """The lowest latency of the same workload and target / latency."""
    best: dict[Group, float] = {}
    for record, latency in zip(records, latencies, strict=True):
        best[_group(record)] = min(latency, best.get(_group(record), latency))
    return np.array([best[_group(r)] for r in records]) / latencies


def _with_device(rows: Floats, targets: Sequence[Target]) -> Floats:
    """The rows with the figures of their devices as further columns."""
    if not targets:
        return rows
    figures = {target: device_figures(target) for target in dict.fromkeys(targets)}
    return np.concatenate([rows, np.array([figures[t] for t in targets], dtype=np.float32)], axis=1)


def device_figures(target: Target) -> list[float]:
    """A device's features: logarithms of its sizes and rates, and of the rates of one multiprocessor."""
    amounts = (
        target.num_sms,
        target.shared_memory_bytes + 1,
        target.registers_per_sm,
        target.l1_bytes,
        target.l2_bytes,
        target.memory_bytes_per_s,
        target.fp32_flops,
        target.tf32_flops,
        target.matrix_flops,
        target.memory_bytes_per_s / target.num_sms,
        target.fp32_flops / target.num_sms,
        target.matrix_flops / target.num_sms,
        target.matrix_flops / target.memory_bytes_per_s,
    )
    return [float(target.capability), *np.log2(amounts).tolist()]
