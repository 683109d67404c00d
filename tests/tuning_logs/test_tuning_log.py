"""Tuning logs: nothing complete is ever lost, nothing torn is ever fatal, and look-ups find what was asked for."""

import dataclasses
import json
import os
import warnings
from pathlib import Path

import pytest

from log_records import A100, H200, SMALL, record, tiles
from search_spaces import LogError, Workload, ops
from search_spaces.devices.target import cpu
from tuning_logs import Measurement, TuningLog, shipped_logs, user_log_path
from tuning_logs import log as log_module
from tuning_logs.selection import MOST_TOLD, telling

README = "# How to run\n\nRead this first.\n"


@pytest.fixture(params=["parsed", "indexed"])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuningLog:
    """A small log, read as small logs are, and as large ones are."""
    if request.param == "indexed":
        monkeypatch.setattr(log_module, "INDEX_FROM_BYTES", 0)
    return TuningLog(tmp_path / "deep" / "tuning.jsonl")


@pytest.fixture
def small_log(tmp_path: Path) -> TuningLog:
    return TuningLog(tmp_path / "deep" / "tuning.jsonl")


def test_a_missing_file_is_an_empty_log(log: TuningLog) -> None:
    assert list(log) == []
    assert log.best(SMALL, H200) is None
    assert not log.path.exists()


def test_what_was_appended_is_read_back_in_order(log: TuningLog) -> None:
    written = [record(16), record(32, None), record(64)]
    log.append(*written[:2])
    log.append(written[2])
    assert list(TuningLog(log.path)) == written
    assert [r.provenance for r in TuningLog(log.path)] == [r.provenance for r in written]


def test_appending_nothing_creates_nothing(log: TuningLog) -> None:
    log.append()
    assert not log.path.exists()


def test_a_reader_sees_what_another_log_object_appends(log: TuningLog) -> None:
    log.append(record(16))
    assert tiles(log) == [16]
    TuningLog(log.path).append(record(32))
    assert tiles(log) == [16, 32]


def test_only_the_appended_part_is_parsed_again(small_log: TuningLog, monkeypatch: pytest.MonkeyPatch) -> None:
    small_log.append(*(record(t) for t in (1, 2, 4, 8)))
    assert len(list(small_log)) == 4
    parsed: list[object] = []
    original = Measurement.from_json
    monkeypatch.setattr(Measurement, "from_json", staticmethod(lambda data: parsed.append(data) or original(data)))
    assert len(list(small_log)) == 4
    assert parsed == []
    small_log.append(record(16))
    assert tiles(small_log) == [1, 2, 4, 8, 16]
    assert len(parsed) == 1


def test_records_of_one_workload_and_target_share_them(log: TuningLog) -> None:
    other = ops.softmax(8, 8)
    log.append(record(1), record(2), record(4, workload=other), record(8, target=A100))
    first, second, third, fourth = TuningLog(log.path)
    assert first.workload is second.workload
    assert first.target is second.target
    assert third.workload == other
    assert (fourth.workload, fourth.target) == (SMALL, A100)


def test_a_schedule_key_inside_a_workloads_name_does_not_confuse_the_parser(log: TuningLog) -> None:
    tricky = Workload('x, "schedule": y', SMALL.inputs, SMALL.stages)
    log.append(record(1, workload=tricky), record(2, workload=tricky))
    assert [r.workload.name for r in TuningLog(log.path)] == [tricky.name] * 2


def test_a_file_that_was_replaced_is_read_from_its_start(log: TuningLog, tmp_path: Path) -> None:
    log.append(record(16), record(32))
    assert tiles(log) == [16, 32]
    other = TuningLog(tmp_path / "other.jsonl")
    other.append(record(1), record(2), record(4))
    os.replace(other.path, log.path)
    assert tiles(log) == [1, 2, 4]


def test_a_file_that_was_rewritten_in_place_is_read_from_its_start(log: TuningLog, tmp_path: Path) -> None:
    log.append(record(16))
    assert tiles(log) == [16]
    other = TuningLog(tmp_path / "other.jsonl")
    other.append(record(1), record(2))
    log.path.write_bytes(other.path.read_bytes())
    assert tiles(log) == [1, 2]


def test_a_file_that_was_removed_is_an_empty_log_again(log: TuningLog) -> None:
    log.append(record(16))
    assert tiles(log) == [16]
    log.path.unlink()
    assert tiles(log) == []


@pytest.mark.parametrize(
    "line",
    [
        "not JSON",
        "[1, 2]",
        "null",
        "17",
        '{"schema": 999}',
        '{"schema": 1}',
        '{"schema": 1, "workload": 3, "target": {}, "schedule": {}, "measurement": {}, "provenance": {}}',
        "\x00\x00\x00",
        "[" * 5000,
    ],
)
def test_a_foreign_line_is_skipped_with_a_warning_that_names_file_and_line(log: TuningLog, line: str) -> None:
    log.append(record(16))
    with log.path.open("a") as file:
        file.write(line + "\n")
    log.append(record(32))
    with pytest.warns(UserWarning, match=rf"{log.path}, line 2: skipped"):
        assert tiles(TuningLog(log.path)) == [16, 32]


@pytest.mark.parametrize("latency", ["NaN", "Infinity", "-1.0", "0.0"])
def test_a_record_with_an_impossible_latency_is_skipped(log: TuningLog, latency: str) -> None:
    log.append(record(16), record(32))
    text = log.path.read_text().replace('"latencies_s": [0.001]', f'"latencies_s": [{latency}]', 1)
    log.path.write_text(text)
    with pytest.warns(UserWarning, match="expected each to be a positive number of seconds|is no number of JSON"):
        assert tiles(log) == [32]


def test_a_bad_line_is_warned_about_once_however_often_the_log_is_read(small_log: TuningLog) -> None:
    small_log.append(record(16))
    with small_log.path.open("a") as file:
        file.write("torn\n")
    with pytest.warns(UserWarning, match="line 2"):
        list(small_log)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tiles(small_log) == [16]
        small_log.append(record(32))
        assert tiles(small_log) == [16, 32]


def test_blank_lines_and_windows_line_ends_are_no_bad_lines(log: TuningLog) -> None:
    log.append(record(16), record(32))
    log.path.write_bytes(b"\n" + log.path.read_bytes().replace(b"\n", b"\r\n") + b"\n\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tiles(log) == [16, 32]


def test_a_line_that_lacks_only_its_line_end_counts(log: TuningLog) -> None:
    log.append(record(16), record(32))
    log.path.write_bytes(log.path.read_bytes()[:-1])
    assert tiles(log) == [16, 32]
    log.append(record(64))
    assert tiles(log) == [16, 32, 64]


def test_a_foreign_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(README)
    for attempt in (lambda: TuningLog(path).append(record()), TuningLog(path).check_writable):
        with pytest.raises(LogError, match=r"not a tuning log: expected a first line such as .* got b'# How to run'"):
            attempt()
    assert path.read_text() == README


def test_a_log_with_foreign_lines_in_between_is_appended_to(log: TuningLog) -> None:
    log.append(record(16))
    with log.path.open("a") as file:
        file.write(README)
    log.append(record(32))
    with pytest.warns(UserWarning, match="skipped"):
        assert tiles(log) == [16, 32]


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is a directory; expected the path of a tuning log"):
        TuningLog(tmp_path).append(record())
    with pytest.raises(LogError, match="cannot read"):
        list(TuningLog(tmp_path))


def test_a_path_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match=r"cannot append to .*; nothing was written"):
        TuningLog(tmp_path / "file" / "tuning.jsonl").append(record())


def test_checking_that_a_log_is_writable_adds_nothing_to_it(log: TuningLog) -> None:
    log.check_writable()
    assert log.path.read_bytes() == b""
    log.append(record(16))
    log.path.write_bytes(log.path.read_bytes()[:-1])
    before = log.path.read_bytes()
    log.check_writable()
    assert log.path.read_bytes() == before


def test_records_are_filtered_by_workload_target_and_policy_whatever_generator_made_them(log: TuningLog) -> None:
    other = ops.matmul(64, 64, 128)
    log.append(record(1), record(2, workload=other), record(4, target=A100), record(8, generator="g2"))
    log.append(record(16, policy="hot"))

    def found(**asked: object) -> list[int]:
        return [t[1] for r in log.records(**asked) if isinstance(t := r.schedule.knobs["tile"], tuple)]  # type: ignore[arg-type]

    assert found() == [1, 2, 4, 8, 16]
    assert found(workload=other) == [2]
    assert found(target=A100) == [4]
    assert found(policy="hot") == [16]
    assert found(workload=SMALL, target=H200, policy="cold") == [1, 8]


def test_a_workload_is_found_by_its_structure_not_its_name(log: TuningLog) -> None:
    log.append(record(1))
    renamed = Workload("mine", SMALL.inputs, SMALL.stages, SMALL.precision)
    assert len(log.records(workload=renamed)) == 1


def test_best_is_the_lowest_median_of_that_workload_target_and_policy_that_is_good(log: TuningLog) -> None:
    log.append(record(1, 3e-3), record(2, 2e-3), record(4, None), record(8, 2e-3))
    log.append(record(16, 1e-3, generator="g2"), record(32, 1e-4, policy="hot"), record(64, 1e-5, target=A100))
    best = log.best(SMALL, H200, is_good=lambda r: r.provenance.generator == "g1")
    assert best is not None
    assert best.schedule == record(2).schedule
    anyone = log.best(SMALL, H200)
    assert anyone is not None
    assert anyone.schedule == record(16).schedule
    assert log.best(ops.matmul(8, 8, 8), H200) is None


def test_nearest_orders_by_shape_then_target_then_latency(log: TuningLog) -> None:
    near, far = ops.matmul(128, 64, 64), ops.matmul(1024, 1024, 64)
    log.append(record(1, workload=far), record(2, workload=near, target=A100), record(4, 2e-3, workload=near))
    log.append(record(8, 1e-3, workload=near), record(16, None, workload=near), record(32))
    found = [t[1] for r in log.nearest(SMALL, H200, 10) if isinstance(t := r.schedule.knobs["tile"], tuple)]
    assert found == [32, 8, 4, 2, 1]
    assert len(log.nearest(SMALL, H200, 2)) == 2


def test_nearest_has_elements_of_the_same_type_then_of_the_same_width_then_others_of_one_shape(log: TuningLog) -> None:
    single, half, brain = (ops.matmul(64, 64, 64, dtype=dtype) for dtype in ("float32", "float16", "bfloat16"))
    longer = ops.matmul(64, 64, 65, dtype="bfloat16")
    log.append(record(1, workload=longer), record(2, 1e-5, workload=single), record(4, 1e-4, workload=half))
    log.append(record(8, workload=brain, target=A100))
    assert tiles(log.nearest(brain, H200, 10)) == [8, 4, 2, 1]


def test_a_search_is_told_fast_and_slow_schedules_of_more_than_one_workload() -> None:
    near, far = ops.matmul(128, 64, 64), ops.matmul(1024, 1024, 64)
    long = [record(tile, tile * 1e-6, workload=near) for tile in range(1, 2 * MOST_TOLD + 1)]
    alone, both = telling(long), telling([*long, *(record(tile, workload=far) for tile in range(1, 2 * MOST_TOLD))])
    assert len(alone) == len(both) == MOST_TOLD
    assert sum(r.workload == far for r in both) == MOST_TOLD // 2
    # Four fifths are the fastest, and the rest lie among all others.
    fast = round(0.8 * MOST_TOLD)
    assert tiles(alone)[: fast - 1] == list(range(1, fast))
    assert max(tiles(alone)) > 1.9 * MOST_TOLD
    assert telling(long[:10]) == long[:10]


def test_a_search_is_told_of_a_schedule_once_by_its_latest_record() -> None:
    again = [record(1, 1e-6), record(2, 2e-6), record(1, 3e-6, finals=7), record(2, 4e-6, finals=7)]
    assert telling(again) == again[2:]
    assert telling([record(1), record(1, target=A100)]) == [record(1), record(1, target=A100)]


def test_nearest_is_of_this_kind_of_device_and_way_of_timing_before_it_is_limited(log: TuningLog) -> None:
    far = ops.matmul(1024, 1024, 64)
    log.append(
        record(1, target=cpu("a CPU", 8, 1, 32768, 2**20, 1e11)), record(2, policy="hot"), record(4, workload=far)
    )
    assert tiles(log.nearest(SMALL, H200, 1, "cold")) == [4]
    assert tiles(log.nearest(SMALL, H200, 3)) == [2, 4]


def test_nearest_leaves_out_other_operators(log: TuningLog) -> None:
    log.append(record(1, workload=ops.softmax(64, 64)))
    assert log.nearest(SMALL, H200, 10) == []


def test_nearest_finds_what_is_called_something_else_and_takes_its_inputs_in_another_order(log: TuningLog) -> None:
    near, far = ops.matmul(128, 64, 64), ops.matmul(64, 64, 1024)
    log.append(record(1, workload=far), record(2, workload=near))
    turned = Workload("mine", SMALL.inputs[::-1], SMALL.stages, SMALL.precision)
    assert [r.workload for r in log.nearest(turned, H200, 10)] == [near, far]
    log.append(record(4, workload=turned))
    assert [r.workload for r in log.nearest(near, H200, 2)] == [near, turned]


def test_nearest_counts_an_epilogue_as_a_small_difference(log: TuningLog) -> None:
    log.append(
        record(1, workload=ops.matmul(64, 64, 1024)), record(2, workload=ops.matmul(64, 64, 64, epilogue="bias"))
    )
    assert [r.workload.key for r in log.nearest(SMALL, H200, 1)] == [ops.matmul(64, 64, 64, epilogue="bias").key]


def test_the_users_log_is_where_the_xdg_directory_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert user_log_path() == tmp_path / "autosched" / "tuning.jsonl"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert user_log_path() == Path.home() / ".local" / "share" / "autosched" / "tuning.jsonl"


def test_shipped_logs_hold_nothing_but_records() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in shipped_logs():
            assert list(TuningLog(path))


def test_a_line_is_one_json_object_without_line_breaks(log: TuningLog) -> None:
    log.append(record(1), record(2, None))
    lines = log.path.read_text().splitlines()
    assert len(lines) == 2
    assert all(json.loads(line)["schema"] == 1 for line in lines)


def test_code_for_an_older_gpu_does_not_mix_with_the_device_s_own(log: TuningLog) -> None:
    older = dataclasses.replace(H200, name="mine", capability=70)
    log.append(record(16, 2e-3), record(32, 1e-3, target=older))
    own, others = log.best(SMALL, H200), log.best(SMALL, older)
    assert own is not None
    assert others is not None
    assert tiles([own, others]) == [16, 32]
    assert tiles(log.records(SMALL, older)) == [32]
