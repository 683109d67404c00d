"""Warm starts: records of other shapes, devices and logs say where to look, and never pass for measurements here."""

from __future__ import annotations

import importlib
import json
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autosched
import cost_models
from autosched import strategies
from autosched.backends import spaces
from autosched.strategies.evolution.transfer import transferred
from autosched.strategies.evolutionary import Evolutionary
from autosched.tuning.searching.sources import USUAL, Sources
from autosched.tuning.searching.warm_start import SHIPPED, history
from autosched.tuning.tuner import tune
from log_records import A100, H200, SMALL, record, tiles
from search_spaces import InputError, LogError, Target, Workload, ops
from tile_measurer import ELSEWHERE, HERE, OP, OTHER, TileMeasurer, made_up_latency
from tuning_logs import CompileFacts, Measurement, Provenance, TuningLog, TuningRecord
from tuning_logs.packing import packed_name, write_packed

warm_start = importlib.import_module("autosched.tuning.searching.warm_start")


def shipped(
    folder: Path, op: Workload, target: Target, monkeypatch: pytest.MonkeyPatch, trials: int = 96
) -> list[TuningRecord]:
    """Records of a search of `op`, as the log that ships from now on."""
    log = TuningLog(folder / "other.jsonl")
    tune(op, target, trials, log=log.path, measurer=TileMeasurer(op, target), seed=7)
    path = folder / "records" / packed_name(op, "cold")
    write_packed(path, list(log))
    monkeypatch.setattr(warm_start, "shipped_logs", lambda: (path,))
    return list(log)


def tuned(log: Path, trials: int, seed: int = 0) -> tuple[autosched.TuneResult, TileMeasurer]:
    measurer = TileMeasurer(OP)
    return tune(OP, HERE, trials, log=log, measurer=measurer, seed=seed), measurer


def latency_of(result: autosched.TuneResult) -> float:
    assert result.best is not None
    return result.best.measurement.latency_s


@pytest.mark.parametrize(("op", "target"), [(OTHER, HERE), (OP, ELSEWHERE)], ids=["other shape", "other device"])
def test_a_search_on_a_fresh_log_is_sooner_good_with_the_records_that_ship(
    op: Workload, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(warm_start, "shipped_logs", lambda: ())
        cold = [latency_of(tuned(tmp_path / f"cold{seed}.jsonl", 16, seed)[0]) for seed in range(3)]
    shipped(tmp_path, op, target, monkeypatch)
    warm = [latency_of(tuned(tmp_path / f"warm{seed}.jsonl", 16, seed)[0]) for seed in range(3)]
    assert statistics.median(warm) < 0.8 * statistics.median(cold)


def test_a_latency_of_another_device_is_not_one_of_this(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = shipped(tmp_path, OP, ELSEWHERE, monkeypatch)
    result, measurer = tuned(tmp_path / "tuning.jsonl", 20)
    assert (result.trials_known, result.trials_done) == (0, 20)
    assert len(set(measurer.measured)) == 20
    records = list(TuningLog(tmp_path / "tuning.jsonl"))
    assert {r.target for r in records} == {HERE}
    assert latency_of(result) == min(r.measurement.latency_s for r in records)
    assert latency_of(result) > max(r.measurement.latency_s for r in foreign if r.provenance.finals)


def test_the_best_that_ships_for_this_very_task_is_measured_here_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = shipped(tmp_path, OP, HERE, monkeypatch)
    best = min(records, key=lambda r: r.measurement.latency_s)
    result, measurer = tuned(tmp_path / "tuning.jsonl", 16)
    # Or one that is as fast.
    assert made_up_latency(OP, measurer.measured[0], HERE) == best.measurement.latency_s
    assert (result.trials_known, result.trials_done) == (0, 16)
    assert result.best is not None
    assert result.best.schedule in {r.schedule for r in records} | set(measurer.measured)
    again, measurer = tuned(tmp_path / "tuning.jsonl", 16)
    assert (again.ending, measurer.measured) == ("known", [])


def test_of_what_another_kernel_was_measured_is_tried_again(tmp_path: Path) -> None:
    log = tmp_path / "tuning.jsonl"
    tuned(log, 48)
    old = [
        replace(r, measurement=replace(r.measurement, facts=CompileFacts(0.0, source="0" * 16))) for r in TuningLog(log)
    ]
    log.unlink()
    TuningLog(log).append(*old)
    best = min(old, key=lambda r: r.measurement.latency_s)
    result, measurer = tuned(log, 16)
    # Or one that is as fast.
    assert made_up_latency(OP, measurer.measured[0], HERE) == best.measurement.latency_s
    assert (result.trials_known, result.trials_done) == (0, 16)


def test_what_a_log_knows_of_the_workload_itself_leaves_room_for_other_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_start, "shipped_logs", lambda: ())
    monkeypatch.setattr(warm_start, "MOST_LOOKED_THROUGH", 1)
    log = TuningLog(tmp_path / "log.jsonl")
    log.append(record(1), record(2), record(4, workload=ops.matmul(1024, 1024, 64)))
    assert tiles(history(log, SMALL, H200, "cold", [record(1), record(2)], USUAL).records) == [4]


def test_history_is_all_but_what_was_measured_here_most_alike_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = ops.matmul(64, 64, 128), ops.matmul(64, 64, 1024)
    log = TuningLog(tmp_path / "tuning.jsonl")
    log.append(record(1), record(2, generator="g0"), record(4, workload=far), record(8, policy="hot"), record(16, None))
    paths = []
    for number, (op, target) in enumerate([(near, H200), (SMALL, A100), (SMALL, H200)]):
        path = tmp_path / f"{number}" / packed_name(op, "cold")
        write_packed(path, [record(100 + number, 5e-4, workload=op, target=target)])
        paths.append(path)
    hot = tmp_path / packed_name(near, "hot")
    write_packed(hot, [record(200, workload=near, policy="hot")])
    monkeypatch.setattr(warm_start, "shipped_logs", lambda: (*paths, hot))
    found = history(log, SMALL, H200, "cold", [record(1)], USUAL)
    assert tiles(found.records) == [102, 2, 101, 100, 4]
    assert found.logs == (SHIPPED, str(log.path), SHIPPED, SHIPPED, str(log.path))


def test_what_ships_of_gpus_is_not_told_to_a_search_for_a_cpu_nor_the_other_way(tmp_path: Path) -> None:
    nothing = TuningLog(tmp_path / "tuning.jsonl")
    op = ops.matmul(1024, 1024, 1024, dtype="bfloat16", layout="nt")
    assert history(nothing, op, H200, "cold", [], USUAL).records
    assert history(nothing, op, HERE, "cold", [], USUAL).records == ()
    of_a_cpu = TuningLog(tmp_path / "cpu.jsonl")
    of_a_cpu.append(record(1, workload=op, target=HERE))
    told = history(nothing, op, H200, "cold", [], Sources.of(of_a_cpu))
    assert {r.target.kind for r in told.records} == {"gpu"}
    assert told.unused == (str(of_a_cpu.path),)


def test_a_log_that_is_named_as_history_is_read_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_start, "shipped_logs", lambda: ())
    own, colleagues = TuningLog(tmp_path / "own.jsonl"), TuningLog(tmp_path / "colleagues.jsonl")
    own.append(record(1, workload=OTHER), record(2))
    colleagues.append(record(1, workload=OTHER), record(4))
    for given in (colleagues, colleagues.path, [str(colleagues.path), own]):
        found = history(own, SMALL, H200, "cold", [record(2)], Sources.of(given))
        assert dict(zip(tiles(found.records), found.logs, strict=True))[4] == str(colleagues.path)
        assert len(found.records) == len(set(tiles(found.records)))


def test_a_search_without_history_starts_cold_but_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped(tmp_path, OTHER, HERE, monkeypatch)
    log, told = tmp_path / "tuning.jsonl", []
    hear = Evolutionary.tell

    def tell(self: Evolutionary, records: Sequence[TuningRecord], *, elsewhere: bool = False) -> None:
        told.extend(r for r in records if elsewhere)
        hear(self, records, elsewhere=elsewhere)

    monkeypatch.setattr(Evolutionary, "tell", tell)
    for trials, known in ((16, 0), (24, 16)):
        result = tune(OP, HERE, trials, log=log, measurer=TileMeasurer(OP), history=())
        assert result.trials_known == known
    assert not told


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "history: there is no file"),
        ("", "history: no record of this log can be read: .*is empty"),
        ('{"schema": 1, "workload": {"na', "history: no record of this log can be read: .*line 1"),
        ('{"schema": 9}\n' * 5, "history: no record of this log can be read: .*line 1.*schema 9"),
        ("{}", "is not a tuning log"),
    ],
    ids=["absent", "empty", "torn", "another version", "no log"],
)
def test_what_is_no_history_is_refused_in_one_line_before_anything_is_written(
    content: str | None, message: str, tmp_path: Path
) -> None:
    path, log = tmp_path / "other.jsonl", tmp_path / "tuning.jsonl"
    if content is not None:
        path.write_text(content)
    with warnings.catch_warnings(action="error"), pytest.raises((InputError, LogError), match=message):
        tune(OP, HERE, 16, log=log, measurer=TileMeasurer(OP), history=path)
    assert not log.exists()


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"kind": "quantum"}, 'target: kind \'quantum\', expected "gpu" or "cpu"'),
        ({"num_sms": 0}, "target: num_sms 0, expected an integer from 1"),
        ({"l2_bytes": "much"}, "target: l2_bytes 'much', expected an integer from 1"),
        ({"device": None}, "target: device None, expected text"),
        ({"features": {"wave": 0}}, "target: features: wave 0, expected an integer from 1"),
        ({"features": {"matrix": [{"m": 16}]}}, "target: features: matrix: n, k, types is missing"),
    ],
)
def test_a_history_of_a_device_that_cannot_be_read_is_refused(
    told: dict[str, object], message: str, tmp_path: Path
) -> None:
    path, line = tmp_path / "other.jsonl", record(1).to_json()
    path.write_text(json.dumps({**line, "target": {**line["target"], **told}}) + "\n")
    with pytest.raises(InputError, match=f"no record of this log can be read: .*{message}"):
        Sources.of(path)


def test_a_log_that_was_read_before_is_refused_for_the_same_reason(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "log.jsonl")
    log.path.write_text('{"schema": 9}\n')
    with pytest.warns(UserWarning, match="schema 9"):
        assert list(log) == []
    with pytest.raises(InputError, match=r"can be read: .*line 1.*schema 9"):
        Sources.of(log)


def test_a_history_of_a_device_that_this_version_does_not_know_guides_and_is_named(tmp_path: Path) -> None:
    """What its records say of the device is all that is needed of it."""
    other = TuningLog(tmp_path / "other.jsonl")
    unheard_of = replace(ELSEWHERE, name="cpu9000", device="Unheard of 9000")
    schedule = spaces.build(OP, HERE).sample(np.random.default_rng(0)).unbound
    origin = Provenance("g", "cold", 0.0, 0, 0)
    other.append(TuningRecord(OP, unheard_of, schedule, Measurement("ok", (1e-3,)), origin))
    result = tune(OP, HERE, 16, log=tmp_path / "t.jsonl", measurer=TileMeasurer(OP), history=other.path)
    assert any("1 of" in line and "on Unheard of 9000" in line for line in result.guidance.lines)


def test_a_history_that_is_torn_at_its_end_warns_once(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "other.jsonl")
    log.append(record(1))
    with log.path.open("a") as file:
        file.write('{"schema": 1, "work\n{"schema": 1}\n')
    with pytest.warns(UserWarning, match="line 2: skipped.*so are 1 further lines") as warned:
        Sources.of(log.path)
    assert len(warned) == 1


@pytest.mark.parametrize("name", strategies.names())
def test_what_was_measured_elsewhere_may_be_asked_for_once(name: str) -> None:
    space = spaces.build(OP, HERE).restricted(
        "contraction",
        register=[(8, 8)],
        m=[1],
        order=["row_major"],
        pack_a=["no"],
        pack_b=["no"],
        inner=["ij"],
        k=[(1, 384)],
    )
    everything = list(space)
    records = [
        TuningRecord(OP, HERE, s, Measurement("ok", (1e-3 + i * 1e-6,)), Provenance("g", "cold", 0.0, 0, i))
        for i, s in enumerate(everything)
    ]
    strategy = strategies.create(name, space, cost_models.create("random", 0), np.random.default_rng(0))
    strategy.tell([TuningRecord.from_json(r.to_json()) for r in records], elsewhere=True)
    assert len(everything) > 40
    asked = [s for _ in range(4) for s in strategy.ask(len(everything) // 2)]
    assert len(asked) == len(everything)
    assert set(asked) == set(everything)


def test_of_several_shapes_the_most_alike_counts_most_and_no_latency_is_compared_with_anothers() -> None:
    space = spaces.build(OP, HERE)
    rng = np.random.default_rng(0)
    schedules = list(dict.fromkeys(space.sample(rng) for _ in range(12)))[:9]
    near, middle, far = schedules[:3], schedules[3:6], schedules[6:]
    records = [
        TuningRecord(op, HERE, s, Measurement("ok", (scale * (1 + place),)), Provenance("g", "cold", 0.0, 0, 0))
        for op, group, scale in ((OP, near, 1.0), (OTHER, middle, 1e-3), (SMALL, far, 1e-6))
        for place, s in reversed(list(enumerate(group)))
    ]
    assert transferred(space, records, 6) == [near[0], near[1], middle[0], near[2], middle[1], far[0]]
    assert transferred(space, records, 2) == near[:2]


def test_the_best_of_another_timing_policy_is_the_best_of_a_group_of_its_own() -> None:
    space, rng = spaces.build(OP, HERE), np.random.default_rng(0)
    cold, warm = list(dict.fromkeys(space.sample(rng) for _ in range(4)))[:2]
    records = [
        TuningRecord(OP, ELSEWHERE, s, Measurement("ok", (latency_s,)), Provenance("g", policy, 0.0, 0, 0))
        for s, latency_s, policy in ((cold, 1.0, "cold"), (warm, 2.0, "cold"), (warm, 1e-3, "hot"))
    ]
    assert transferred(space, records, 1) == [cold]
