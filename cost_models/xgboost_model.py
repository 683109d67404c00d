"""Gradient-boosted trees over features of tile programs: the cost model that learns.

Source: Ansor (OSDI 2020, section 5.2): label = lowest latency of the workload / latency, and a loss weighted by the
label, so that the fast end counts. Different here: trees stop on batches held out, not on the training set; latencies
of different targets are never compared; before there is data, the analytic estimate ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xgboost
from numpy.typing import NDArray

import search_spaces
from cost_models.features import features
from cost_models.roofline_model import RooflineModel
from search_spaces import AutoschedError, InputError, Schedule, SearchSpace
from tuning_logs import TuningRecord

# Successful records below which trees know less than the analytic estimate.
_ENOUGH_RECORDS = 16
# Trials that are held out or kept together: those of one batch resemble each other.
_BATCH = 16
_HELD_OUT = 5  # one batch in so many
_ROUNDS = 150
_PATIENCE = 20
# One thread: two on a machine with other work made training 5 to 20 times slower.
_TREES: dict[str, str | float] = {
    "objective": "reg:squarederror",
    "tree_method": "hist",
    "nthread": 1,
    "max_depth": 7,
    "eta": 0.15,
    "gamma": 0.001,
    "min_child_weight": 0.5,
    "subsample": 0.9,
    "colsample_bytree": 0.6,
    "max_bin": 128,
    "base_score": 0.3,
}
# Weight of a failure or a very slow schedule, where the fastest counts 1.
_LOWEST_WEIGHT = 0.1

_Key = tuple[str, str]
Floats = NDArray[np.float32]


class XGBoostModel:
    """Scores are predicted labels: best latency / latency, 0 for what fails."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._prior = RooflineModel(seed)
        self._trees: xgboost.Booster | None = None
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
        self._trees = None
        if sum(r.measurement.ok for r in kept) >= _ENOUGH_RECORDS:
            self._trees = _train(np.stack(rows), _labels(kept), _held_out(kept), self._seed)

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        if self._trees is None or not schedules:
            return self._prior.predict(space, schedules)
        known = self._vectors.setdefault(_key(space), {})
        rows = []
        for schedule in schedules:
            row = known.get(schedule)
            if row is None:
                row = known[schedule] = features(space.lower(schedule), space.target)
            rows.append(row)
        return np.asarray(self._trees.inplace_predict(np.stack(rows)), dtype=np.float64)

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
            best[group] = min(r.measurement.latency_s, best.get(group, r.measurement.latency_s))
    return np.array(
        [best[r.key, r.provenance.policy] / r.measurement.latency_s if r.measurement.ok else 0.0 for r in records],
        dtype=np.float32,
    )


def _held_out(records: Sequence[TuningRecord]) -> NDArray[np.bool_]:
    """Which records judge when to stop: every fifth batch of each run."""
    return np.array([r.provenance.trial // _BATCH % _HELD_OUT == _HELD_OUT - 1 for r in records])


def _train(rows: Floats, labels: Floats, held_out: NDArray[np.bool_], seed: int) -> xgboost.Booster:
    weights = np.maximum(labels, _LOWEST_WEIGHT)
    steps = {**_TREES, "seed": seed}
    rounds = _ROUNDS // 2
    if held_out.any() and not held_out.all():
        train, test = (
            xgboost.DMatrix(rows[part], label=labels[part], weight=weights[part], nthread=1)
            for part in (~held_out, held_out)
        )
        trial = xgboost.train(
            steps, train, _ROUNDS, evals=[(test, "held_out")], early_stopping_rounds=_PATIENCE, verbose_eval=False
        )
        rounds = trial.best_iteration + 1
    everything = xgboost.DMatrix(rows, label=labels, weight=weights, nthread=1)
    return xgboost.train(steps, everything, rounds)
