"""The search core on plain spaces: it asks for every point once, learns from few, and survives what users do to it."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from autosched.strategies.bayesian import BayesianSearch, History, plain_search
from cost_models.gaussian_process import CovarianceKernel, Described, Description, factored, inverted
from search_spaces.errors import EmptySearchSpaceError
from search_spaces.schedules.plain_features import value_columns
from search_spaces.schedules.plain_space import PlainSpace, PlainValue, Point

TILES: list[PlainValue] = [8, 16, 32, 64, 128]
SPACE = PlainSpace({"m": TILES, "n": TILES, "k": TILES, "warps": [1, 2, 4, 8], "order": ["mn", "nm"]})


def seconds(point: Point) -> float:
    """A valley around 64 x 32 x 16 with 4 warps; what needs too much memory fails."""
    m, n, k, warps, order = point
    if float(str(m)) * float(str(n)) > 64 * 64:
        return math.inf
    away = [math.log2(float(str(value)) / best) for value, best in ((m, 64), (n, 32), (k, 16), (warps, 4))]
    return 1e-3 * (1 + sum(d * d for d in away) / 4 + (order == "nm"))


def searched(strategy: BayesianSearch[Point], budget: int, count: int = 16) -> list[Point]:
    """The points that were asked for, in order."""
    asked: list[Point] = []
    while len(asked) < budget and (points := strategy.ask(min(count, budget - len(asked)))):
        strategy.tell(points, [seconds(p) for p in points])
        asked += points
    return asked


def test_it_finds_the_best_of_a_smooth_space_in_few_trials() -> None:
    for seed in range(3):
        assert min(map(seconds, searched(plain_search(SPACE, seed), 60))) <= 1.25e-3


def test_it_asks_for_every_point_once_and_then_for_none() -> None:
    space = PlainSpace({"m": TILES, "n": TILES})
    asked = searched(plain_search(PlainSpace({**dict.fromkeys("mnk", TILES), "warps": [4], "order": ["mn"]}), 0), 1000)
    assert len(asked) == len(set(asked)) == 125
    assert len(list(space)) == 25


def test_the_same_seed_and_answers_give_the_same_points() -> None:
    assert searched(plain_search(SPACE, 1), 40) == searched(plain_search(SPACE, 1), 40)
    assert searched(plain_search(SPACE, 1), 8) != searched(plain_search(SPACE, 2), 8)


def test_points_that_were_told_are_not_asked_for() -> None:
    strategy = plain_search(SPACE, 0)
    told = list(SPACE)[::2]
    strategy.tell(told, [seconds(p) for p in told])
    assert not {*searched(strategy, 30)} & {*told}


def test_a_triangle_is_inverted_by_halves() -> None:
    square = np.random.default_rng(0).standard_normal((301, 301))
    lower = np.linalg.cholesky(square @ square.T + 301 * np.eye(301))
    assert np.allclose(inverted(lower) @ lower, np.eye(301), atol=1e-12)


def test_effects_of_very_many_values_have_few_features_and_are_as_alike_as_ever() -> None:
    numbers: list[PlainValue] = [*range(1, 1001)]
    columns = value_columns(numbers)
    codes = np.arange(1000, dtype=np.int32)[:, None]
    few = Description([columns])(codes).effects
    with mock.patch("cost_models.gaussian_process._MOST_EFFECTS", 1000):
        exact = Description([columns])(codes).effects
    assert few.shape[1] <= 64
    np.testing.assert_allclose(few @ few.T, exact @ exact.T, atol=2e-3)
    np.testing.assert_allclose((few * few).sum(axis=1), 1.0, rtol=1e-5)


def test_what_others_chose_is_under_way_and_not_asked_for() -> None:
    strategy, others = plain_search(SPACE, 0), list(SPACE)[1::3]
    strategy.measures(others)
    asked = searched(strategy, 40)
    assert not {*asked} & {*others}
    # Six points are measured before anything is predicted: these are under way.
    assert len(plain_search(SPACE, 0).ask(16)) == 6
    assert len(strategy.ask(16)) == 1


def test_a_search_that_looks_anew_goes_on_as_before() -> None:
    strategy = plain_search(SPACE, 0)
    asked = searched(strategy, 30)
    strategy.look_anew()
    assert not {*searched(strategy, 10)} & {*asked}


@pytest.mark.parametrize("knobs", [{}, {"m": [16]}], ids=["none", "one"])
def test_a_tiny_space_is_searched_to_its_end(knobs: dict[str, list[PlainValue]]) -> None:
    space = PlainSpace(knobs or {"m": [16]}, configurations=None if knobs else [])
    strategy = plain_search(space, 0)
    points = strategy.ask(8)
    assert len(points) == len(list(space))
    strategy.tell(points, [1e-3] * len(points))
    assert strategy.ask(8) == []


def test_a_space_of_a_million_million_points_is_searched() -> None:
    space = PlainSpace({f"k{i}": list(range(1, 11)) for i in range(12)})
    strategy, best = plain_search(space, 0), []
    for _ in range(15):
        points = strategy.ask(8)
        took = [1e-3 * (1 + sum(abs(float(str(v)) - 3) for v in p)) for p in points]
        strategy.tell(points, took)
        best += took
    drawn = np.random.default_rng(0).integers(1, 11, (len(best), 12))
    assert min(best) < 1e-3 * (1 + np.abs(drawn - 3).sum(axis=1).min())


def test_a_search_where_everything_fails_goes_on() -> None:
    strategy = plain_search(SPACE, 0)
    for _ in range(10):
        points = strategy.ask(8)
        assert points
        strategy.tell(points, [None] * len(points))


@pytest.mark.parametrize("took", [1e-3, None])
def test_a_large_space_of_which_one_point_is_legal_is_searched_to_its_end(took: float | None) -> None:
    space = PlainSpace({f"k{i}": range(1, 11) for i in range(7)}, legal=lambda knobs: {*knobs.values()} == {1})
    strategy = plain_search(space, 0, history=[History("other", [(1,) * 7], [1.0])])
    assert strategy.ask(4) == [(1,) * 7]
    strategy.tell([(1,) * 7], [took])
    assert strategy.ask(4) == []


def test_a_large_space_of_which_no_point_is_found_to_begin_with_is_refused() -> None:
    space = PlainSpace({f"k{i}": range(1, 11) for i in range(7)}, legal=lambda knobs: False)
    with pytest.raises(EmptySearchSpaceError):
        plain_search(space, 0).ask(1)


def history_of(factor: float) -> History:
    """All points of the space, each so many times as slow as here, or with the order of all of them turned around."""
    points = list(SPACE)
    return History("other", points, [(seconds(p) if factor > 0 else 1.0 / seconds(p)) * abs(factor) for p in points])


def test_the_best_of_a_history_is_measured_first() -> None:
    best = min(map(seconds, SPACE))
    for asked in (searched(plain_search(SPACE, seed, history=[history_of(7.0)]), 3) for seed in range(3)):
        assert min(map(seconds, asked)) == best


@pytest.mark.parametrize("least", [1, 16])
def test_of_a_history_too_short_to_learn_from_the_best_is_measured_first_and_then_points_far_away(least: int) -> None:
    best, second, third, failed = list(SPACE)[100:104]
    history = History("other", [third, best, failed, second], [4.0, 1.0, None, 2.0])
    asked = plain_search(SPACE, 0, history=[history]).ask(16, least=least)
    assert asked[:3] == [best, second, third]
    assert len({*asked}) == len(asked) == max(6, least)


def test_a_history_that_says_the_opposite_is_soon_not_believed() -> None:
    found = [
        [min(map(seconds, searched(plain_search(SPACE, seed, history=h), 40))) for seed in range(3)]
        for h in ([history_of(-1.0)], [])
    ]
    assert np.median(found[0]) <= 1.1 * np.median(found[1])


def test_of_several_histories_the_one_that_guesses_right_is_followed() -> None:
    right, wrong = history_of(7.0), history_of(-1.0)
    found = [
        [min(map(seconds, searched(plain_search(SPACE, seed, history=h), 12))) for seed in range(3)]
        for h in ([wrong, right], [right, wrong], [right])
    ]
    assert max(found[0] + found[1]) <= 1.25 * max(found[2])


def test_history_may_be_of_points_that_this_space_has_not_and_of_none() -> None:
    strange = History("other", [(3, 5, 7, 9, "no"), (8,)], [1e-3, None])
    assert searched(plain_search(SPACE, 0, history=[strange, History("none", [], [])]), 8)
    smaller = PlainSpace({**dict.fromkeys("mnk", TILES[:3]), "warps": [4], "order": ["mn"]})
    assert all(smaller.holds(p) for p in searched(plain_search(smaller, 0, history=[history_of(1.0)]), 8))


def test_workers_that_would_wait_get_as_many_different_points_as_there_are_of_them() -> None:
    strategy = plain_search(SPACE, 0)
    searched(strategy, 8)
    asked = strategy.ask(16, least=8)
    assert len(asked) == len(set(asked)) == 8
    assert len(set(strategy.ask(4, least=4)) - set(asked)) == 4


def test_a_first_batch_is_of_points_far_from_each_other_however_many_they_are() -> None:
    places = {point: SPACE.codes([point])[0] for point in SPACE}
    for seed in range(3):
        asked = [places[p] for p in plain_search(SPACE, seed).ask(16, least=16)]
        assert len(asked) == 16
        assert min((a != b).sum() for i, a in enumerate(asked) for b in asked[:i]) >= 2


def test_covariances_of_many_points_can_be_factored_however_much_more_variance_than_noise_there_is() -> None:
    rng = np.random.default_rng(0)
    points = np.unique(rng.integers(0, 8, (400, 3)), axis=0).astype(np.float32) / 7
    kernel = replace(
        CovarianceKernel.usual(3), weights=np.log([300.0, 0.1, 0.1]), lengths=np.full(3, 1.0), log_noise=-12.0
    )
    described = Described(points, np.zeros((len(points), 2), np.float32))
    covariances = kernel.between(described, described).astype(np.float64)
    assert np.isfinite(np.linalg.cholesky(covariances + kernel.noise * np.eye(len(points)))).all()


def test_covariances_that_rounding_spoils_are_factored_with_more_noise() -> None:
    spoiled = np.ones((4, 4)) - 1e-3 * np.eye(4)
    assert np.isfinite(factored(spoiled, 1e-5)).all()


def test_what_are_no_covariances_is_refused_and_not_tried_for_ever() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        factored(np.diag([1.0, -1e30]), 1e-3)
