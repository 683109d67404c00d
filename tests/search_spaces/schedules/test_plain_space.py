"""Spaces of knobs, values and a rule: what is legal, how points are drawn and changed, and what models see of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from search_spaces import EmptySearchSpaceError, InputError
from search_spaces.schedules.plain_space import PlainSpace, PlainValue

KNOBS: dict[str, list[PlainValue]] = {"tile": [16, 32, 64], "warps": [1, 2, 4, 8], "order": ["mn", "nm"]}


def small(values: Mapping[str, PlainValue]) -> bool:
    return int(str(values["tile"])) * int(str(values["warps"])) <= 128


def test_the_points_are_the_combinations_that_the_rule_accepts() -> None:
    space = PlainSpace(KNOBS, small)
    assert len(list(space)) == 2 * (4 + 3 + 2)
    assert all(space.holds(point) for point in space)
    assert not space.holds((64, 8, "mn"))
    assert not space.holds((16, 3, "mn"))
    assert not space.holds((16, 4))


def test_listed_configurations_are_the_space() -> None:
    space = PlainSpace(KNOBS, configurations=[[16, 1, "mn"], [64, 8, "nm"], [16, 1, "mn"]])
    assert list(space) == [(16, 1, "mn"), (64, 8, "nm")]
    assert not space.holds((16, 1, "nm"))


@pytest.mark.parametrize("knobs", [KNOBS, {f"k{i}": list(range(1, 11)) for i in range(12)}], ids=["listed", "10^12"])
def test_draws_changes_and_neighbours_are_legal(knobs: dict[str, list[PlainValue]]) -> None:
    def legal(values: Mapping[str, PlainValue]) -> bool:
        first, second, *_ = values.values()
        return int(str(first)) + int(str(second)) != 10

    space, rng = PlainSpace(knobs, legal), np.random.default_rng(0)
    a, b = space.sample(rng), space.sample(rng)
    found = [space.mutate(a, rng), space.crossover(a, b, rng), *space.neighbours(a)]
    assert all(space.holds(point) for point in found)
    assert all(sum(x != y for x, y in zip(a, near, strict=True)) == 1 for near in space.neighbours(a))


def test_features_are_logarithms_of_positive_numbers_and_a_column_for_each_word() -> None:
    space = PlainSpace({"tile": [16, 32, 64], "pad": [0, 3], "order": ["a", "b", "c"], "fixed": [7]})
    assert space.features([(64, 3, "b", 7), (32, 0, "c", 7)]).tolist() == [[1, 1, 0, 1, 0], [0.5, 0, 0, 0, 1]]


def test_of_many_numbers_models_see_by_how_many_twos_they_can_be_divided() -> None:
    space = PlainSpace({"block": [32, 48, 64, 80, 96, 112]})
    twos = space.features([(point,) for point in (32, 48, 64, 80)])[:, 1]
    assert twos.tolist() == [0.5, 0, 1, 0]


@pytest.mark.parametrize("values", [[10**400, 1, -(10**400)], [10**18 + 1, 10**18 + 2, 10**18], [1e308, 0.0, -1e308]])
def test_numbers_that_floating_point_cannot_tell_apart_are_told_by_their_order(values: list[PlainValue]) -> None:
    first, second, third = PlainSpace({"size": values}).features([(value,) for value in values]).tolist()
    assert sorted([first, second, third]) == [[0.0], [0.5], [1.0]]


def test_true_is_another_value_than_one_and_a_list_of_json_is_a_tuple() -> None:
    space = PlainSpace({"flag": [True], "tile": [[16, 16], [32, 8]]}, configurations=[[True, [16, 16]]])
    assert list(space) == [(True, (16, 16))]
    assert not space.holds((1, (16, 16)))


def test_a_value_that_equals_one_of_the_space_is_read_as_that() -> None:
    space = PlainSpace({"tile": [16, 32], "fast": [True, False]})
    (tile, fast) = space.read([16.0, True])
    assert (type(tile), fast) == (int, True)
    assert space.read([1, 1]) == (1, 1)


def test_of_a_knob_of_many_values_the_nearest_are_neighbours_and_some_far_away() -> None:
    numbers: list[PlainValue] = [*range(1, 5000)]
    numbers = numbers[::2] + numbers[1::2]
    near = {int(str(n)) for (n,) in PlainSpace({"n": numbers}).neighbours((2500,))}
    assert {*range(2490, 2511)} - near == {2500}
    assert len(near) < 200
    assert min(near) < 500
    assert max(near) > 4500


def test_nothing_can_be_drawn_from_an_empty_space() -> None:
    for space in (PlainSpace(KNOBS, lambda values: False), PlainSpace(KNOBS, configurations=[])):
        assert list(space) == []
        with pytest.raises(EmptySearchSpaceError, match="tile, warps, order"):
            space.sample(np.random.default_rng(0))


def test_a_space_of_one_point_has_no_neighbours() -> None:
    space, rng = PlainSpace({"tile": [16]}), np.random.default_rng(0)
    assert space.sample(rng) == (16,) == space.mutate((16,), rng)
    assert list(space.neighbours((16,))) == []


@pytest.mark.parametrize(
    ("knobs", "configurations", "message"),
    [
        ({"tile": []}, None, "knob tile: expected one value or more"),
        ({"tile": [16, 16]}, None, "each once"),
        ({"fast": [1, True]}, None, "each once, for Python"),
        ({"scale": [1.0, math.inf]}, None, "knob scale: expected finite numbers"),
        ({"scale": [math.nan]}, None, "expected finite numbers"),
        ({"scales": [(1.0, math.nan), (1.0, 2.0)]}, None, "expected finite numbers"),
        ({"tile": [16]}, [[32]], "tile=32 is not one of its values"),
        ({"tile": [16]}, [[16, 1]], "expected a value for each of tile"),
    ],
)
def test_knobs_and_configurations_that_do_not_fit_are_refused(
    knobs: dict[str, list[PlainValue]], configurations: list[list[PlainValue]] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        PlainSpace(knobs, configurations=configurations)
