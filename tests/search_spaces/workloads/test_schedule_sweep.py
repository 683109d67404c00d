"""A few random workloads on the CPU. For more: tests/support/programs/sweep_schedules.py."""

from __future__ import annotations

import pytest

from random_workloads import random_workload
from schedule_checks import faults

# Together they have every structure, type and way of lying in memory that is drawn.
SEEDS = range(16)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_schedules_of_a_random_workload_are_right(seed: int) -> None:
    assert not faults(random_workload(seed), samples=2, seed=seed)


def test_a_seed_always_gives_the_same_workload() -> None:
    assert random_workload(7) == random_workload(7)
    assert len({random_workload(seed).key for seed in SEEDS}) == len(SEEDS)
