"""Gradient-boosted trees over features of tile programs: the cost model that learns.

Source: Ansor (OSDI 2020, section 5.2), whose label is the lowest latency of the workload / latency, with a loss
weighted by the label, so that the fast end counts. Different here: the label is taken in logarithms, and trees learn
only what the analytic estimate misses, because trees cannot rank what is faster than all they saw, and the estimate
can. Trees stop on batches held out, not on the training set; latencies of different targets are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xgboost
from numpy.typing import NDArray

import search_spaces
from cost_models.features import FEATURE_NAMES, PICOSECONDS, features
from cost_models.roofline import bound_s
from search_spaces import AutoschedError, InputError, Schedule, SearchSpace, Target, Workload
from tuning_logs import TuningRecord

# Successful records below which trees know less than the analytic estimate.
_ENOUGH_RECORDS = 16
# Trials that are held out or kept together: those of one batch resemble each other.
_BATCH = 16
_HELD_OUT = 5  # one batch in so many
_ROUNDS = 150
_ROUNDS_UNJUDGED = 100  # when there is no batch to hold out
_PATIENCE = 20
# Shallow trees: deeper ones ranked no better from 50 and 150 trials, and train three times as long.
# One thread: two on a machine with other work made training 5 to 20 times slower.
_TREES: dict[str, str | float] = {
    "objective": "reg:squarederror",
    "base_score": 0.0,
    "tree_method": "hist",
    "nthread": 1,
    "max_depth": 4,
    "eta": 0.1,
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

_Key = tuple[str, str]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class _Fitted:
    """log2(best latency / latency) = `slope` * log2(bound / estimated latency) + `intercept` + what the trees say."""

    slope: float
    intercept: float
    trees: xgboost.Booster

    def scores(self, rows: Floats, bounds: Floats) -> NDArray[np.float64]:
        start = _margin(rows, bounds, self.slope, self.intercept)
        predicted = np.asarray(self.trees.inplace_predict(rows, base_margin=start), dtype=np.float64)
        return np.exp2(predicted)


class XGBoostModel:
    """Scores are predicted labels: best latency / latency, and about 1/32 for what fails.

    Until there are enough successful records, the analytic estimate alone: bound of the workload / estimated latency.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._fitted: _Fitted | None = None
        self._vectors: dict[_Key, dict[Schedule, Floats | None]] = {}
        self._spaces: dict[_Key, SearchSpace | None] = {}

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        self._spaces[_key(space)] = space
        kept: list[TuningRecord] = []
        rows: list[Floats] = []
        for record in records:
            row = self._row_of(record)
            if row is not None:
                kept.append(record)
                rows.append(row)
        self._fitted = None
        if sum(r.measurement.ok for r in kept) >= _ENOUGH_RECORDS:
            self._fitted = _fit(np.stack(rows), kept, self._seed)

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        if not schedules:
            return np.zeros(0)
        known = self._vectors.setdefault(_key(space), {})
        rows = []
        for schedule in schedules:
            row = known.get(schedule)
            if row is None:
                row = known[schedule] = features(space.lower(schedule), space.target)
            rows.append(row)
        stacked = np.stack(rows)
        bounds = np.full(len(rows), _log_bound(space.workload, space.target), np.float32)
        if self._fitted is None:
            return np.exp2(np.asarray(_margin(stacked, bounds, slope=1.0, intercept=0.0), dtype=np.float64))
        return self._fitted.scores(stacked, bounds)

    def _row_of(self, record: TuningRecord) -> Floats | None:
        known = self._vectors.setdefault(record.key, {})
        if record.schedule not in known:
            known[record.schedule] = self._lowered(record)
        return known[record.schedule]

    def _lowered(self, record: TuningRecord) -> Floats | None:
        """The features of a record's schedule; None when its space no longer has it."""
        space = self._space_of(record)
        try:
            return features(space.bind(record.schedule).program, space.target) if space else None
        except InputError:
            return None

    def _space_of(self, record: TuningRecord) -> SearchSpace | None:
        if record.key not in self._spaces:
            try:
                self._spaces[record.key] = search_spaces.build(record.workload, record.target)
            except AutoschedError:
                self._spaces[record.key] = None
        return self._spaces[record.key]


def _key(space: SearchSpace) -> _Key:
    return space.workload.key, space.target.key


def _labels(records: Sequence[TuningRecord]) -> Floats:
    """Best latency of the same workload, target and timing policy / latency; 0 for failures."""
    best: dict[tuple[_Key, str], float] = {}
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


def _held_out(records: Sequence[TuningRecord]) -> NDArray[np.bool_]:
    """Which records judge when to stop: every fifth batch of each run."""
    return np.array([r.provenance.trial // _BATCH % _HELD_OUT == _HELD_OUT - 1 for r in records])


def _fit(rows: Floats, records: Sequence[TuningRecord], seed: int) -> _Fitted:
    ratios = _labels(records)
    weights = np.maximum(ratios, _LOWEST_WEIGHT)
    labels = np.log2(np.maximum(ratios, 2.0**_LOWEST))
    by_key = {r.key: _log_bound(r.workload, r.target) for r in records}
    bounds = np.array([by_key[r.key] for r in records], dtype=np.float32)
    ok = ratios > 0
    slope, intercept = _line(bounds[ok] - rows[ok, _ESTIMATE], labels[ok], weights[ok])
    margin = _margin(rows, bounds, slope, intercept)
    return _Fitted(slope, intercept, _train(rows, margin, labels, weights, _held_out(records), seed))


def _line(x: Floats, y: Floats, weights: Floats) -> tuple[float, float]:
    """Weighted least squares; the slope is kept within 0 (the estimate says nothing) and 1 (it is right)."""
    x0, y0 = np.average(x, weights=weights), np.average(y, weights=weights)
    spread = np.average((x - x0) ** 2, weights=weights)
    slope = np.average((x - x0) * (y - y0), weights=weights) / spread if spread > 1e-6 else 0.0
    slope = float(np.clip(slope, 0.0, 1.0))
    return slope, float(y0 - slope * x0)


def _train(
    rows: Floats, margin: Floats, labels: Floats, weights: Floats, held_out: NDArray[np.bool_], seed: int
) -> xgboost.Booster:
    def matrix(part: NDArray[np.bool_]) -> xgboost.DMatrix:
        return xgboost.DMatrix(
            rows[part], label=labels[part], weight=weights[part], base_margin=margin[part], nthread=1
        )

    settings = {**_TREES, "seed": seed}
    rounds = _ROUNDS_UNJUDGED
    if held_out.any() and not held_out.all():
        judged = [(matrix(held_out), "held_out")]
        tried = xgboost.train(
            settings, matrix(~held_out), _ROUNDS, evals=judged, early_stopping_rounds=_PATIENCE, verbose_eval=False
        )
        rounds = tried.best_iteration + 1
    return xgboost.train(settings, matrix(np.ones_like(held_out)), rounds)
