"""A search whose trials are timed over several histograms chooses what is good for each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched.checking.histograms import timed_ends
from autosched.tuning.tuner import tune
from search_spaces import Schedule, Workload, ops, target_named
from segments_measurer import SegmentsMeasurer, made_up_latency

TRIALS = 16


def grouped(histogram: str = "") -> Workload:
    """Experts with 8 rows each on average, or one with 1024."""
    return ops.grouped_matmul(128, 1024, 1536, 2048, histogram=histogram)


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Schedule]:
    """The choice of a short search by the histogram that it was timed with."""
    return {name: search(name, tmp_path_factory.mktemp("logs") / "log.jsonl") for name in ("", "uniform")}


def search(histogram: str, log: Path) -> Schedule:
    result = tune(
        grouped(histogram),
        target_named("h200"),
        TRIALS,
        backend="triton",
        cost_model="random",
        measurer=SegmentsMeasurer(),
        log=log,
    )
    assert result.best is not None
    return result.best.schedule


def latencies(schedule: Schedule) -> dict[str, float]:
    return {name: made_up_latency(grouped(), schedule, given[2]) for name, given in timed_ends(grouped()).items()}


def test_a_choice_by_all_histograms_loses_little_with_any(chosen: dict[str, Schedule]) -> None:
    of_all, of_one = latencies(chosen[""]), latencies(chosen["uniform"])
    assert of_all["uniform"] < 1.05 * of_one["uniform"]
    assert of_all["skewed"] < 1.05 * of_one["skewed"]
    assert of_all["one_hot"] < 0.6 * of_one["one_hot"]


def test_that_choice_has_a_kernel_of_long_segments(chosen: dict[str, Schedule]) -> None:
    assert chosen[""].knobs["long"]
    assert not chosen["uniform"].knobs["long"]
