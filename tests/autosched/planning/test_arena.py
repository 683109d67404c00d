"""Buffers in shared memory by their lifetimes."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from autosched.planning.arena import ALIGNMENT_BYTES, Lifetime, aligned, arranged

KIB = 1024
SIZES = st.integers(0, 8 * KIB)


@st.composite
def lifetimes(draw: st.DrawFn) -> Lifetime:
    first = draw(st.integers(0, 20))
    return Lifetime(draw(SIZES), first, first + draw(st.integers(0, 8)))


@given(st.lists(lifetimes(), max_size=25), st.lists(lifetimes(), max_size=4))
def test_no_two_buffers_overlap_in_memory_while_both_are_in_use(buffers: list[Lifetime], rooms: list[Lifetime]) -> None:
    found = arranged(buffers, rooms)
    inside = [(room, offset, b) for (room, offset), b in zip(found.places, buffers, strict=True)]
    whole = [(n, 0, room) for n, room in enumerate(rooms)]
    for (room, begin, a), (other, start, b) in itertools.combinations([*inside, *whole], 2):
        if room == other and a.meets(b):
            assert begin + a.bytes <= start or start + b.bytes <= begin
    for room, begin, buffer in inside:
        assert begin % ALIGNMENT_BYTES == 0
        assert begin + buffer.bytes <= (found.arena_bytes if room is None else rooms[room].bytes)


@given(st.lists(lifetimes(), max_size=25))
def test_the_arena_is_as_large_as_what_lives_at_once_and_no_larger_than_the_sum(buffers: list[Lifetime]) -> None:
    needed = [sum(aligned(b.bytes) for b in buffers if b.first <= step <= b.last) for step in range(30)]
    assert max(needed) <= arranged(buffers).arena_bytes <= sum(aligned(b.bytes) for b in buffers)


def test_a_chain_takes_two_buffers() -> None:
    chain = [Lifetime(4 * KIB, n, n + 1) for n in range(12)]
    assert arranged(chain).arena_bytes == 8 * KIB


def test_memory_of_a_result_serves_before_it_is_written() -> None:
    chain, result = [Lifetime(4 * KIB, n, n + 1) for n in range(3)], Lifetime(4 * KIB, 3, 9)
    found = arranged(chain, [result])
    assert found.arena_bytes == 4 * KIB
    assert {room for room, _ in found.places} == {None, 0}
