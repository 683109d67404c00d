"""Random programs, a few of them; thousands on demand: `python tests/figures_programs.py --programs 3000`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autosched.devices import cpu_target

sys.path.append(str(Path(__file__).parent))
from program_check import check
from random_programs import generate

_PROGRAMS = 32
_GOOD = ("right", "refused", "no_program")


@pytest.mark.parametrize("seed", range(_PROGRAMS))
def test_a_random_program_comes_out_right_or_is_refused(seed: int) -> None:
    program = generate(seed)
    finding = check(program, cpu_target(), schedules=1)
    assert finding.kind in _GOOD, f"{program}\n{finding.kind}: {finding.detail}"


def test_most_random_programs_are_not_refused() -> None:
    kinds = [check(generate(seed), cpu_target(), schedules=0).kind for seed in range(_PROGRAMS)]
    assert kinds.count("right") > 0.6 * len(kinds)


def test_a_seed_makes_the_same_program_again() -> None:
    assert all(str(generate(seed)) == str(generate(seed)) for seed in range(8))
