"""Stability: the same winner from searches with different seeds, and what is lost where it is another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autosched.bench.stability import StabilityPlan, Winners, summary_lines
from autosched.cli.commands import app
from autosched.machine.devices import cpu_target
from search_spaces import InputError, Schedule
from tuning_logs import TuningLog

FAST, SLOW = (1.0,) * 9, (1.25,) * 9
NOISY = (0.9, 1.1) * 4 + (1.0,)


def schedule(tile: int, sketch: str = "tiled") -> Schedule:
    return Schedule(sketch, (("tile", tile), ("warps", 4)), backend="llvm")


def winners(name: str, *latencies_s: tuple[float, ...], tiles: tuple[int, int] = (16, 32)) -> Winners:
    sources = tuple(f"text {n}" for n in range(len(latencies_s))) or ("text", "text")
    timed = dict(zip(sources, latencies_s, strict=True)) if latencies_s else None
    return Winners(name, tuple(map(schedule, tiles)), sources, timed)


def test_winners_of_one_text_lose_nothing_whatever_their_schedules() -> None:
    same, alike = winners("same", tiles=(16, 16)), winners("alike")
    assert same.cells == ("same", "same schedule", "", "")
    assert alike.cells == ("alike", "same text", "", "")
    assert (alike.loss, alike.interval, alike.same_schedule) == (0.0, None, False)


def test_the_slowest_of_different_winners_is_compared_with_the_fastest() -> None:
    slower = winners("slower", SLOW, FAST)
    assert slower.cells == ("slower", "2 of 2 different", "1.250x (1.250–1.250)", "tile 16 | 32")
    assert not slower.is_tie
    tie = winners("tie", NOISY, FAST)
    assert tie.is_tie
    assert tie.cells[2].endswith(", a tie")


def test_other_sketches_are_named() -> None:
    found = Winners("other", (schedule(16), schedule(16, "split")), ("a", "b"), {"a": FAST, "b": SLOW})
    assert found.cells[3] == "llvm tiled | llvm split"


def test_the_summary_counts_ties_and_the_loss_of_the_others() -> None:
    found = [winners("a", tiles=(16, 16)), winners("b"), winners("c", NOISY, FAST), winners("d", FAST, SLOW)]
    failed = Winners("e", why_not="no trial succeeded")
    assert list(summary_lines([*found, failed], StabilityPlan(cpu_target(1), trials=9))) == [
        "4 workloads, 2 searches of 9 trials each: 2 the same text, 1 the same schedule",
        "of the other 2, 1 tie",
        "the slowest winner loses 25.00% at most (d), and 6.25% in the mean of all",
    ]


def test_one_search_is_no_comparison() -> None:
    with pytest.raises(InputError, match="searches=1; expected an integer of at least 2"):
        StabilityPlan(cpu_target(1), searches=1)


def test_a_suite_is_tuned_by_every_seed_into_logs_of_their_own(tmp_path: Path) -> None:
    suite, out = tmp_path / "suite.json", tmp_path / "logs"
    suite.write_text(json.dumps([{"name": "small", "m": 17, "n": 16, "k": 16, "dtype": "float32"}]))
    given = ["stability", str(suite), "--target", "cpu", "--trials", "2", "--rounds", "6", "--out", str(out)]
    first = CliRunner().invoke(app, given)
    assert first.exit_code == 0, first.output
    logs = [TuningLog(out / f"seed_{seed}.jsonl") for seed in (0, 1)]
    assert [len({r.schedule for r in log}) for log in logs] == [2, 2]
    assert "1 workload, 2 searches of 2 trials each: " in first.stdout
    assert "trials, best" not in first.stdout
    sizes = [log.path.stat().st_size for log in logs]
    assert CliRunner().invoke(app, given).exit_code == 0
    assert [log.path.stat().st_size for log in logs] == sizes
