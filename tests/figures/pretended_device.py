"""A pretended H200 that answers for every schedule of a product: deep trees that learnt from the records that ship.

Whole spaces can be searched on it, and searches compared, without a GPU. It is as rough as trees are, and knows what
good schedules take better than bad ones, as tuning logs do.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import cache

import numpy as np
import xgboost
from numpy.typing import NDArray

from autosched.backends import spaces
from cost_models.feature_rows import FeatureRows
from cost_models.roofline import bound_s
from search_spaces import Schedule, SearchSpace, Workload, target_named
from search_spaces.schedules.knobs import KnobValue
from tuning_logs import Measurement, TuningLog, TuningRecord, shipped_logs

_SKETCH = "contraction"
_TREES = {"max_depth": 8, "eta": 0.06, "subsample": 0.7, "colsample_bytree": 0.5, "tree_method": "hist", "nthread": 1}
_ROUNDS = 400
# Times of a schedule differ from what the trees say by a part of this at most, always the same for one schedule.
_SCATTER = 0.02


class PretendedDevice:
    """Stands in for a measurer of one space."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._rows = FeatureRows()
        self._bound_s = bound_s(space.workload, space.target)

    def submit(self, workload: Workload, schedules: Sequence[Schedule], *, seed: int = 0) -> list[Future[Measurement]]:
        rows = _seen(self._rows.of_schedules(self._space, schedules), schedules)
        logs = _trees().predict(xgboost.DMatrix(rows, nthread=1))
        futures = []
        for schedule, log in zip(schedules, logs, strict=True):
            future = Future[Measurement]()
            future.set_result(Measurement("ok", (self._bound_s * math.exp(log + _scatter(schedule)),)))
            futures.append(future)
        return futures


def product_space(workload: Workload) -> SearchSpace:
    """All schedules of a product on an H200."""
    return spaces.build(workload, target_named("h200"))


@cache
def _trees() -> xgboost.Booster:
    """The logarithm of a latency, as a multiple of the least that is possible."""
    rows, logs = FeatureRows(), []
    parts: list[NDArray[np.float32]] = []
    for records in _shipped():
        space = product_space(records[0].workload)
        kept, found = rows.of_records(space, records)
        least_s = bound_s(space.workload, space.target)
        parts.append(_seen(found, [space.bind(r.schedule) for r in kept]))
        logs += [math.log(r.measurement.undisturbed_s / least_s) for r in kept]
    return xgboost.train(_TREES, xgboost.DMatrix(np.concatenate(parts), np.array(logs), nthread=1), _ROUNDS)


def _shipped() -> Iterable[list[TuningRecord]]:
    """The successful records of products, by workload."""
    groups: dict[tuple[str, str], list[TuningRecord]] = {}
    for record in (r for path in shipped_logs() for r in TuningLog(path)):
        alike = record.provenance.policy == "cold" and record.schedule.sketch == _SKETCH and record.measurement.ok
        if alike and record.subject.label.startswith("matmul"):
            groups.setdefault(record.key, []).append(record)
    return groups.values()


def _seen(features: NDArray[np.float32], schedules: Sequence[Schedule]) -> NDArray[np.float32]:
    """What the trees see: the features of cost models, and every knob."""
    knobs = [[_number(s.backend), *(_number(value) for _, value in s.values)] for s in schedules]
    return np.concatenate([features, np.array(knobs, dtype=np.float32)], axis=1)


def _number(value: KnobValue) -> float:
    """A tiling is its innermost level, and a word any number, always the same."""
    last = value[-1] if isinstance(value, tuple) else value
    return zlib.crc32(last.encode()) % 1000 if isinstance(last, str) else float(last)


def _scatter(schedule: Schedule) -> float:
    return _SCATTER * (2 * (zlib.crc32(f"{schedule.backend} {schedule.one_line}".encode()) % 10007) / 10007 - 1)
