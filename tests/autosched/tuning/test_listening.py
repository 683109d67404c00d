"""Searches of different devices that share a log hear of each other, batch by batch."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from autosched.machine.policies import Policy
from autosched.tuning.results import TuneResult
from autosched.tuning.searching.listening import Listening
from autosched.tuning.tuner import tune
from log_records import A100, H200, SMALL, record, tiles
from search_spaces import Schedule, Workload
from tile_measurer import ELSEWHERE, HERE, OP, TileMeasurer
from tuning_logs import Measurement, TuningLog, TuningRecord

warm_start = importlib.import_module("autosched.tuning.searching.warm_start")

listening_module = importlib.import_module("autosched.tuning.searching.listening")


@pytest.fixture(autouse=True)
def nothing_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "shipped_logs", lambda: ())


def test_it_hears_once_of_each_success_on_another_device_that_was_not_there_at_the_start(log: Path) -> None:
    tuning_log = TuningLog(log)
    tuning_log.append(record(1, target=A100))
    listening = Listening(tuning_log, SMALL, H200, "cold", own=0)
    assert listening.news(own=0) == []
    others = [record(2, target=A100), record(3, target=H200), record(4, None, target=A100), record(5, policy="hot")]
    tuning_log.append(*others)
    assert tiles(listening.news(own=1)) == [2]
    assert listening.news(own=1) == []
    assert dict(listening.devices) == {A100.label: 1}


def test_own_records_do_not_deafen_it(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_module, "MOST_LOOKED_THROUGH", 2)
    tuning_log = TuningLog(log)
    tuning_log.append(*(record(n, target=H200) for n in range(1, 4)))
    listening = Listening(tuning_log, SMALL, H200, "cold", own=3)
    tuning_log.append(record(4, target=A100))
    assert tiles(listening.news(own=3)) == [4]


class BesideAnother(TileMeasurer):
    """Measures while another search writes to the log: a batch there for each batch here."""

    def __init__(self, log: Path, others: Sequence[TuningRecord]) -> None:
        super().__init__(OP)
        self._log = TuningLog(log)
        self._others = list(others)

    def submit(
        self, workload: Workload, schedules: Sequence[Schedule], *, policy: Policy = "cold", seed: int = 0
    ) -> list[Future[Measurement]]:
        now, self._others = self._others[: len(schedules)], self._others[len(schedules) :]
        self._log.append(*now)
        return super().submit(workload, schedules, policy=policy, seed=seed)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> list[TuningRecord]:
    """Records of a search on another device, where the same is good: the best of it first."""
    path = tmp_path_factory.mktemp("elsewhere") / "log.jsonl"
    tune(OP, ELSEWHERE, 48, log=path, measurer=TileMeasurer(OP, ELSEWHERE), seed=7, history=())
    found = [r for r in TuningLog(path) if not r.provenance.finals]
    return sorted(found, key=lambda r: r.measurement.latency_s)


def searched(log: Path, others: Sequence[TuningRecord], seed: int) -> TuneResult:
    return tune(OP, HERE, 48, log=log, measurer=BesideAnother(log, others), seed=seed)


def test_a_search_is_sooner_good_by_what_another_finds_meanwhile_and_says_what_it_heard(
    tmp_path: Path, elsewhere: list[TuningRecord]
) -> None:
    seeds = range(2)
    alone = [searched(tmp_path / f"alone{seed}.jsonl", [], seed) for seed in seeds]
    beside = [searched(tmp_path / f"beside{seed}.jsonl", elsewhere, seed) for seed in seeds]
    assert statistics.fmean(map(_best_s, beside)) < statistics.fmean(map(_best_s, alone))
    assert f"heard meanwhile from searches for other devices: 32 of {ELSEWHERE.label}" in beside[0].report
    assert "heard meanwhile" not in alone[0].report


def test_what_another_device_heard_is_no_measurement_here(tmp_path: Path, elsewhere: list[TuningRecord]) -> None:
    log = tmp_path / "log.jsonl"
    result = searched(log, [replace(r, target=ELSEWHERE) for r in elsewhere], 0)
    assert result.trials_done == 48
    assert {r.target for r in TuningLog(log).records(OP, HERE)} == {HERE}


def _best_s(result: TuneResult) -> float:
    assert result.best is not None
    return result.best.measurement.latency_s
