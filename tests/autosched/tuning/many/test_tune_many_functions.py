"""Functions of several kernels: in which order these are tuned, in which ways to cut them, and what is told of that."""

from __future__ import annotations

import zlib
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
import torch

import autosched
from cost_models import bound_s
from search_spaces import Schedule, Workload
from several_searches import TARGET, FakeMeasurer, apart, search, softmax_and_sum, tune_apart
from tuning_logs import Measurement


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tuning.jsonl"


class Alike(FakeMeasurer):
    """All workloads take the same: what is launched twice takes twice as long."""

    def _one(self, workload: Workload, schedule: Schedule) -> Measurement:
        return Measurement("ok", (1e-5 + 1e-9 * (zlib.crc32(schedule.one_line.encode()) % 100),))


class AtTheRoofline(FakeMeasurer):
    """Nothing can be any faster."""

    def _one(self, workload: Workload, schedule: Schedule) -> Measurement:
        return Measurement("ok", (float(f"{bound_s(workload, TARGET):.6g}"),))


class BySums(FakeMeasurer):
    """A kernel of one sum is ten times as fast as one of several."""

    def _one(self, workload: Workload, schedule: Schedule) -> Measurement:
        return Measurement("ok", (1e-5 if sum(bool(s.reduction) for s in workload.stages) == 1 else 1e-4,))


def test_a_way_to_cut_a_function_that_was_not_tried_is_nothing_left_out(log: Path) -> None:
    traced = autosched.trace(softmax_and_sum, torch.empty(64, 256))
    result = search(log, AtTheRoofline(), 64, traced)
    assert any(s.result.best is None for s in result.spent)
    assert result.without_kernel == ()


def test_a_kernel_of_a_function_counts_for_every_launch(log: Path) -> None:
    def twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.relu(x @ w) @ w)

    traced = autosched.trace(twice, torch.empty(64, 64), torch.empty(64, 64))
    result = search(log, BySums(), 32, (traced, 3.0))
    (found,) = result.results
    assert isinstance(found, autosched.TracedTuneResult)
    assert max(s.weight for s in result.spent) == 6.0
    assert found.latency_s is not None
    assert result.weighted_s == pytest.approx(3 * found.latency_s)


def test_a_way_to_cut_a_function_that_is_clearly_slower_gets_no_more_trials(log: Path) -> None:
    traced = autosched.trace(softmax_and_sum, torch.empty(64, 256))
    assert [len(cut.workloads) for cut in traced.cuts] == [1, 2]
    result = search(log, Alike(), 240, traced)
    together, *apart = result.spent
    assert [s.weight for s in apart] == [0.0, 0.0]
    assert together.result.trials_done >= 240 - 32
    assert result.weighted_s == together.weighted_s


def test_a_way_to_cut_a_function_whose_roofline_is_slower_is_not_tried(log: Path) -> None:
    result = search(log, AtTheRoofline(), 64, autosched.trace(softmax_and_sum, torch.empty(64, 256)))
    assert [s.result.trials_done for s in result.spent] == [64, 0, 0]


def test_each_function_has_kernels_before_other_cuts_of_one_that_weighs_more_are_tried(log: Path) -> None:
    heavy = autosched.trace(softmax_and_sum, torch.empty(64, 256))
    light = autosched.trace(lambda x: torch.relu(x), torch.empty(64, 256))
    result = search(log, BySums(), 96, (heavy, 1000.0), (light, 1.0))
    first = {s.result.workload.label: s.turns[0].number for s in result.spent if s.turns}
    assert max(first[w.label] for f in (heavy, light) for w in f.cuts[0].workloads) < max(first.values())


def test_all_kernels_of_a_traced_function_are_given_the_trials_each(log: Path) -> None:
    traced = autosched.trace(apart, torch.empty(64, 128), torch.empty(128, 32))
    result = autosched.tune(
        traced, TARGET, 20, log=log, measurer=FakeMeasurer(), strategy="random", cost_model="random"
    )
    assert len(result.results) > 1
    assert {r.trials_known + r.trials_done for r in result.results if r.ending != "exhausted"} == {20}


def test_the_kernels_of_a_traced_function_take_turns(log: Path) -> None:
    measurer = FakeMeasurer()
    tune_apart(log, 64, measurer)
    keys = [workload.key for workload in measurer.submitted]
    assert sum(before != after for before, after in pairwise(keys)) > 2


def test_the_report_of_a_traced_function_says_where_the_trials_went_and_why(log: Path) -> None:
    result = tune_apart(log, 64, FakeMeasurer())
    where, turns, *_ = result.report.split("\n\n")
    assert [line.split()[0] for line in where.splitlines()[1:]] == [
        s.result.workload.label.split()[0] for s in result.spent
    ]
    assert "1 first" in where
    assert len(turns.splitlines()) == 1 + sum(len(s.turns) for s in result.spent)


def test_the_report_of_a_traced_function_that_was_known_says_so(log: Path) -> None:
    tune_apart(log, 16, FakeMeasurer())
    again = tune_apart(log, 16, cast(FakeMeasurer, object()))
    assert [(s.result.trials_done, s.result.trials_known, s.turns) for s in again.spent] == [(0, 16, ())] * 2
    assert "16" in again.report


def test_a_function_that_pytorch_computes_all_of_has_no_kernel_and_refuses_nothing(log: Path) -> None:
    traced = autosched.trace(torch.linalg.inv, torch.empty(8, 8), allow_fallback=True)
    result = search(log, FakeMeasurer(), 32, traced)
    assert (result.spent, result.refused, result.without_kernel) == ((), (), ())
    assert str(result).startswith("0 kernels on")
