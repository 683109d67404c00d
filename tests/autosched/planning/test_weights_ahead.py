"""Weights that are asked for while launches leave the memory idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched.planning.weights_ahead import FEWEST_BYTES, Work, ahead
from search_spaces import target_named

H200 = target_named("h200")
RATE, ROOM = H200.memory_bytes_per_s, int(0.4 * H200.l2_bytes)
MIB = 2**20


def streaming(base: int, size: int, wanted: bool = True) -> Work:
    """A launch that reads all its time."""
    return Work(size / RATE, (((base, 0), size),), wanted)


def computing(seconds: float, *reads: tuple[tuple[int, int], int]) -> Work:
    return Work(seconds, reads)


def test_weights_of_later_launches_come_while_others_compute() -> None:
    (found,) = ahead([streaming(0, 8 * MIB), computing(1e-6), computing(0.5e-6), streaming(1, 512 * MIB)], H200)
    assert (found.after, found.base, found.offset) == (0, 1, 0)
    # Two launches, and the time before each.
    assert found.bytes == pytest.approx(3.5e-6 * RATE, abs=16)


def test_what_is_left_of_the_time_is_that_of_the_next_weights() -> None:
    found = ahead([computing(10e-6), streaming(0, 8 * MIB), streaming(1, 64 * MIB)], H200)
    assert [(x.after, x.base, x.bytes) for x in found] == [(-1, 0, 8 * MIB), (-1, 1, ROOM - 8 * MIB)]


def test_weights_on_their_way_keep_their_room_and_go_on_where_they_ended() -> None:
    work = [computing(1e-6), streaming(0, MIB), computing(1e-3), streaming(1, 12 * MIB), streaming(2, 64 * MIB)]
    found = ahead(work, H200)
    _, second, third, fourth = found
    assert [(x.after, x.base) for x in found] == [(-1, 0), (-1, 1), (1, 1), (1, 2)]
    assert third.offset == second.bytes
    assert second.bytes + third.bytes == 12 * MIB
    assert second.bytes + third.bytes + fourth.bytes == ROOM


def test_what_a_resting_launch_reads_itself_takes_its_time() -> None:
    reading = computing(5e-6, ((7, 0), int(2e-6 * RATE)))
    (found,) = ahead([reading, streaming(0, 512 * MIB)], H200)
    assert found.bytes == pytest.approx(4e-6 * RATE, abs=16)


def test_weights_are_asked_for_only_where_that_is_wanted() -> None:
    assert ahead([computing(1e-5), streaming(0, 8 * MIB, wanted=False)], H200) == []


def test_too_little_to_be_worth_a_node_is_left() -> None:
    assert ahead([computing(0.1e-6 - 1e-6), streaming(0, 8 * MIB)], H200) == []


WORKS = st.builds(
    lambda seconds, sizes, wanted: (seconds * 1e-6, sizes, wanted),
    st.floats(0.1, 40),
    st.lists(st.integers(FEWEST_BYTES, 96 * MIB), max_size=2),
    st.booleans(),
)


@given(st.lists(WORKS, max_size=12))
def test_nothing_is_asked_for_twice_or_beyond_its_end_or_the_room(drawn: list[tuple[float, list[int], bool]]) -> None:
    work = [
        Work(seconds, tuple(((10 * number + read, 0), size) for read, size in enumerate(sizes)), wanted)
        for number, (seconds, sizes, wanted) in enumerate(drawn)
    ]
    sizes = {place: size for each in work if each.ahead for place, size in each.reads}
    begun = dict.fromkeys(sizes, 0)
    for each in ahead(work, H200):
        place = (each.base, 0)
        assert each.offset == begun[place]
        assert each.base // 10 > each.after + 1
        begun[place] += each.bytes
        assert begun[place] <= sizes[place]
        on_its_way = sum(count for (base, _), count in begun.items() if base // 10 > each.after)
        assert on_its_way <= ROOM
