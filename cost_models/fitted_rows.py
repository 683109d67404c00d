"""Trees fitted to rows of features: they learn the residual of prior knowledge, mostly of the estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.features import FEATURE_NAMES, PICOSECONDS
from cost_models.roofline import bound_s
from cost_models.trees import Floats, Trees, train
from search_spaces import Target, Workload
from tuning_logs import TuningRecord

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
# Failures, and schedules more than 2^5 times slower than the best, are equally bad.
_LOWEST = -5.0
# Weight of the slowest schedule, where the fastest counts 1.
_LOWEST_WEIGHT = 0.1
_ESTIMATE = FEATURE_NAMES.index("latency_s")


@dataclass(frozen=True)
class FittedRows:
    """log2(best latency / latency) = `slope` * prior knowledge + `intercept` + the trees' sum.

    Prior knowledge is the `prior`'s score, or without one the analytic estimate, log2(bound / estimated latency).
    """

    slope: float
    intercept: float
    trees: Trees
    prior: FittedRows | None = None

    def log_scores(self, rows: Floats, bounds: Floats) -> NDArray[np.float64]:
        known = known_before(rows, bounds, self.prior)
        return self.trees.predict(rows, _margin(known, self.slope, self.intercept))

    def to_json(self) -> dict[str, Any]:
        prior = self.prior.to_json() if self.prior else None
        return {"slope": self.slope, "intercept": self.intercept, "trees": self.trees.to_json(), "prior": prior}

    @staticmethod
    def from_json(data: dict[str, Any] | None) -> FittedRows | None:
        if data is None:
            return None
        trees, prior = Trees.from_json(data["trees"]), FittedRows.from_json(data["prior"])
        return FittedRows(float(data["slope"]), float(data["intercept"]), trees, prior)


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


def log_bound(workload: Workload, target: Target) -> float:
    """log2 of the workload's lower bound in picoseconds."""
    return float(np.log2(PICOSECONDS * bound_s(workload, target)))


def known_before(rows: Floats, bounds: Floats, prior: FittedRows | None) -> Floats:
    """log2 of the scores that the prior gives, or the analytic estimate."""
    return bounds - rows[:, _ESTIMATE] if prior is None else prior.log_scores(rows, bounds).astype(np.float32)


def _margin(known: Floats, slope: float, intercept: float) -> Floats:
    """The trees' base margin: prior knowledge, as far as it proved right."""
    return slope * known + intercept


def fit_rows(rows: Floats, records: Sequence[TuningRecord], seed: int, prior: FittedRows | None) -> FittedRows:
    """A model fitted to these records, one for each row; `prior` is prior knowledge, the estimate where it is None."""
    ratios = _labels(records)
    weights = np.maximum(ratios, _LOWEST_WEIGHT)
    labels = np.log2(np.maximum(ratios, 2.0**_LOWEST))
    one_of = {r.key: r for r in records}
    by_key = {key: log_bound(r.workload, r.target) for key, r in one_of.items()}
    bounds = np.array([by_key[r.key] for r in records], dtype=np.float32)
    ok = ratios > 0
    known = known_before(rows, bounds, prior)
    slope, intercept = _line(known[ok], labels[ok], weights[ok])
    margin = _margin(known, slope, intercept)
    trees = train(rows, labels, {**_TREES, "seed": seed}, _ROUNDS, weights, margin)
    return FittedRows(slope, intercept, trees, prior)


def _line(x: Floats, y: Floats, weights: Floats) -> tuple[float, float]:
    """Weighted least squares; the slope is kept within 0 (the estimate is useless) and 1 (it is right)."""
    x0, y0 = np.average(x, weights=weights), np.average(y, weights=weights)
    spread = np.average((x - x0) ** 2, weights=weights)
    slope = np.average((x - x0) * (y - y0), weights=weights) / spread if spread > 1e-6 else 0.0
    slope = float(np.clip(slope, 0.0, 1.0))
    return slope, float(y0 - slope * x0)
