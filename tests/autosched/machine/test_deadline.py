"""Deadlines, by a clock that is set."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from autosched.machine.deadline import NEVER, Deadline


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_time_left_ends_at_the_deadline() -> None:
    clock = Clock()
    deadline = Deadline.after(8.0, clock)
    clock.now += 5
    assert (deadline.left_s, deadline.over) == (3.0, False)
    clock.now += 5
    assert (deadline.left_s, deadline.over) == (0.0, True)


def test_a_part_is_one_of_the_time_left() -> None:
    clock = Clock()
    deadline = Deadline.after(8.0, clock)
    clock.now += 4
    assert deadline.part(0.25).left_s == 1.0
    assert deadline.within(3.0).left_s == 3.0
    assert deadline.within(5.0).left_s == 4.0


@pytest.mark.parametrize("deadline", [Deadline.after(None), NEVER.part(0.5)])
def test_without_a_limit_there_is_always_time(deadline: Deadline) -> None:
    assert deadline.left_s == math.inf
    assert not deadline.over
    assert deadline.within(2.0).left_s <= 2.0
