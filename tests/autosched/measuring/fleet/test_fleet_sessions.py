"""Sessions of one fleet, for several targets one after the other and at once, on cards of this process."""

from __future__ import annotations

import pytest

from fake_roster import FakeCard, FakeRoster
from search_spaces import InputError, Target, target_named

pytest.importorskip("ray", reason="Ray is not installed: pip install 'autosched[fleet]'")

from autosched.measuring.fleet import cluster
from autosched.measuring.fleet.fleet import Fleet

H200, A100 = target_named("h200"), target_named("a100")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[FakeRoster]:
    """The rosters, as they are opened."""
    found: list[FakeRoster] = []

    def roster(target: Target, location: str) -> FakeRoster:
        found.append(FakeRoster([FakeCard(target.device)]))
        return found[-1]

    monkeypatch.setattr(cluster, "connect", lambda address: None)
    monkeypatch.setattr(cluster, "RayRoster", roster)
    return found


def test_a_search_for_another_target_gets_the_nodes_of_the_one_before(opened: list[FakeRoster]) -> None:
    with Fleet() as fleet:
        for _ in range(2):
            with fleet.session(H200):
                pass
        assert [roster.closed for roster in opened] == [False]
        with fleet.session(A100):
            assert [roster.closed for roster in opened] == [True, False]


def test_of_two_searches_at_once_the_first_keeps_its_nodes_until_it_ends(opened: list[FakeRoster]) -> None:
    with Fleet() as fleet:
        with fleet.session(H200), fleet.session(A100):
            assert [roster.closed for roster in opened] == [False, False]
            with pytest.raises(InputError, match="in use"), fleet.session(H200):
                pass
        with fleet.session(A100):
            assert [roster.closed for roster in opened] == [True, False]
