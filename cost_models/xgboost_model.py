"""Gradient-boosted trees over features of tile programs: the cost model that learns.

Source: Ansor (OSDI 2020, section 5.2), whose label is the lowest latency of the workload / latency, with a loss
weighted by the label, so that the fast end counts. Different here: the label is a logarithm, and trees learn only the
residual of the analytic estimate, because trees cannot extrapolate to schedules faster than all they saw, and the
estimate can. Latencies of different targets are never compared.

Device features are schedules' needs relative to capacities (caches, shared memory, registers, processors, rates), not
the device's figures themselves: with these, trees rank better over all, but take the best known here for the optimum,
and choose worse once there are a few trials (tests/figures/devices.py: of the ten first choices on three boards the
best took 11 to 377 % longer than the optimum, without them 0 to 11 %).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.feasibility import Feasibility
from cost_models.feature_rows import FeatureRows
from cost_models.features import FEATURE_NAMES
from cost_models.fitted_rows import FittedRows, fit_rows, known_before, log_bound
from cost_models.trees import Trees, load_xgboost
from search_spaces import InputError, Schedule, SearchSpace
from tuning_logs import TuningRecord

# Successful records below which trees know less than the analytic estimate.
_ENOUGH_RECORDS = 16
# The format name and version in the file of a saved model; the version is also raised when a feature changes its
# meaning.
_FORMAT = "autosched cost model: xgboost"
_VERSION = 1


class XGBoostModel:
    """Scores are predicted labels: best latency / latency, and about 1/32 for failures.

    Until there are enough successful records, the analytic estimate alone: bound of the workload / estimated latency. A
    loaded model starts from its saved knowledge instead of that estimate; no fit forgets it.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._loaded: FittedRows | None = None
        self._fitted: FittedRows | None = None
        self._feasibility = Feasibility(seed)
        # The device whose failures are known.
        self._target: str | None = None
        self._rows = FeatureRows()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a JSON file, whose trees are in xgboost's own form.

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
        """The model saved in a file, with the same predictions.

        Raises:
            InputError: the file cannot be read, holds something else, or a model of other features.
        """
        data = _read(Path(path))
        try:
            model = XGBoostModel(int(data["seed"]))
            model._loaded = model._fitted = FittedRows.from_json(data["scores"])
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
            self._fitted = fit_rows(rows, kept, self._seed, self._loaded)
        # Failures do not transfer between devices.
        here = np.array([r.target.key == space.target.key for r in kept], dtype=np.bool_)
        if self._target != space.target.key:
            self._feasibility, self._target = Feasibility(self._seed), space.target.key
        self._feasibility.fit(rows[here], failed[here])

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        if not schedules:
            return np.zeros(0)
        load_xgboost()
        rows = self._rows.of_schedules(space, schedules)
        bounds = np.full(len(rows), log_bound(space.workload, space.target), np.float32)
        if self._fitted is None:
            return np.exp2(np.asarray(known_before(rows, bounds, None), dtype=np.float64))
        return np.exp2(self._fitted.log_scores(rows, bounds))

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        if not schedules or self._feasibility.trees is None or self._target != space.target.key:
            return np.zeros(len(schedules))
        return self._feasibility.chance(self._rows.of_schedules(space, schedules))


def _read(path: Path) -> dict[str, Any]:
    """The content of a saved model's file. Raises InputError for any other file."""
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
