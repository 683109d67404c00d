"""The display of a search under way in another process."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from autosched.reporting.analysis.tasks import Task
from autosched.reporting.analysis.trace import TracePoint
from autosched.reporting.watch import picture, sparkline, watch
from log_records import A100, record
from search_spaces import InputError, ops
from tuning_logs import TuningLog, TuningRecord


def at(unix_s: float, ours: TuningRecord) -> TuningRecord:
    return replace(ours, provenance=replace(ours.provenance, unix_s=unix_s))


def shown(tasks: list[Task], now_s: float, rows: int = 10) -> list[str]:
    out = Console(file=io.StringIO(), width=110)
    out.print(picture(tasks, now_s, rows))
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def test_a_row_has_the_best_the_failures_the_pace_and_the_silence() -> None:
    records = [at(10, record(1, 4e-3)), at(100, record(2, None)), at(130, record(3, 1e-3))]
    lines = shown([Task(Path("x"), tuple(records))], 135.0)
    assert lines[0].split() == ["kernel", "best", "library", "trials", "failed", "/min", "ago"]
    assert lines[1].endswith("1 ms                3       1     2  5 s  ██▁")
    assert lines[2] == "3 trials of 1 kernel on NVIDIA H200"


def test_the_last_task_with_a_trial_is_first_and_devices_are_told_apart() -> None:
    softmax = ops.softmax(64, 100)
    old, new = at(10, record(1)), at(8000, record(2, target=A100, workload=softmax))
    lines = shown([Task(Path("x"), (old,)), Task(Path("x"), (new,))], 8000.0)
    assert "device" in lines[0]
    assert [line.split()[0] for line in lines[1:3]] == ["softmax", "matmul"]
    assert "2 h" in lines[2]
    cut = shown([Task(Path("x"), (old,)), Task(Path("x"), (new,))], 8000.0, rows=1)
    assert cut[-1] == "2 trials of 2 kernels, 1 kernel not shown"


def test_a_sparkline_falls_to_the_best_and_is_blank_before_any() -> None:
    latencies = [None, None, 8.0, 9.0, 2.0, 2.0, 1.0, 1.0]
    points = [TracePoint(number, 0.0, latency) for number, latency in enumerate(latencies, 1)]
    assert sparkline(points) == "  ██▃▃▁▁"
    assert sparkline(points[:2]) == ""
    assert sparkline([TracePoint(1, 0.0, 3.0)]) == "▁"


def test_once_shows_the_log_as_it_is_and_refuses_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "tuning.jsonl"
    out = Console(file=io.StringIO(), width=110)
    with pytest.raises(InputError, match="holds no tuning record"):
        watch(path, out, once=True)
    with pytest.raises(InputError, match="no search writes to it"):
        watch(tmp_path / "a.jsonl.gz", out)
    TuningLog(path).append(record(1))
    with path.open("ab") as file:
        file.write(b'{"schema": 1, "half a li')
    watch(path, out, once=True)
    assert isinstance(out.file, io.StringIO)
    assert "1 trial of 1 kernel" in out.file.getvalue()


def test_a_log_that_begins_later_is_followed_until_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tuning.jsonl"
    monkeypatch.setattr("autosched.reporting.watch._SECONDS_BETWEEN", 0.0)
    others = iter([[], [record(1)], [record(2), record(3, workload=ops.softmax(64, 100))]])

    def now() -> float:
        """As if another process had written meanwhile, and then the user pressed Ctrl-C."""
        found = next(others, None)
        if found is None:
            raise KeyboardInterrupt
        TuningLog(path).append(*found)
        return 100.0

    out = Console(file=io.StringIO(), width=110, force_terminal=True)
    watch(path, out, now=now)
    assert isinstance(out.file, io.StringIO)
    told = out.file.getvalue()
    places = [told.find(text) for text in ("waiting for", "1 trial of 1 kernel", "3 trials of 2 kernels")]
    assert places == sorted(places)
    assert places[0] >= 0
