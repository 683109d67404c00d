"""Gradient-boosted trees over features of tile programs: the cost model that learns.

Source: Ansor (OSDI 2020, section 5.2), whose label is the lowest latency of the workload / latency, with a loss
weighted by the label, so that the fast end counts. Different here: the label is taken in logarithms, and trees learn
only what the analytic estimate misses, because trees cannot rank what is faster than all they saw, and the estimate
can. Latencies of different targets are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.feasibility import Feasibility
from cost_models.feature_rows import FeatureRows
from cost_models.features import FEATURE_NAMES, PICOSECONDS
from cost_models.roofline import bound_s
from cost_models.trees import Floats, Trees, train
from search_spaces import Schedule, SearchSpace, Target, Workload
from tuning_logs import TuningRecord

# Successful records below which trees know less than the analytic estimate.
_ENOUGH_RECORDS = 16
# Few and shallow: from 32 to 512 records, on two simulated devices and a recorded table, these ranked unseen schedules
# as well as 150 deeper ones that stop on batches held out, in a quarter of the time.
_ROUNDS = 60
_TREES: dict[str, str | float] = {
    "objective": "reg:squarederror",
    "base_score": 0.0,
    "max_depth": 3,
    "eta": 0.15,
    "gamma": 0.001,
    "min_child_weight": 0.5,
    "subsample": 0.9,
    "colsample_bytree": 0.6,
    "max_bin": 64,
}
# Failures, and all that takes more than 2^5 times as long as the best, are equally bad.
_LOWEST = -5.0
# Weight of the slowest schedule, where the fastest counts 1.
_LOWEST_WEIGHT = 0.1
_ESTIMATE = FEATURE_NAMES.index("latency_s")


@dataclass(frozen=True)
class _Fitted:
    """log2(best latency / latency) = `slope` * log2(bound / estimated latency) + `intercept` + what the trees say."""

    slope: float
    intercept: float
    trees: Trees

    def scores(self, rows: Floats, bounds: Floats) -> NDArray[np.float64]:
        start = _margin(rows, bounds, self.slope, self.intercept)
        return np.exp2(self.trees.predict(rows, start))


class XGBoostModel:
    """Scores are predicted labels: best latency / latency, and about 1/32 for what fails.

    Until there are enough successful records, the analytic estimate alone: bound of the workload / estimated latency.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._fitted: _Fitted | None = None
        self._feasibility = Feasibility(seed)
        self._rows = FeatureRows()

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        kept, rows = self._rows.of_records(space, records)
        failed = np.array([not r.measurement.ok for r in kept], dtype=np.bool_)
        self._fitted = None
        if (~failed).sum() >= _ENOUGH_RECORDS:
            self._fitted = _fit(rows, kept, self._seed)
        # What one device cannot do another may.
        here = np.array([r.target.key == space.target.key for r in kept], dtype=np.bool_)
        self._feasibility.fit(rows[here], failed[here])

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        if not schedules:
            return np.zeros(0)
        rows = self._rows.of_schedules(space, schedules)
        bounds = np.full(len(rows), _log_bound(space.workload, space.target), np.float32)
        if self._fitted is None:
            return np.exp2(np.asarray(_margin(rows, bounds, slope=1.0, intercept=0.0), dtype=np.float64))
        return self._fitted.scores(rows, bounds)

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        if not schedules or not self._feasibility.trained:
            return np.zeros(len(schedules))
        return self._feasibility.chance(self._rows.of_schedules(space, schedules))


def _labels(records: Sequence[TuningRecord]) -> Floats:
    """Best latency of the same workload, target and timing policy / latency; 0 for failures."""
    best: dict[tuple[tuple[str, str], str], float] = {}
    for r in records:
        if r.measurement.ok:
            group = (r.key, r.provenance.policy)
            best[group] = min(r.measurement.undisturbed_s, best.get(group, r.measurement.undisturbed_s))
    return np.array(
        [best[r.key, r.provenance.policy] / r.measurement.undisturbed_s if r.measurement.ok else 0.0 for r in records],
        dtype=np.float32,
    )


def _log_bound(workload: Workload, target: Target) -> float:
    return float(np.log2(PICOSECONDS * bound_s(workload, target)))


def _margin(rows: Floats, bounds: Floats, slope: float, intercept: float) -> Floats:
    """Where the trees start from: the analytic estimate, as far as it proved right."""
    return slope * (bounds - rows[:, _ESTIMATE]) + intercept


def _fit(rows: Floats, records: Sequence[TuningRecord], seed: int) -> _Fitted:
    ratios = _labels(records)
    weights = np.maximum(ratios, _LOWEST_WEIGHT)
    labels = np.log2(np.maximum(ratios, 2.0**_LOWEST))
    by_key = {r.key: _log_bound(r.workload, r.target) for r in records}
    bounds = np.array([by_key[r.key] for r in records], dtype=np.float32)
    ok = ratios > 0
    slope, intercept = _line(bounds[ok] - rows[ok, _ESTIMATE], labels[ok], weights[ok])
    margin = _margin(rows, bounds, slope, intercept)
    trees = train(rows, labels, {**_TREES, "seed": seed}, _ROUNDS, weights, margin)
    return _Fitted(slope, intercept, trees)


def _line(x: Floats, y: Floats, weights: Floats) -> tuple[float, float]:
    """Weighted least squares; the slope is kept within 0 (the estimate says nothing) and 1 (it is right)."""
    x0, y0 = np.average(x, weights=weights), np.average(y, weights=weights)
    spread = np.average((x - x0) ** 2, weights=weights)
    slope = np.average((x - x0) * (y - y0), weights=weights) / spread if spread > 1e-6 else 0.0
    slope = float(np.clip(slope, 0.0, 1.0))
    return slope, float(y0 - slope * x0)
