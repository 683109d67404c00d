"""Gradient-boosted trees over features of tile programs: the cost model that learns.

Source: Ansor (OSDI 2020, section 5.2), whose label is the lowest latency of the workload / latency, with a loss
weighted by the label, so that the fast end counts. Different here: the label is taken in logarithms, and trees learn
only what the analytic estimate misses, because trees cannot rank what is faster than all they saw, and the estimate
can. Latencies of different targets are never compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.feasibility import Feasibility
from cost_models.feature_rows import FeatureRows
from cost_models.features import FEATURE_NAMES, PICOSECONDS
from cost_models.roofline import bound_s
from cost_models.trees import Floats, Trees, load_xgboost, train
from search_spaces import InputError, Schedule, SearchSpace, Target, Workload
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


# What the file of a saved model begins with, and the number of its form: raised when features of the same name come to
# mean something else, too.
_FORMAT = "autosched cost model: xgboost"
_VERSION = 1


@dataclass(frozen=True)
class _Fitted:
    """log2(best latency / latency) = `slope` * what was known before + `intercept` + what the trees say.

    Known before is what `prior` says, and without one the analytic estimate, log2(bound / estimated latency).
    """

    slope: float
    intercept: float
    trees: Trees
    prior: _Fitted | None = None

    def log_scores(self, rows: Floats, bounds: Floats) -> NDArray[np.float64]:
        known = _known_before(rows, bounds, self.prior)
        return self.trees.predict(rows, _margin(known, self.slope, self.intercept))

    def to_json(self) -> dict[str, Any]:
        prior = self.prior.to_json() if self.prior else None
        return {"slope": self.slope, "intercept": self.intercept, "trees": self.trees.to_json(), "prior": prior}

    @staticmethod
    def from_json(data: dict[str, Any] | None) -> _Fitted | None:
        if data is None:
            return None
        trees, prior = Trees.from_json(data["trees"]), _Fitted.from_json(data["prior"])
        return _Fitted(float(data["slope"]), float(data["intercept"]), trees, prior)


class XGBoostModel:
    """Scores are predicted labels: best latency / latency, and about 1/32 for what fails.

    Until there are enough successful records, the analytic estimate alone: bound of the workload / estimated latency.
    A model that was loaded begins with what it knew when it was saved, in place of that estimate; no fit forgets it.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._loaded: _Fitted | None = None
        self._fitted: _Fitted | None = None
        self._feasibility = Feasibility(seed)
        # The device whose failures are known.
        self._target: str | None = None
        self._rows = FeatureRows()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learnt to a JSON file, whose trees are in xgboost's own form.

        Raises:
            InputError: the file cannot be written.
        """
        failures = self._feasibility.trees
        data = {
            "format": _FORMAT,
            "version": _VERSION,
            "features": FEATURE_NAMES,
            "seed": self._seed,
            "scores": self._fitted.to_json() if self._fitted else None,
            "failures": failures.to_json() if failures else None,
            "target": self._target,
        }
        try:
            Path(path).write_text(json.dumps(data), encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from error

    @staticmethod
    def load(path: str | os.PathLike[str]) -> XGBoostModel:
        """The model that was saved in a file: it predicts what it predicted then.

        Raises:
            InputError: the file cannot be read, holds something else, or a model of other features.
        """
        data = _read(Path(path))
        try:
            model = XGBoostModel(int(data["seed"]))
            model._loaded = model._fitted = _Fitted.from_json(data["scores"])
            failures = data["failures"]
            model._feasibility = Feasibility(model._seed, Trees.from_json(failures) if failures else None)
            model._target = data["target"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: the saved cost model is damaged ({error}); save it anew") from error
        return model

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        kept, rows = self._rows.of_records(space, records)
        failed = np.array([not r.measurement.ok for r in kept], dtype=np.bool_)
        self._fitted = self._loaded
        if (~failed).sum() >= _ENOUGH_RECORDS:
            self._fitted = _fit(rows, kept, self._seed, self._loaded)
        # What one device cannot do another may.
        here = np.array([r.target.key == space.target.key for r in kept], dtype=np.bool_)
        if self._target != space.target.key:
            self._feasibility, self._target = Feasibility(self._seed), space.target.key
        self._feasibility.fit(rows[here], failed[here])

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        if not schedules:
            return np.zeros(0)
        load_xgboost()
        rows = self._rows.of_schedules(space, schedules)
        bounds = np.full(len(rows), _log_bound(space.workload, space.target), np.float32)
        if self._fitted is None:
            return np.exp2(np.asarray(_known_before(rows, bounds, None), dtype=np.float64))
        return np.exp2(self._fitted.log_scores(rows, bounds))

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        if not schedules or self._feasibility.trees is None or self._target != space.target.key:
            return np.zeros(len(schedules))
        return self._feasibility.chance(self._rows.of_schedules(space, schedules))


def _read(path: Path) -> dict[str, Any]:
    """What the file of a saved model holds. Raises InputError for any other file."""
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} is no saved cost model: expected JSON that `save` wrote ({error})") from error
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        got = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise InputError(f"{path} is no saved cost model: expected the format {_FORMAT!r}, got {got!r}")
    if data.get("version") != _VERSION:
        raise InputError(f"{path}: expected version {_VERSION} of the format, got {data.get('version')!r}; save anew")
    if data.get("features") != list(FEATURE_NAMES):
        raise InputError(f"{path}: {_other_features(data.get('features'))}; train a model anew")
    return data


def _other_features(found: object) -> str:
    names = found if isinstance(found, list) else []
    unknown = sorted(set(map(str, names)) - set(FEATURE_NAMES))
    missing = sorted(set(FEATURE_NAMES) - set(map(str, names)))
    return (
        f"the model was trained on {len(names)} features, expected the {len(FEATURE_NAMES)} of this version "
        f"(not among these: {', '.join(unknown[:3]) or 'none'}; new: {', '.join(missing[:3]) or 'none'})"
    )


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


def _known_before(rows: Floats, bounds: Floats, prior: _Fitted | None) -> Floats:
    """log2 of the scores that the prior gives, or the analytic estimate."""
    return bounds - rows[:, _ESTIMATE] if prior is None else prior.log_scores(rows, bounds).astype(np.float32)


def _margin(known: Floats, slope: float, intercept: float) -> Floats:
    """Where the trees start from: what was known before, as far as it proved right."""
    return slope * known + intercept


def _fit(rows: Floats, records: Sequence[TuningRecord], seed: int, prior: _Fitted | None) -> _Fitted:
    ratios = _labels(records)
    weights = np.maximum(ratios, _LOWEST_WEIGHT)
    labels = np.log2(np.maximum(ratios, 2.0**_LOWEST))
    one_of = {r.key: r for r in records}
    by_key = {key: _log_bound(r.workload, r.target) for key, r in one_of.items()}
    bounds = np.array([by_key[r.key] for r in records], dtype=np.float32)
    ok = ratios > 0
    known = _known_before(rows, bounds, prior)
    slope, intercept = _line(known[ok], labels[ok], weights[ok])
    margin = _margin(known, slope, intercept)
    trees = train(rows, labels, {**_TREES, "seed": seed}, _ROUNDS, weights, margin)
    return _Fitted(slope, intercept, trees, prior)


def _line(x: Floats, y: Floats, weights: Floats) -> tuple[float, float]:
    """Weighted least squares; the slope is kept within 0 (the estimate says nothing) and 1 (it is right)."""
    x0, y0 = np.average(x, weights=weights), np.average(y, weights=weights)
    spread = np.average((x - x0) ** 2, weights=weights)
    slope = np.average((x - x0) * (y - y0), weights=weights) / spread if spread > 1e-6 else 0.0
    slope = float(np.clip(slope, 0.0, 1.0))
    return slope, float(y0 - slope * x0)
