"""A search whose trials are timed over several histograms chooses what is good for each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched.checking.histograms import timed_ends
from autosched.tuning.results import TuneResult
from autosched.tuning.tuner import tune
from search_spaces import Schedule, Workload, ops, target_named
from segments_measurer import SegmentsMeasurer, made_up_latency
from tuning_logs.text import duration_text

TRIALS = 24


def grouped(histogram: str = "") -> Workload:
    """Experts with 8 rows each on average, or one with 1024."""
    return ops.grouped_matmul(128, 1024, 1536, 2048, histogram=histogram)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TuneResult]:
    """A short search by the histogram that it was timed with."""
    return {name: search(name, tmp_path_factory.mktemp("logs") / "log.jsonl") for name in ("", "uniform")}


def search(histogram: str, log: Path) -> TuneResult:
    return tune(
        grouped(histogram),
        target_named("h200"),
        TRIALS,
        backend="triton",
        cost_model="random",
        measurer=SegmentsMeasurer(),
        log=log,
    )


def chosen(result: TuneResult) -> Schedule:
    assert result.best is not None
    return result.best.schedule


def latencies(result: TuneResult) -> dict[str, float]:
    schedule, ends = chosen(result), timed_ends(grouped())
    return {name: made_up_latency(grouped(), schedule, given[2]) for name, given in ends.items()}


def test_a_choice_by_all_histograms_loses_little_with_any(found: dict[str, TuneResult]) -> None:
    of_all, of_one = latencies(found[""]), latencies(found["uniform"])
    assert of_all["uniform"] < 1.05 * of_one["uniform"]
    assert of_all["skewed"] < 1.05 * of_one["skewed"]
    assert of_all["one_hot"] < 0.6 * of_one["one_hot"]


def test_that_choice_has_tiles_of_more_rows(found: dict[str, TuneResult]) -> None:
    knobs = {name: chosen(result).knobs for name, result in found.items()}
    rows = {name: max(x.tile("m"), x.integer("long")) for name, x in knobs.items()}
    assert rows[""] >= 4 * rows["uniform"]


def test_a_report_has_the_time_of_every_histogram(found: dict[str, TuneResult]) -> None:
    each = ", ".join(f"{name} {duration_text(seconds)}" for name, seconds in latencies(found[""]).items())
    assert f"by histogram of segments: {each}" in found[""].report
