"""The cost model's knowledge by round: taught what came before, judged by what came then."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from autosched.reporting.analysis.model_rounds import model_rounds
from autosched.reporting.analysis.roofline import position
from autosched.reporting.analysis.tasks import Task
from cost_models.roofline import latency_s
from log_records import H200, record
from made_up_search import TARGET
from search_spaces import Schedule, ops
from searched_logs import BATCH, finals, searched, space
from tuning_logs import OwnKernel


def estimated(schedule: Schedule) -> float:
    return latency_s(space().bind(schedule).program, TARGET, space().backends[schedule.backend])


def by_chance(schedule: Schedule) -> float:
    return 1e-3 + 1e-6 * (zlib.crc32(schedule.one_line.encode()) % 1000)


def test_the_first_round_is_the_estimate_and_the_order_of_latencies_decides() -> None:
    same = model_rounds(Task(Path("x"), tuple(searched(2 * BATCH, estimated))), 100)
    assert [(r.first, r.last, r.judged, r.taught) for r in same] == [(1, 16, 16, 0), (17, 32, 16, 16)]
    assert same[0].correlation == pytest.approx(1.0, abs=0.01)
    opposite = model_rounds(Task(Path("x"), tuple(searched(2 * BATCH, lambda s: 1e-9 / estimated(s)))), 100)
    assert opposite[0].correlation == pytest.approx(-1.0, abs=0.01)
    # Taught the first round, it no longer takes the estimate's word.
    assert opposite[1].correlation > opposite[0].correlation


def test_later_trials_change_no_earlier_round_and_finals_and_trials_beyond_the_limit_are_in_none() -> None:
    trials = searched(4 * BATCH, by_chance)
    short = model_rounds(Task(Path("x"), tuple(trials[: 2 * BATCH])), 100)
    long = model_rounds(Task(Path("x"), (*trials, *finals(trials[:1], [[1e-3]]))), 100)
    assert len(long) == 4
    assert long[:2] == short
    assert model_rounds(Task(Path("x"), tuple(trials)), 2 * BATCH) == short


def test_small_batches_are_one_round_and_schedules_that_are_no_more_are_left_out() -> None:
    failing = iter(range(10 * BATCH))
    trials = searched(2 * BATCH, lambda s: None if next(failing) % 2 else by_chance(s))
    (found,) = model_rounds(Task(Path("x"), tuple(trials)), 100)
    assert (found.first, found.last, found.judged) == (1, 32, 16)
    assert model_rounds(Task(Path("x"), (record(1), record(2))), 100) == []


def test_an_own_kernel_has_neither_rounds_nor_a_roofline() -> None:
    task = Task(Path("x"), (replace(record(1), subject=OwnKernel("k", "f")),))
    assert model_rounds(task, 100) == []
    assert position(task) is None


def test_a_product_stands_under_the_roof_of_its_dots_and_points_under_that_of_memory() -> None:
    product = position(Task(Path("x"), (record(1, 1e-3, ops.matmul(4096, 4096, 4096, dtype="bfloat16")),)))
    assert product is not None
    assert (product.element, product.flops) == ("bfloat16", 2 * 4096**3)
    assert product.peak_flops_per_s == pytest.approx(H200.matrix_flops)
    assert product.of_bound == pytest.approx(2 * 4096**3 / H200.matrix_flops / 1e-3)
    assert product.rate == pytest.approx(2 * 4096**3 / 1e-3)
    assert not product.is_memory_bound
    points = position(Task(Path("x"), (record(1, 1e-3, ops.gelu_scale(2**24)),)))
    assert points is not None
    assert points.is_memory_bound
    assert points.of_bound == pytest.approx(2 * 4 * 2**24 / H200.memory_bytes_per_s / 1e-3)
