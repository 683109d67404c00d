"""What is kept of a failed trial, and how it is repeated."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from autosched import backends
from autosched.backends import spaces
from autosched.machine import devices
from autosched.measuring.failures import GUILTY, MOST_PER_STATUS, failures_folder, keep
from autosched.measuring.repro import repeat
from search_spaces import InputError, Schedule, ops
from tuning_logs import STATUSES, Measurement, Provenance, Status, TuningRecord

OP = ops.gelu_scale(1000)


def schedules(count: int) -> list[Schedule]:
    space = spaces.build(OP, devices.cpu_target())
    rng = np.random.default_rng(0)
    found: dict[Schedule, Schedule] = {}
    while len(found) < count:
        sampled = space.sample(rng)
        found[sampled] = sampled
    return list(found)


def failed(schedule: Schedule, status: Status = "wrong_result") -> TuningRecord:
    return TuningRecord(
        OP, devices.cpu_target(), schedule, Measurement(status, detail="made up"), Provenance("g", "hot", 1.0, 7, 3)
    )


def keep_one(log: Path, schedule: Schedule, status: Status = "wrong_result") -> Path | None:
    return keep(log, failed(schedule, status), schedule)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tuning.jsonl"


def test_a_failed_trial_is_kept_with_its_record_its_source_and_the_command_that_repeats_it(log: Path) -> None:
    (schedule,) = schedules(1)
    folder = keep_one(log, schedule)
    assert folder is not None
    assert folder.parent == failures_folder(log) / "wrong_result"
    record = TuningRecord.from_json(json.loads((folder / "record.json").read_text()))
    assert record == failed(schedule)
    assert record.provenance.seed == 7
    backend = backends.named(schedule.backend)
    assert (folder / "kernel.ll").read_text() == backend.render(schedule.program, schedule.one_line, record.target)
    assert f"autosched repro {folder}" in (folder / "README.txt").read_text()
    assert "wrong_result: made up" in (folder / "README.txt").read_text()


@pytest.mark.parametrize("status", sorted(set(STATUSES) - GUILTY))
def test_success_and_refusals_in_good_order_are_not_kept(log: Path, status: Status) -> None:
    (schedule,) = schedules(1)
    measurement = Measurement("ok", (1e-6,)) if status == "ok" else Measurement(status)
    record = dataclasses.replace(failed(schedule), measurement=measurement)
    assert keep(log, record, schedule) is None
    assert not failures_folder(log).exists()


def test_the_first_few_of_each_status_are_kept_and_none_twice(log: Path) -> None:
    found = schedules(MOST_PER_STATUS + 2)
    assert keep_one(log, found[0]) is not None
    assert keep_one(log, found[0]) is None
    kept = [keep_one(log, s) for s in found[1:]]
    assert [path is not None for path in kept] == [True] * (MOST_PER_STATUS - 1) + [False] * 2
    assert keep_one(log, found[-1], "run_crash") is not None


def test_a_folder_that_cannot_be_written_is_a_warning(log: Path) -> None:
    failures_folder(log).write_text("in the way")
    with pytest.warns(UserWarning, match="cannot be kept"):
        assert keep_one(log, schedules(1)[0]) is None


def test_a_kept_trial_is_measured_again_from_its_folder(log: Path) -> None:
    folder = keep_one(log, schedules(1)[0])
    assert folder is not None
    repeated = repeat(folder)
    assert repeated.measurement.ok
    assert repeated.same_source
    assert str(repeated) == "then wrong_result: made up\nnow ok"
    (folder / "kernel.ll").write_text("another kernel")
    assert not repeat(folder).same_source


def test_a_folder_without_a_failed_trial_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no failed trial"):
        repeat(tmp_path)
