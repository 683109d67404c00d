"""The search core on whatever a user's space and its times may be: it never warns, repeats itself or loses its way."""

from __future__ import annotations

import math
from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest

from autosched.strategies.bayesian import plain_search
from search_spaces.schedules.plain_space import PlainSpace, PlainValue, Point

TILES: list[PlainValue] = [1, 2, 4, 8, 16, 32]
SPACE = PlainSpace({"m": TILES, "n": TILES, "k": TILES, "staged": [0, 1]})

Seconds = Callable[[Point], float | None]


def numbers(point: Point) -> list[float]:
    return [float(str(value)) for value in point]


def valley(point: Point) -> float:
    """Around 8 x 8 x 8, not staged."""
    *tiles, staged = numbers(point)
    return 1e-3 * (1.0 + sum((math.log2(tile) - 3) ** 2 for tile in tiles) + staged)


def by_chance(point: Point) -> float:
    """A number from 0 to 1 for every point, without any order."""
    return float(np.random.default_rng([int(10 * value) for value in numbers(point)]).random())


def searched(space: PlainSpace, seconds: Seconds, budget: int, seed: int = 0, count: int = 16) -> list[Point]:
    """The points that were asked for, in order; nothing may divide by zero or overflow on the way."""
    asked: list[Point] = []
    strategy = plain_search(space, seed)
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        while len(asked) < budget and (points := strategy.ask(min(count, budget - len(asked)))):
            strategy.tell(points, [seconds(p) for p in points])
            asked += points
    assert len(set(asked)) == len(asked)
    return asked


TIMES: dict[str, Seconds] = {
    "all alike": lambda p: 1e-3,
    "two times": lambda p: 2e-3 if p[0] == 8 else 1e-3,
    "one knob matters": lambda p: 1e-3 * (1.0 + abs(numbers(p)[0] - 16.0)),
    "no knob matters": lambda p: 1e-3 * (1.0 + by_chance(p)),
    "600 powers of ten": lambda p: 10.0 ** (-300.0 + 40.0 * sum(math.log2(v) for v in numbers(p)[:3])),
    "of twenty one succeeds": lambda p: valley(p) if by_chance(p) < 0.05 else None,
    "one succeeds": lambda p: 1e-3 if p == (4, 4, 4, 0) else None,
    "large tiles fail": lambda p: None if math.prod(numbers(p)[:3]) > 128 else valley(p),
}


@pytest.mark.parametrize("times", TIMES)
def test_it_goes_on_to_the_end_of_the_budget_whatever_the_times_are(times: str) -> None:
    assert len(searched(SPACE, TIMES[times], 120, seed=1)) == 120


SPACES: dict[str, PlainSpace] = {
    "two points": PlainSpace({"m": [1, 2]}),
    "words": PlainSpace({"order": list("abcdefgh"), "kind": ["x", "y", "z"], "flag": [True, False]}),
    "many words": PlainSpace({"order": [f"v{i}" for i in range(12)], "kind": [f"v{i}" for i in range(5)]}),
    "all kinds of values": PlainSpace({"a": [1, "x", None, 2.5], "b": [True, 2, "1"], "c": [(1, 2), (2, 1)]}),
    "numbers beyond floating point": PlainSpace(
        {"a": [10**400, 1, 2], "b": [10**18, 10**18 + 1], "c": [-1e308, 1e308]}
    ),
    "large and small numbers": PlainSpace({"a": [1e-9, 1, 10**18], "b": [-(10**12), 0, 10**12], "c": [0.1, 0.1000001]}),
}


@pytest.mark.parametrize("space", SPACES)
def test_a_space_of_any_values_is_searched_to_its_end(space: str) -> None:
    place = {point: row for row, point in enumerate(SPACES[space])}
    asked = searched(SPACES[space], lambda p: 1e-3 * (1 + place[p] % 7), 100)
    assert {*asked} == {*place}


def test_a_hundred_thousand_points_are_searched() -> None:
    sizes: list[PlainValue] = [*range(1, 65)]
    space = PlainSpace({"m": sizes, "n": sizes, "k": [1, 2, 4, 8, 16], "unroll": TILES[:5]})
    asked = searched(space, lambda p: 1e-3 * (1 + sum(abs(math.log(v / 8.0)) for v in numbers(p))), 24)
    assert len(asked) == 24


def test_names_and_order_of_knobs_and_the_unit_of_times_do_not_change_what_is_asked_for() -> None:
    turned = PlainSpace(
        {f"x{i}": values for i, values in enumerate(SPACE.values[::-1])}, configurations=[p[::-1] for p in SPACE]
    )
    asked = searched(SPACE, valley, 25, count=1)
    assert [p[::-1] for p in searched(turned, lambda p: 1e3 * valley(p[::-1]), 25, count=1)] == asked


def test_of_what_was_told_beyond_some_hundreds_only_a_part_is_learnt_from() -> None:
    strategy, points = plain_search(SPACE, 0), list(SPACE)
    known = points[::2]
    with mock.patch("autosched.strategies.bayesian.search._MOST_LEARNT", 40):
        strategy.tell(known, [TIMES["large tiles fail"](p) for p in known])
        for _ in range(6):
            asked = strategy.ask(8, least=8)
            assert len({*asked} - {*known}) == 8
            strategy.tell(asked, [TIMES["large tiles fail"](p) for p in asked])
            known += asked
