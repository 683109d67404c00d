"""Grids visit every tile once, in the order that they name."""

from __future__ import annotations

import pytest

from search_spaces.programs.grid import Grid, GridAxis

AXES = (GridAxis("b", 2), GridAxis("m", 5), GridAxis("n", 3))


@pytest.mark.parametrize("group", [None, ("m", 1), ("m", 2), ("m", 5), ("m", 8)])
def test_every_tile_is_visited_once(group: tuple[str, int] | None) -> None:
    visited = [tuple(p[a.variable] for a in AXES) for p in Grid(AXES, group).order()]
    assert len(visited) == len(set(visited)) == 30
    assert set(visited) == {(b, m, n) for b in range(2) for m in range(5) for n in range(3)}


def test_a_group_is_walked_column_by_column() -> None:
    order = [(p["m"], p["n"]) for p in Grid(AXES[1:], ("m", 2)).order()]
    assert order[:6] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    # The last group is the smaller rest.
    assert order[12:] == [(4, 0), (4, 1), (4, 2)]


def test_a_persistent_grid_launches_no_more_programs_than_tiles() -> None:
    assert Grid(AXES, persistent=8).programs == 8
    assert Grid(AXES, persistent=132).programs == 30
