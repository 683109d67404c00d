"""Distributions that work on segments is timed with: the same at every time, and others than those of checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pytest
import torch

from autosched.backends import spaces
from autosched.backends.backend import Launcher
from autosched.checking import reference
from autosched.checking.histograms import timed_ends
from autosched.checking.trial_data import Failed, TrialData
from autosched.machine.mean_timer import MeanTimer
from autosched.machine.timing import Run
from autosched.measuring.local.kernel_check import check_once
from search_spaces import InputError, Tensor, Workload, ops
from search_spaces.workloads.stages import HISTOGRAMS
from segmented_workloads import jagged_fold, jagged_scale, segmented_attention
from several_searches import TARGET


def grouped(histogram: str = "") -> Workload:
    return ops.grouped_matmul(4, 64, 32, 16, "float32", histogram=histogram)


OP, SKEWED = grouped(), grouped("skewed")
# The number of the ends among the inputs.
ENDS = 2


class Counting:
    """A timer by which every call takes the sum of the ends, in seconds."""

    slowdown = 1.0

    def __init__(self, ends: torch.Tensor) -> None:
        self._ends = ends

    def sample(self, runs: Sequence[Run]) -> list[float]:
        return [float(self._ends.sum())] * len(runs)


def test_a_histogram_is_a_part_of_the_key() -> None:
    named = [grouped(name) for name in HISTOGRAMS]
    assert len({OP.key, *(one.key for one in named)}) == 4
    assert {OP.family} == {one.family for one in named}
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


def test_ends_for_timing_are_those_of_the_histogram_or_of_all() -> None:
    ends = {name: given[ENDS].tolist() for name, given in timed_ends(OP).items()}
    assert tuple(ends) == HISTOGRAMS
    assert ends["one_hot"] in [[0] * n + [64] * (4 - n) for n in range(4)]
    assert len({*map(tuple, ends.values())}) == 3
    assert all(given == sorted(given) and given[-1] == 64 for given in ends.values())
    for name, given in ends.items():
        ((only, alone),) = timed_ends(grouped(name)).items()
        assert (only, alone[ENDS].tolist()) == (name, given)
    assert timed_ends(ops.matmul(8, 8, 8)) == {}


@pytest.mark.parametrize(
    ("made", "timed"),
    [
        (jagged_scale, HISTOGRAMS),
        (jagged_fold, HISTOGRAMS[:2]),
        (segmented_attention, HISTOGRAMS[:2]),
        (lambda: ops.grouped_matmul(4, 64, 32, 16, ragged="k"), HISTOGRAMS[:2]),
        (lambda: ops.varlen_attention(32, 2, 8, 4, histogram="one_hot"), ("one_hot",)),
        (lambda: ops.block_sparse_matmul(32, 32, 32, 7, 8, histogram="uniform"), ("uniform",)),
    ],
)
def test_one_range_with_everything_is_timed_where_it_is_asked_for(
    made: Callable[[], Workload], timed: tuple[str, ...]
) -> None:
    assert tuple(timed_ends(made())) == timed


def test_one_latency_is_the_geometric_mean_over_all_ends() -> None:
    data = TrialData.drawn(OP, 3, torch.device("cpu"))
    ends = data.inputs.tensors[ENDS]
    checked = ends.clone()
    assert checked.tolist() == [16, 32, 48, 64]
    plain, sums = Counting(ends), {name: float(given[ENDS].sum()) for name, given in timed_ends(OP).items()}

    def run() -> None:
        """Nothing to time."""

    with data.timed_by(plain) as timer:
        taken = timer.sample([run, run])
        assert isinstance(timer, MeanTimer)
        assert timer.medians_s(run) == sums
    assert taken == pytest.approx([np.prod(list(sums.values())) ** (1 / 3)] * 2)
    assert torch.equal(ends, checked)
    assert data.inputs.changed() == ()
    with TrialData.drawn(ops.softmax(4, 8), 0, torch.device("cpu")).timed_by(plain) as same:
        assert same is plain


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


# Wrong where a segment is empty, where one has everything, where all are equal, and where they are not.
WRONG_FOR: dict[str, Callable[[torch.Tensor], bool]] = {
    "empty": lambda lengths: bool((lengths == 0).any()),
    "everything": lambda lengths: bool((lengths == 64).any()),
    "equal": lambda lengths: bool((lengths == 16).all()),
    "uneven": lambda lengths: bool(len(lengths.unique()) == 4),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", WRONG_FOR)
def test_a_kernel_that_is_wrong_for_some_ends_is_found_by_every_check(kind: str, seed: int) -> None:
    def computed(operands: Sequence[torch.Tensor]) -> None:
        inputs = [operands[OP.canonical.inputs.index(n)] for n in range(3)]
        (right,) = reference.evaluate(OP, [t.double() if t.is_floating_point() else t for t in inputs])
        spoils = WRONG_FOR[kind](inputs[ENDS].diff(prepend=inputs[ENDS].new_zeros(1)))
        operands[3].copy_(right + 1 if spoils and is_wrong else right)

    # A check only calls it.
    launcher, is_wrong = cast(Launcher, computed), False
    assert check_once(OP, torch.device("cpu"), launcher, seed) <= 1.0
    is_wrong = True
    with pytest.raises(Failed, match="2048 of 2048 elements are wrong"):
        check_once(OP, torch.device("cpu"), launcher, seed)


def test_earlier_records_of_like_lengths_alone_are_of_another_key() -> None:
    assert grouped().key != "df65bbd26d33dbb3"
    assert len({grouped(name).key for name in ("", *HISTOGRAMS)}) == 1 + len(HISTOGRAMS)
