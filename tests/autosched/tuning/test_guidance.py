"""What guides a search from elsewhere is watched: it fades where it misleads, and the result says what it brought."""

from __future__ import annotations

import importlib
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autosched.backends import spaces
from autosched.strategies.evolution.prior_guard import PriorGuard
from autosched.tuning.results import TuneResult
from autosched.tuning.tuner import tune
from cost_models.quality.ranking import rank_correlation, recall, regret
from log_records import H200, record
from tile_measurer import ELSEWHERE, HERE, OP, TileMeasurer
from tuning_logs import Measurement, Provenance, TuningLog, TuningRecord

warm_start = importlib.import_module("autosched.tuning.searching.warm_start")


@pytest.fixture(autouse=True)
def nothing_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "shipped_logs", lambda: ())


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a search on another device, where the same is good."""
    path = tmp_path_factory.mktemp("elsewhere") / "colleague.jsonl"
    tune(OP, ELSEWHERE, 96, log=path, measurer=TileMeasurer(OP, ELSEWHERE), seed=7, history=())
    return path


@pytest.fixture(scope="module")
def misleading(elsewhere: Path) -> Path:
    """The same log, of a device where what is good here is bad."""
    path = elsewhere.with_name("misleading.jsonl")
    worst = 1e-12
    turned = (
        replace(r, measurement=Measurement("ok", (worst / r.measurement.latency_s,))) for r in TuningLog(elsewhere)
    )
    TuningLog(path).append(*turned)
    return path


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> list[TuneResult]:
    """Searches without a history, of the first seeds."""
    return [searched(tmp_path_factory.mktemp("cold"), (), seed=seed) for seed in range(3)]


def searched(folder: Path, history: Path | Sequence[Path], trials: int = 64, seed: int = 0) -> TuneResult:
    log = folder / "tuning.jsonl"
    return tune(OP, HERE, trials, log=log, measurer=TileMeasurer(OP), history=history, seed=seed)


def test_a_history_that_ranks_well_is_believed_and_its_gain_is_told(elsewhere: Path, tmp_path: Path) -> None:
    result = searched(tmp_path, elsewhere)
    came = result.guidance.transfer
    assert came is not None
    assert came.correlation is not None
    assert came.correlation > 0.5
    assert came.trust > 0.9
    assert came.gain is not None
    assert came.gain > 1
    (source,) = result.guidance.sources
    assert (source.log, source.workload, source.device) == (str(elsewhere), OP.label, ELSEWHERE.label)
    assert re.search(r"warm start from 96 records \(\d+% kept\); best warm-started trial .*x faster than", str(result))
    assert "% of them are kept; the best of" in result.report
    assert str(elsewhere) in result.report


def test_a_history_that_misleads_fades_and_costs_little(
    misleading: Path, cold: list[TuneResult], tmp_path: Path
) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir()
    misled = [searched(folder, misleading, seed=seed) for seed, folder in enumerate(folders)]
    for result in misled:
        assert result.guidance.transfer is not None
        assert result.guidance.transfer.trust == 0
    ended = [statistics.median(r.latency_s for r in results if r.latency_s is not None) for results in (misled, cold)]
    assert ended[0] < 1.1 * ended[1]


def test_a_history_that_misleads_does_not_spoil_one_beside_it(
    elsewhere: Path, misleading: Path, cold: list[TuneResult], tmp_path: Path
) -> None:
    third = tmp_path / "third.jsonl"
    device = replace(ELSEWHERE, device="A CPU that misleads")
    TuningLog(third).append(*(replace(r, target=device) for r in TuningLog(misleading)))
    both = searched(tmp_path, (elsewhere, third))
    assert {source.device for source in both.guidance.sources} == {ELSEWHERE.label, device.label}
    assert both.latency_s is not None
    assert cold[0].latency_s is not None
    assert both.latency_s < 0.9 * cold[0].latency_s


def test_a_search_that_resumes_tries_its_history_on_what_it_knows(misleading: Path, tmp_path: Path) -> None:
    searched(tmp_path, (), 32)
    came = searched(tmp_path, misleading, 48).guidance.transfer
    assert came is not None
    assert (came.guided, came.others) == (0, 32)
    assert came.trust < 0.1


def test_a_log_of_another_kind_of_device_is_said_to_be_of_no_use(tmp_path: Path) -> None:
    other = TuningLog(tmp_path / "h200.jsonl")
    other.append(record(1, workload=OP, target=H200))
    guidance = searched(tmp_path, other.path, 16).guidance
    assert (guidance.sources, guidance.unused) == ((), (str(other.path),))
    (line,) = guidance.lines
    assert line.startswith(f"no warm start from {other.path}: ")


def test_a_search_is_not_guided_by_its_own_log_whatever_it_is_called(tmp_path: Path) -> None:
    searched(tmp_path, (), 16)
    (tmp_path / "alias.jsonl").symlink_to(tmp_path / "tuning.jsonl")
    guidance = searched(tmp_path, (tmp_path / "alias.jsonl", tmp_path / "tuning.jsonl"), 32).guidance
    assert (guidance.sources, guidance.unused) == ((), ())


def test_a_log_of_sketches_that_there_are_none_of_is_said_to_be_of_no_use(tmp_path: Path) -> None:
    other = TuningLog(tmp_path / "other.jsonl")
    other.append(*(record(tile, workload=OP, target=ELSEWHERE) for tile in range(1, 24)))
    guidance = searched(tmp_path, other.path, 16).guidance
    assert (guidance.sources, guidance.unused) == ((), (str(other.path),))


def test_a_cold_search_reports_no_guidance(cold: list[TuneResult]) -> None:
    assert cold[0].guidance.sources == ()
    assert "warm start" not in str(cold[0])


def test_a_handful_of_trials_does_not_shake_trust_and_failures_count_as_slowest() -> None:
    space, rng = spaces.build(OP, HERE), np.random.default_rng(0)
    schedules = list(dict.fromkeys(space.sample(rng) for _ in range(24)))[:16]
    guard = PriorGuard()
    guard.predicted(schedules, np.arange(16.0), set())
    told = [
        TuningRecord(OP, HERE, s.unbound, Measurement("ok", (1e-3,)) if i < 8 else Measurement("run_error"), ORIGIN)
        for i, s in enumerate(schedules)
    ]
    guard.observe(told[:4])
    assert guard.trust == 1.0
    guard.observe(told)
    assert guard.trust == 0.0
    assert guard.seen is not None
    assert guard.seen.correlation == pytest.approx(-0.868, abs=0.01)


ORIGIN = Provenance("g", "cold", 0.0, 0, 0)


def test_ranking_is_judged_by_rank_recall_and_regret() -> None:
    measured, predicted = [1.0, 2.0, 3.0, 4.0], [30.0, 10.0, 20.0, 40.0]
    assert rank_correlation(predicted, measured) == pytest.approx(0.4)
    assert rank_correlation([1.0, 1.0], [1.0, 2.0]) == 0.0
    assert recall(predicted, measured, 2) == 0.5
    assert regret(predicted, measured, 1) == 1.0
    assert regret(predicted, measured, 3) == 0.0
