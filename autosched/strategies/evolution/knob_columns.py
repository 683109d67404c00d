"""What the search core sees of schedules: their knobs by name, whatever their sketch, and what makes their kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cost_models.gaussian_process import Described, Description
from search_spaces import Schedule, SearchSpace
from search_spaces.schedules.knobs import KnobValue
from search_spaces.schedules.plain_features import value_columns

# The backend and the sketch as knobs: no knob is called so.
_BACKEND, _SKETCH = "made by", "sketch of"


class KnobColumns:
    """Describes the schedules of one space. A knob that the sketch of a schedule has not is absent, a value of its own.

    Tilings are told by the levels within the outermost, which follows from these and the size.
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
    """The features of every value of a knob, shape (values, columns): where it may be absent, one tells that alone."""
    present = [value for value in values if value is not None]
    found = value_columns(present) if not isinstance(present[0], tuple) else _tile_columns(present)
    if len(present) == len(values):
        return found
    absent = np.full((1, found.shape[1]), 0.5)
    return np.block([[found, np.zeros((len(present), 1))], [absent, np.ones((1, 1))]])


def _tile_columns(tilings: Sequence[KnobValue]) -> NDArray[np.float64]:
    """The logarithms of the inner levels, the innermost last; sketches may cut a loop into more or fewer."""
    inner = [tiling[1:] or tiling for tiling in tilings if isinstance(tiling, tuple)]
    most = max(map(len, inner))
    logs = np.log2([[1] * (most - len(levels)) + list(levels) for levels in inner])
    varied = logs[:, np.ptp(logs, axis=0) > 0]
    return np.asarray((varied - varied.min(axis=0)) / np.ptp(varied, axis=0)) if varied.size else varied
