"""Features of schedules for Bayesian search: knobs by name in any sketch, the backend and the sketch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cost_models.gaussian_process import Described, Description
from search_spaces import Schedule, SearchSpace
from search_spaces.schedules.knobs import KnobValue
from search_spaces.schedules.plain_features import value_columns

# The backend and the sketch as knobs; no knob has these names.
_BACKEND, _SKETCH = "made by", "sketch of"


class KnobColumns:
    """Features of the schedules of one space. A knob that a sketch lacks is absent, which is a value of its own.

    A tiling is described by its inner levels; the outermost follows from these and the size.
    """

    def __init__(self, space: SearchSpace) -> None:
        values: dict[str, dict[KnobValue | None, None]] = {}
        values[_BACKEND], values[_SKETCH] = dict.fromkeys(space.backends), {s.name: None for s in space.sketches}
        for sketch in space.sketches:
            for knob in sketch.knobs:
                values.setdefault(knob.name, {}).update(dict.fromkeys(knob.values))
        for name in values.keys() - {_BACKEND, _SKETCH}:
            if not all(any(knob.name == name for knob in sketch.knobs) for sketch in space.sketches):
                values[name][None] = None
        self._positions = {name: {value: place for place, value in enumerate(of)} for name, of in values.items()}
        self._description = Description([_columns(list(of)) for of in values.values()])

    def __call__(self, schedules: Sequence[Schedule]) -> Described:
        rows = [self._codes(schedule) for schedule in schedules]
        return self._description(np.array(rows, dtype=np.int32).reshape(len(rows), len(self._positions)))

    def _codes(self, schedule: Schedule) -> list[int]:
        chosen: dict[str, KnobValue] = {**dict(schedule.values), _BACKEND: schedule.backend, _SKETCH: schedule.sketch}
        return [places[chosen.get(name)] for name, places in self._positions.items()]


def _columns(values: Sequence[KnobValue | None]) -> NDArray[np.float64]:
    """Features of every value of a knob, shape (values, columns); absence, where possible, has a column of its own."""
    present = [value for value in values if value is not None]
    found = value_columns(present) if not isinstance(present[0], tuple) else _tile_columns(present)
    if len(present) == len(values):
        return found
    absent = np.full((1, found.shape[1]), 0.5)
    return np.block([[found, np.zeros((len(present), 1))], [absent, np.ones((1, 1))]])


def _tile_columns(tilings: Sequence[KnobValue]) -> NDArray[np.float64]:
    """Logarithms of the inner levels, the innermost last; sketches may tile a loop to more or fewer levels."""
    inner = [tiling[1:] or tiling for tiling in tilings if isinstance(tiling, tuple)]
    most = max(map(len, inner))
    logs = np.log2([[1] * (most - len(levels)) + list(levels) for levels in inner])
    varied = logs[:, np.ptp(logs, axis=0) > 0]
    return np.asarray((varied - varied.min(axis=0)) / np.ptp(varied, axis=0)) if varied.size else varied
