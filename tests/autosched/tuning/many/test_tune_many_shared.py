"""Several searches over one session: what one learns from the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from autosched.backends import spaces
from autosched.strategies.random import Random
from cost_models import CostModel, SharedModel
from cost_models.roofline_model import RooflineModel
from search_spaces import Schedule, SearchSpace
from several_searches import LARGE, ROWS, SMALL, TARGET, FakeMeasurer, search, trials_of, tune_apart
from tuning_logs import TuningRecord


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tuning.jsonl"


class Listening(Random):
    """Remembers what it was told of other workloads."""

    distinguished: ClassVar[set[str]] = set()

    def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        super().tell(records, elsewhere=elsewhere)
        if elsewhere:
            self.distinguished |= {r.workload.key for r in records}


def test_similar_kernels_learn_from_each_other(log: Path) -> None:
    Listening.distinguished = set()
    search(log, FakeMeasurer(), 96, (SMALL, 1), (LARGE, 1), (ROWS, 1), strategy=Listening)
    assert Listening.distinguished & {SMALL.key, LARGE.key, ROWS.key} == {SMALL.key, LARGE.key}


@pytest.mark.parametrize("history", [None, ()])
def test_a_kernel_begins_with_what_similar_ones_of_the_same_call_found(log: Path, history: tuple[()] | None) -> None:
    told: dict[str, set[str]] = {}

    class Beginning(Random):
        def tell(self, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
            super().tell(records, elsewhere=elsewhere)
            told.setdefault(self._space.workload.key, {r.workload.key for r in records})

    measurer = FakeMeasurer()
    search(log, measurer, 48, (SMALL, 1), (LARGE, 1), (ROWS, 1), strategy=Beginning, history=history)
    assert told[SMALL.key] == told[ROWS.key] == set()
    assert told[LARGE.key] == {SMALL.key}


class Counted(RooflineModel):
    """Says of everything how many records it was last fitted to."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.fits: list[str] = []
        self._records = 0

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        self.fits.append(space.workload.key)
        self._records = len(records)

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        return np.full(len(schedules), float(self._records))


def test_a_shared_model_knows_of_every_structure_what_was_last_told_of_it(log: Path) -> None:
    search(log, FakeMeasurer(), 32, (SMALL, 1), (ROWS, 1))
    product, rows = (spaces.build(op, TARGET) for op in (SMALL, ROWS))
    schedules = [product.sample(np.random.default_rng(0))]
    model = Counted()
    shared = SharedModel(model)
    shared.fit(product, trials_of(log, SMALL)[:3])
    shared.fit(rows, trials_of(log, ROWS)[:5])
    assert shared.predict(product, schedules)[0] == 3
    assert shared.predict(product, schedules)[0] == 3
    assert model.fits == [SMALL.key, ROWS.key, SMALL.key]


def test_the_kernels_of_a_traced_function_share_one_model(log: Path) -> None:
    models: list[CostModel] = []

    def random_of(space: SearchSpace, model: CostModel, rng: np.random.Generator) -> Random:
        models.append(model)
        return Random(space, model, rng)

    tune_apart(log, 4, FakeMeasurer(), strategy=random_of)
    assert len(models) == 2
    assert models[0] is models[1]
