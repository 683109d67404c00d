"""Effects of decisions: the cost of each knob value in the trials of a log, and the importance of each knob.

Importance is that of permutation (Breiman 2001, "Random forests", section 10): trees predict the logarithm of the
latency from the knobs, and the loss of shuffling one knob among the trials tells how much the latency depends on it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.trees import Trees, train
from search_spaces.schedules.knobs import KnobValue
from tuning_logs import TuningRecord
from tuning_logs.exchange.recorded_table import spread
from tuning_logs.ranking import standing

# Successes from which trees tell anything.
_ENOUGH = 24
# A few small trees: they describe these trials, and predict no others.
_ROUNDS = 60
_TREES: dict[str, str | float] = {"objective": "reg:squarederror", "max_depth": 4, "eta": 0.2, "seed": 0}
_SHUFFLES = 3
# Choices besides the knobs. No knob has these names.
_BACKEND, _SKETCH = "backend", "sketch"


@dataclass(frozen=True)
class ValueEffect:
    """One value of a knob; None where the sketch of the trial lacks the knob.

    `best` is the fastest trial with it over the fastest of all: its cost where everything else is as good as it was
    seen to be. `median` is the median trial with it over the fastest of all. `trials` are its successes.
    """

    value: KnobValue | None
    best: float
    median: float
    trials: int


@dataclass(frozen=True)
class KnobEffect:
    """The values of a knob, cheapest first.

    `importance` is its share of the loss of shuffling each of the knobs, 0 to 1; None with too few trials.
    """

    knob: str
    values: tuple[ValueEffect, ...]
    importance: float | None


def knob_effects(trials: Sequence[TuningRecord]) -> list[KnobEffect]:
    """The effects of all knobs of which the successful trials have several values, the most important first."""
    timed = [record for record in standing(trials) if record.measurement.ok]
    if not timed:
        return []
    seconds = np.array([record.measurement.undisturbed_s for record in timed])
    rows = [_knobs(record) for record in timed]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    varied = {name: values for name, values in columns.items() if len(set(values)) > 1}
    importances = _importances(varied, np.log2(seconds)) if len(timed) >= _ENOUGH else {}
    found = [KnobEffect(name, _values(of, seconds), importances.get(name)) for name, of in varied.items()]
    return sorted(found, key=lambda effect: (-(effect.importance or 0.0), -effect.values[-1].best))


def _knobs(record: TuningRecord) -> dict[str, KnobValue]:
    return {_BACKEND: record.backend, _SKETCH: record.schedule.sketch, **dict(record.schedule.values)}


def _values(chosen: Sequence[KnobValue | None], seconds: NDArray[np.float64]) -> tuple[ValueEffect, ...]:
    times: dict[KnobValue | None, list[float]] = {}
    for value, taken in zip(chosen, seconds.tolist(), strict=True):
        times.setdefault(value, []).append(taken)
    fastest = float(seconds.min())
    found = [ValueEffect(v, min(of) / fastest, statistics.median(of) / fastest, len(of)) for v, of in times.items()]
    return tuple(sorted(found, key=lambda effect: effect.best))


def _importances(columns: dict[str, list[KnobValue | None]], labels: NDArray[np.float64]) -> dict[str, float]:
    """The share of each knob in the loss of shuffling; nothing where the trees explain nothing."""
    blocks = {name: _codes(name, values) for name, values in columns.items()}
    if not blocks:
        return {}
    table = np.concatenate(list(blocks.values()), axis=1, dtype=np.float32)
    centred = labels - labels.mean()
    trees = train(table, centred.astype(np.float32), {**_TREES, "base_score": 0.0}, _ROUNDS)
    known = _loss(trees, table, centred)
    rng, losses, first = np.random.default_rng(0), dict[str, float](), 0
    for name, block in blocks.items():
        part = slice(first, first := first + block.shape[1])
        shuffled = [_with_shuffled(table, part, rng) for _ in range(_SHUFFLES)]
        losses[name] = max(0.0, statistics.fmean(_loss(trees, rows, centred) for rows in shuffled) - known)
    total = sum(losses.values())
    return {name: loss / total for name, loss in losses.items()} if total > 0 else {}


def _with_shuffled(table: NDArray[np.float32], part: slice, rng: np.random.Generator) -> NDArray[np.float32]:
    rows = table.copy()
    rows[:, part] = table[rng.permutation(len(table)), part]
    return rows


def _loss(trees: Trees, rows: NDArray[np.float32], labels: NDArray[np.float64]) -> float:
    return float(np.mean((trees.predict(rows) - labels) ** 2))


def _codes(name: str, values: Sequence[KnobValue | None]) -> NDArray[np.float32]:
    """A column for each part of a knob, shape (trials, parts): the rank of the value among those that there are."""
    parts = [spread(name, value) for value in values]
    names = dict.fromkeys(part for row in parts for part in row)
    return np.array([_ranks([row.get(part) for row in parts]) for part in names], dtype=np.float32).T


def _ranks(values: Sequence[object]) -> list[int]:
    def order(value: object) -> tuple[int, float, str]:
        return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))

    ranks = {value: rank for rank, value in enumerate(sorted(set(values), key=order))}
    return [ranks[value] for value in values]
