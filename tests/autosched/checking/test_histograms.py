"""Distributions that grouped work is timed with: a part of the key, the same at every time, and no part of checks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
import torch

from autosched.backends import spaces
from autosched.backends.backend import Launcher
from autosched.checking import reference
from autosched.checking.histograms import timed_ends
from autosched.checking.trial_data import Failed, TrialData
from autosched.measuring.local.kernel_check import check_once
from search_spaces import InputError, Tensor, Workload, ops
from several_searches import TARGET


def grouped(histogram: str = "") -> Workload:
    return ops.grouped_matmul(4, 64, 32, 16, "float32", histogram=histogram)


OP, SKEWED, ONE_HOT = map(grouped, ("", "skewed", "one_hot"))


def test_a_histogram_is_a_part_of_the_key_and_uniform_the_usual_one() -> None:
    assert len({OP.key, SKEWED.key, ONE_HOT.key}) == 3
    assert {OP.family} == {SKEWED.family, ONE_HOT.family}
    assert grouped("uniform") == OP
    assert SKEWED.label == f"{OP.label} skewed"


def test_records_keep_it() -> None:
    read = Workload.from_json(json.loads(json.dumps(SKEWED.to_json())))
    assert (read, read.key) == (SKEWED, SKEWED.key)
    constant = Tensor("ends", (4,), "int32", constant=True, histogram="skewed")
    assert constant != Tensor("ends", (4,), "int32", constant=True)


def test_it_changes_no_kernel() -> None:
    plain, skewed = spaces.build(OP, TARGET), spaces.build(SKEWED, TARGET)
    schedule = plain.sample(np.random.default_rng(0))
    assert skewed.bind(schedule).program == schedule.program


def test_ends_for_timing_follow_from_the_histogram_alone() -> None:
    ends = {name: timed_ends(grouped(name))[2].tolist() for name in ("uniform", "skewed", "one_hot")}
    assert ends["one_hot"] in [[0] * n + [64] * (4 - n) for n in range(4)]
    assert len({*map(tuple, ends.values())}) == 3
    assert all(given == sorted(given) and given[-1] == 64 for given in ends.values())
    assert torch.equal(timed_ends(OP)[2], timed_ends(OP)[2])
    assert timed_ends(ops.matmul(8, 8, 8)) == {}


def test_checks_are_on_other_ends_than_timing() -> None:
    data = TrialData.drawn(SKEWED, 3, torch.device("cpu"))
    checked = data.operands[SKEWED.canonical.inputs.index(2)].clone()
    with data.as_timed() as on_other_data:
        timed = data.operands[SKEWED.canonical.inputs.index(2)].clone()
    assert on_other_data
    assert torch.equal(timed, timed_ends(SKEWED)[2].int())
    assert checked.tolist() == [16, 32, 48, 64]
    assert torch.equal(data.operands[SKEWED.canonical.inputs.index(2)], checked)
    assert data.inputs.changed() == ()


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (("ends", (4,), "int32", "zipf"), "unknown histogram 'zipf'"),
        (("x", (4,), "float32", "skewed"), r"of x\[4\] float32; expected the ends of segments"),
        (("x", (4, 4), "int32", "skewed"), "expected the ends of segments"),
    ],
)
def test_what_has_no_histogram_is_refused(tensor: tuple[str, tuple[int, ...], str, str], message: str) -> None:
    name, shape, dtype, histogram = tensor
    with pytest.raises(InputError, match=message):
        Tensor(name, shape, dtype, histogram=histogram)


def test_a_kernel_that_is_wrong_for_some_ends_is_found_before_its_first_use() -> None:
    def computed(operands: Sequence[torch.Tensor]) -> None:
        inputs = [operands[OP.canonical.inputs.index(n)] for n in range(3)]
        (right,) = reference.evaluate(OP, [t.double() if t.is_floating_point() else t for t in inputs])
        one_hot = bool((inputs[2] == 0).any())
        operands[3].copy_(right + 1 if one_hot and is_wrong else right)

    # A check only calls it.
    launcher, is_wrong = cast(Launcher, computed), False
    assert check_once(OP, torch.device("cpu"), launcher, 3) <= 1.0
    is_wrong = True
    with pytest.raises(Failed, match="2048 of 2048 elements are wrong"):
        check_once(OP, torch.device("cpu"), launcher, 3)
