"""Finals: who drops out, when they end, and what a candidate that breaks them costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from autosched.measuring.local.finals import Finals, hold
from autosched.measuring.local.jobs import Standings

ROUNDS = 15


class Track:
    """Holds contests among candidates of known latency, with noise; some cannot run, or not with others."""

    def __init__(self, latencies_s: Sequence[float], noise: float, broken: Sequence[int] = ()) -> None:
        self._latencies_s = latencies_s
        self._noise = noise
        self._broken = set(broken)
        self._rng = np.random.default_rng(0)
        self.held: list[list[int]] = []

    def __call__(self, numbers: Sequence[int], rounds: int) -> Standings:
        self.held.append(list(numbers))
        if self._broken & set(numbers):
            return Standings((), "crash: exit code 9")
        noise = self._rng.normal(1.0, self._noise, (len(numbers), rounds))
        taken = (tuple(self._latencies_s[n] * noise[i]) for i, n in enumerate(numbers))
        return Standings(tuple(taken))


def test_a_clear_winner_takes_one_contest() -> None:
    track = Track([1.0, 2.0, 3.0], noise=0.01)
    finals = hold([0, 1, 2], ROUNDS, track)
    assert track.held == [[0, 1, 2]]
    assert [len(taken) for taken in finals.latencies_s.values()] == [ROUNDS] * 3
    assert finals.winner == 0


def test_who_is_clearly_slower_drops_out_and_the_others_go_on() -> None:
    track = Track([1.0, 1.01, 1.5, 2.0], noise=0.03)
    finals = hold([0, 1, 2, 3], ROUNDS, track)
    assert track.held[0] == [0, 1, 2, 3]
    assert all(numbers == [0, 1] for numbers in track.held[1:])
    assert len(track.held) > 1
    assert len(finals.latencies_s[2]) == len(finals.latencies_s[3]) == ROUNDS
    assert len(finals.latencies_s[0]) == len(finals.latencies_s[1]) == ROUNDS * len(track.held)
    assert finals.winner in (0, 1)


def test_what_noise_hides_is_a_tie_after_eight_contests() -> None:
    held = 0

    def by_turns(numbers: Sequence[int], rounds: int) -> Standings:
        nonlocal held
        held += 1
        return Standings((tuple(1.0 for _ in range(rounds)), tuple(0.9 + 0.2 * (i % 2) for i in range(rounds))))

    finals = hold([0, 1], ROUNDS, by_turns)
    assert held == 8
    assert finals.winner == 0


def test_who_spoils_the_contest_is_found_out_alone_and_the_others_go_on() -> None:
    track = Track([1.0, 1.0, 2.0], noise=0.01, broken=[1])
    finals = hold([0, 1, 2], ROUNDS, track)
    assert track.held == [[0, 1, 2], [0], [1], [2], [0, 2]]
    assert finals.failures == {1: "crash: exit code 9"}
    assert list(finals.latencies_s) == [0, 2]


@pytest.mark.parametrize("candidates", [[], [0]])
def test_without_candidates_that_can_run_there_are_no_latencies(candidates: list[int]) -> None:
    assert not hold(candidates, ROUNDS, Track([1.0], noise=0.01, broken=[0])).latencies_s


def test_the_runner_up_is_the_fastest_of_those_that_took_part_longest() -> None:
    assert Finals({0: (1.0, 1.0), 1: (1.5,), 2: (3.0, 3.0), 3: (2.0, 2.0)}).runner_up == 3
    assert Finals({0: (1.0, 1.0), 1: (1.5,)}).runner_up == 1
    assert Finals({4: (1.0,)}).runner_up is None
