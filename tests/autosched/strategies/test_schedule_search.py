"""How the search core sees schedules, what it begins with, and where its candidates come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import best_spaces
from autosched.backends import spaces
from autosched.strategies.bayesian.candidates import Candidates
from autosched.strategies.evolution.knob_columns import KnobColumns
from autosched.strategies.evolution.model_prior import ModelPrior
from autosched.strategies.evolution.population import Evolution
from row_kinds import kind_of
from search_spaces import Schedule, SearchSpace, ops, target_named
from search_spaces.devices.target import cpu
from search_spaces.schedules.knobs import KnobValue
from tuning_logs import TuningRecord

CPU = cpu("A CPU", lanes=16, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
THIN = spaces.build(ops.matmul(3, 2048, 1024, dtype="float16"), target_named("h200"))
ROWS = spaces.build(ops.softmax(4096, 4096, dtype="bfloat16"), target_named("h200"))
PRODUCT = best_spaces.build(ops.matmul(256, 256, 256), CPU)


class Model:
    """A cost model with given scores; it may predict every other schedule to fail."""

    def __init__(self, fails: bool = False) -> None:
        self.scores, self.fails = np.zeros(0), fails

    def fit(self, space: SearchSpace, records: Sequence[TuningRecord]) -> None:
        """Nothing is learnt."""

    def predict(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        return self.scores if len(schedules) == len(self.scores) else np.full(len(schedules), 0.5)

    def failure_chance(self, space: SearchSpace, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        chances = np.zeros(len(schedules))
        chances[::2] = 0.9 if self.fails else 0.0
        return chances


RNG = np.random.default_rng(0)


def drawn(space: SearchSpace, count: int) -> list[Schedule]:
    rng = np.random.default_rng(0)
    return list(dict.fromkeys(space.sample(rng) for _ in range(count)))


def test_schedules_of_all_sketches_and_backends_are_described_and_told_apart() -> None:
    schedules = drawn(THIN, 300)
    described = KnobColumns(THIN)(schedules)
    assert len({(s.sketch, s.backend) for s in schedules}) == 4
    assert described.columns.min() >= 0
    assert described.columns.max() <= 1
    assert len(np.unique(described.columns, axis=0)) == len(schedules)


def test_a_knob_that_a_sketch_has_not_is_as_far_from_all_its_values() -> None:
    thin = next(s for s in drawn(THIN, 50) if s.sketch == "thin_contraction")
    tiled = next(s for s in drawn(THIN, 50) if s.sketch == "contraction" and s.backend == thin.backend)
    # Registers are capped in tiled products: the least cap is no nearer to what has none than the greatest is.
    (caps,) = (k.values for k in THIN.sketch(tiled.sketch).knobs if k.name == "max_registers")
    few, many = (_with(tiled, "max_registers", cap) for cap in (caps[0], caps[-1]))
    columns = KnobColumns(THIN)([thin.unbound, few, many]).columns
    assert np.isclose(abs(columns[0] - columns[1]).sum(), abs(columns[0] - columns[2]).sum())


def test_rows_in_one_piece_are_nearest_to_long_pieces() -> None:
    streamed = next(s for s in drawn(ROWS, 50) if kind_of(s) == "streamed")
    columns = next(k for k in ROWS.sketch(streamed.sketch).knobs if k.name == "columns").values
    told = KnobColumns(ROWS)([_with(streamed, "columns", v) for v in (columns[0], columns[1], columns[-1])]).columns
    assert len(columns[0]) == 1
    assert abs(told[0] - told[2]).sum() < abs(told[0] - told[1]).sum()


def _with(schedule: Schedule, knob: str, value: KnobValue) -> Schedule:
    values = tuple((name, value if name == knob else old) for name, old in schedule.values)
    return Schedule(schedule.sketch, values, backend=schedule.backend)


def test_guesses_are_what_the_model_says_now_on_the_scale_of_labels() -> None:
    model = Model()
    candidates = Candidates(Evolution(PRODUCT, model, RNG), KnobColumns(PRODUCT), RNG)
    prior = ModelPrior(PRODUCT, model, candidates)
    rows = candidates.rows([s.unbound for s in drawn(PRODUCT, 40)])
    model.scores = np.linspace(1.0, 0.1, len(rows))
    prior.compared_with(rows)
    guesses = prior.guesses(rows)[:, 0]
    assert (np.diff(guesses) > 0).all()
    assert np.isclose(guesses.mean(), 0)
    assert np.isclose(guesses.std(), 1)
    model.scores = model.scores[::-1]
    prior.learnt()
    assert (np.diff(prior.guesses(rows)[:, 0]) < 0).all()


def test_candidates_are_neighbours_and_children_of_the_best_without_their_programs() -> None:
    best = drawn(PRODUCT, 4)
    evolution = Evolution(PRODUCT, Model(), RNG)
    evolution.wanted = 16
    found = evolution.fresh(best)
    assert set(evolution.neighbours(best[0])) <= set(found)
    assert len(found) == len(set(found)) > 100
    assert all(s.lowering is None and PRODUCT.why_illegal(PRODUCT.bind(s)) is None for s in found)


def test_a_fifth_of_the_first_population_is_drawn_at_random_and_all_of_it_where_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn_at_random, best, sample = Counter[bool](), drawn(PRODUCT, 4), SearchSpace.sample

    def counted(space: SearchSpace, rng: np.random.Generator) -> Schedule:
        drawn_at_random[known] += 1
        return sample(space, rng)

    monkeypatch.setattr(SearchSpace, "sample", counted)
    for known in (True, False):
        evolution = Evolution(PRODUCT, Model(), np.random.default_rng(0))
        evolution.wanted = 16
        evolution.fresh(best if known else [])
    assert drawn_at_random == {True: 10, False: 48}


def test_a_small_request_comes_from_a_small_population() -> None:
    best = drawn(PRODUCT, 4)
    sizes = []
    for wanted in (4, 16):
        evolution = Evolution(PRODUCT, Model(), np.random.default_rng(0))
        evolution.wanted = wanted
        near = set(evolution.neighbours(best[0]))
        sizes.append(len(set(evolution.fresh(best)) - near))
    assert 4 <= sizes[0] < sizes[1] / 2


def test_what_is_predicted_to_fail_is_no_candidate_and_is_counted() -> None:
    evolution = Evolution(PRODUCT, Model(fails=True), np.random.default_rng(0))
    schedules = drawn(PRODUCT, 20)
    assert evolution.hopeful(schedules) == schedules[1::2]
    assert len(evolution.infeasible) == len(schedules[::2])
