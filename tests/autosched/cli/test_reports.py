"""`autosched report` and `autosched watch`, as a shell calls them."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from autosched.cli.commands import app
from log_records import record
from search_spaces import ops
from tuning_logs import TuningLog


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})


def test_a_report_is_of_the_kernels_that_are_selected(tmp_path: Path) -> None:
    log, page = tmp_path / "tuning.jsonl", tmp_path / "run.html"
    TuningLog(log).append(record(1), record(2, workload=ops.softmax(64, 100)))
    result = run("report", str(log), "-o", str(page), "--select", "softmax")
    assert result.exit_code == 0, result.output
    assert str(page) in result.output
    assert "softmax" in page.read_text(encoding="utf-8")
    assert "matmul" not in page.read_text(encoding="utf-8")
    refused = run("report", str(log), "-o", str(page), "--select", "conv")
    assert (refused.exit_code, "holds no 'conv'" in refused.output) == (2, True)


def test_watch_shows_a_log_once(tmp_path: Path) -> None:
    log = tmp_path / "tuning.jsonl"
    TuningLog(log).append(record(1), record(2, None))
    result = run("watch", str(log), "--once")
    assert result.exit_code == 0, result.output
    assert "2 trials of 1 kernel on NVIDIA H200" in result.output
    assert run("watch", str(tmp_path / "other.jsonl"), "--once").exit_code == 2
