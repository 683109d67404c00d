"""How good the cost model is at what is held out, from records of an imaginary device whose latencies are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autosched.cli.commands import app
from autosched.tuning.model_report import ModelReport, model_report
from autosched.tuning.tuner import tune
from tile_measurer import ELSEWHERE, HERE, OP, OTHER, TileMeasurer
from tuning_logs import Measurement, TuningLog
from tuning_logs.measurement import CompileFacts


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random schedules of two shapes on one device, and of one of these on another."""
    path = tmp_path_factory.mktemp("report") / "tuning.jsonl"
    for op, target in ((OP, HERE), (OTHER, HERE), (OP, ELSEWHERE)):
        measurer = TileMeasurer(op, target)
        tune(op, target, 64, log=path, measurer=measurer, strategy="random", history=())
    return path


@pytest.fixture(scope="module")
def report(log: Path) -> ModelReport:
    return model_report([log], most=100)


def test_schedules_shapes_and_devices_are_held_out(report: ModelReport) -> None:
    found = {(q.held_out, q.workload, q.device): q for q in report.qualities}
    assert {what for what, *_ in found} == {"schedules", "shapes", "devices"}
    # Neither its own shape nor its own device teaches.
    assert found["shapes", OTHER.label, HERE.label].taught == 2 * 64
    assert found["devices", OP.label, ELSEWHERE.label].taught == 2 * 64
    assert found["schedules", OP.label, HERE.label].taught == 48
    assert found["devices", OP.label, ELSEWHERE.label].rank_correlation > 0.8
    assert all(0 <= q.recall <= 1 and q.regret_ten <= q.regret_first for q in report.qualities)


def test_the_report_is_a_table_with_the_time_a_trial_takes(report: ModelReport) -> None:
    assert report.cost is not None
    assert report.cost.records == 3 * 64
    head, *rows = str(report).splitlines()
    assert head.split()[:2] == ["held", "out"]
    assert [row.split()[:2] for row in rows[:3]] == [[what, "before"] for what in ("schedules", "shapes", "devices")]
    assert "ms a trial at 192 records" in rows[-1]


def test_a_report_of_one_device_says_that_none_could_be_held_out(log: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    TuningLog(one).append(*(r for r in TuningLog(log) if r.key == (OP.key, HERE.key)))
    lines = str(model_report([one], 100)).splitlines()
    assert f"devices: none could be held out, all records are of {HERE.label}" in lines
    assert "shapes: none could be held out, the logs hold no records of other ones to learn from" in lines


def test_compile_facts_are_judged_where_records_tell_them(log: Path, tmp_path: Path) -> None:
    told = tmp_path / "told.jsonl"
    records = [r for r in TuningLog(log) if r.key == (OP.key, HERE.key) and not r.provenance.finals]
    slow_first = sorted(records, key=lambda r: -r.measurement.latency_s)
    for spilled, record in enumerate(reversed(slow_first)):
        facts = CompileFacts(0.1, registers=64, spill_bytes=spilled, shared_memory_bytes=0)
        measured = Measurement("ok", record.measurement.latencies_s, facts=facts)
        TuningLog(told).append(type(record)(OP, HERE, record.schedule, measured, record.provenance))
    before, after = (
        next(q for q in model_report([told], 100).qualities if q.with_facts == with_facts)
        for with_facts in (False, True)
    )
    assert after.rank_correlation > max(0.9, before.rank_correlation + 0.2)


def test_the_command_prints_json_and_refuses_what_has_too_few_records(log: Path, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["model", "report", str(log), "--most", "30", "--json"])
    assert shown.exit_code == 0, shown.output
    assert {q["held_out"] for q in json.loads(shown.output)["qualities"]} == {"schedules", "shapes", "devices"}
    few = tmp_path / "few.jsonl"
    TuningLog(few).append(*list(TuningLog(log))[:8])
    refused = CliRunner().invoke(app, ["model", "report", str(few)])
    assert refused.exit_code == 2
    assert "expected at least 24 of one" in refused.output
