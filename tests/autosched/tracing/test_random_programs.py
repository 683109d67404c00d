"""Random programs, a few of them; thousands on demand: `python tests/figures/programs.py --programs 3000`."""

from __future__ import annotations

import functools

import pytest

from autosched.machine.devices import cpu_target
from program_check import Finding, check
from random_programs import generate

# Those before take longest to compile.
_SEEDS = range(4, 16)
_GOOD = ("right", "refused", "no_program")


@functools.cache
def finding(seed: int) -> Finding:
    return check(generate(seed), cpu_target(), schedules=1)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_random_program_comes_out_right_or_is_refused(seed: int) -> None:
    found = finding(seed)
    assert found.kind in _GOOD, f"{generate(seed)}\n{found.kind}: {found.detail}"


def test_most_random_programs_are_not_refused() -> None:
    assert sum(finding(seed).kind == "right" for seed in _SEEDS) > 0.6 * len(_SEEDS)


def test_a_seed_makes_the_same_program_again() -> None:
    assert all(str(generate(seed)) == str(generate(seed)) for seed in range(8))
