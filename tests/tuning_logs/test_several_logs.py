"""Several logs: merged, compared, exported for other tuners and imported again, from the command line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autosched.cli.commands import app
from certified_records import certificate, certified
from log_records import A100, H200, SMALL, line_of, record, tiles
from recorded_tables import small_table
from search_spaces import LogError, Schedule, ops
from tuning_logs import Measurement, TuningLog, TuningRecord, Versions
from tuning_logs.alternative import Alternative
from tuning_logs.exchange.files import write_table
from tuning_logs.measurement import ALTERNATIVES
from tuning_logs.packing import write_packed
from tuning_logs.several.differences import differences
from tuning_logs.several.merging import merged, new_to
from tuning_logs.storage import appending


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["log", *map(str, arguments)], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})


def at(unix_s: float, tile: int, detail: str = "") -> TuningRecord:
    told = record(tile, None if detail else 1e-3)
    measurement = dataclasses.replace(told.measurement, detail=detail)
    return dataclasses.replace(
        told, measurement=measurement, provenance=dataclasses.replace(told.provenance, unix_s=unix_s)
    )


def repeated(tile: int, latency_s: float, versions: Versions = (), **of: object) -> TuningRecord:
    """A record of twenty repeats that scatter by 1 %."""
    told = record(tile, **of)  # type: ignore[arg-type]
    repeats = tuple(latency_s * (1 + 0.001 * (number % 10)) for number in range(20))
    provenance = dataclasses.replace(told.provenance, versions=versions)
    return dataclasses.replace(told, measurement=Measurement("ok", repeats), provenance=provenance)


def test_a_merged_log_holds_every_measurement_once_by_time(tmp_path: Path) -> None:
    first, second, both = (tmp_path / f"{name}.jsonl" for name in ("first", "second", "both"))
    TuningLog(first).append(at(1.0, 16), at(3.0, 32))
    TuningLog(second).append(at(1.0, 16), at(2.0, 64))
    shown = run("merge", first, second, "-o", both)
    assert shown.output.strip() == f"{both}: 3 records, 1 duplicates left out"
    assert tiles(TuningLog(both)) == [16, 64, 32]


def test_of_two_copies_the_one_with_the_reason_of_a_failure_stays() -> None:
    assert [r.measurement.detail for r in merged([at(1.0, 16, "x"), at(1.0, 16, "too slow")])] == ["too slow"]


def test_of_two_copies_the_one_with_alternatives_stays() -> None:
    timed = dataclasses.replace(
        at(1.0, 16), measurement=Measurement("ok", (1e-3,), rival=Alternative("a", 1.0, 1.0, 1.0))
    )
    plain = dataclasses.replace(timed, measurement=Measurement("ok", (1e-3,)))
    assert merged([plain, timed, plain]) == [timed]


def test_every_kind_of_alternative_and_a_certificate_of_any_copy_stay() -> None:
    one = Alternative("a", 1.0, 1.0, 1.0)
    plain = Measurement("ok", (1e-3,))
    copies = [
        dataclasses.replace(at(1.0, 16), measurement=dataclasses.replace(plain, **{name: one})) for name in ALTERNATIVES
    ]
    copies.append(certified(at(1.0, 16), certificate()))
    for given in (copies, copies[::-1]):
        (kept,) = merged(given)
        assert kept.measurement.alternatives == (one,) * len(ALTERNATIVES)
        assert kept.measurement.certificate == certificate()


def test_copies_with_cuts_of_different_functions_are_one_with_both() -> None:
    cuts = [Alternative(name, 1.0, 1.0, 1.0) for name in "abc"]
    copies = [
        dataclasses.replace(at(1.0, 16), measurement=Measurement("ok", (1e-3,), cuts=noted))
        for noted in ((cuts[0], cuts[1]), (cuts[2],), ())
    ]
    for given in (copies, copies[::-1]):
        (record,) = merged(given)
        assert {cut.name for cut in record.measurement.cuts} == {"a", "b", "c"}


def test_a_log_of_another_version_is_refused_in_one_line(tmp_path: Path) -> None:
    later = tmp_path / "later.jsonl"
    later.write_text('{"schema": 99}\n' * 5)
    refused = run("merge", later, "-o", tmp_path / "both.jsonl")
    assert refused.exit_code == 2
    assert refused.output.count("schema 99") == 1
    assert not (tmp_path / "both.jsonl").exists()


def test_a_log_without_a_line_adds_nothing(tmp_path: Path) -> None:
    empty, one = tmp_path / "empty.jsonl", tmp_path / "one.jsonl"
    empty.touch()
    TuningLog(one).append(at(1.0, 16))
    assert "1 record," in run("merge", empty, one, "-o", tmp_path / "both.jsonl").output


def test_a_torn_last_line_is_left_out_with_a_warning(tmp_path: Path) -> None:
    torn, both = tmp_path / "torn.jsonl", tmp_path / "both.jsonl"
    TuningLog(torn).append(at(1.0, 16))
    torn.write_bytes(torn.read_bytes() + line_of(at(2.0, 32))[:-20])
    shown = run("merge", torn, torn, "-o", both)
    assert "line 2: skipped" in " ".join(shown.output.split())
    assert tiles(TuningLog(both)) == [16]


def test_a_merged_log_may_be_compressed(tmp_path: Path) -> None:
    log, both = tmp_path / "log.jsonl", tmp_path / "both.jsonl.gz"
    TuningLog(log).append(at(1.0, 16), at(2.0, 32))
    assert run("merge", log, "-o", both).exit_code == 0
    assert tiles(TuningLog(both)) == [16, 32]


def test_a_folder_of_compressed_logs_is_merged_too(tmp_path: Path) -> None:
    folder, both = tmp_path / "records", tmp_path / "both.jsonl"
    write_packed(folder / "h200" / "one.jsonl.gz", [at(2.0, 16)])
    write_packed(folder / "h200" / "two.jsonl.gz", [at(1.0, 32)])
    assert run("merge", folder, "-o", both).exit_code == 0
    assert tiles(TuningLog(both)) == [32, 16]


def test_merging_refuses_what_would_lose_something(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    TuningLog(log).append(at(1.0, 16))
    (tmp_path / "notes.txt").write_text("notes\n")
    for arguments, said in (
        ([log, "-o", log], "exists already"),
        ([log, tmp_path / "absent.jsonl", "-o", tmp_path / "c.jsonl"], "no such log; expected a tuning log"),
        ([log, tmp_path / "notes.txt", "-o", tmp_path / "c.jsonl"], "is not a tuning log"),
    ):
        shown = run("merge", *arguments)
        assert shown.exit_code == 2
        assert said in shown.output
    assert not (tmp_path / "c.jsonl").exists()


OLD, NEW = (("driver", "570.1"), ("triton", "3.6.0")), (("driver", "580.1"), ("triton", "3.6.0"))


def test_a_kernel_that_became_slower_is_found_with_what_changed() -> None:
    before = [repeated(tile, 1e-3 * tile, OLD) for tile in range(1, 9)]
    after = [repeated(tile, 1.2e-3 * tile, NEW) for tile in range(1, 9)]
    (found,) = differences(before, after)
    assert found.verdict == "slower"
    assert found.ratio == pytest.approx(1.2)
    assert (found.same_schedules, found.same_ratio) == (8, pytest.approx(1.2))
    assert found.changed == {"driver": ("570.1", "580.1")}


def test_a_search_that_found_more_is_faster_while_the_same_schedules_are_not() -> None:
    before = [repeated(tile, 1e-3 * tile) for tile in range(2, 9)]
    (found,) = differences(before, [*before, repeated(1, 1e-3)])
    assert found.verdict == "faster"
    assert found.same_ratio == 1.0


@pytest.mark.parametrize("ratio", [1.0, 1.03, 0.97])
def test_what_sessions_differ_by_is_no_difference(ratio: float) -> None:
    (found,) = differences([repeated(1, 1e-3)], [repeated(1, ratio * 1e-3)])
    assert found.verdict == "same"


def test_repeats_that_scatter_more_than_the_difference_tell_none() -> None:
    scatter = (0.5, 1.0, 2.0, 1.0, 0.5, 2.0, 1.0, 1.0)
    before = dataclasses.replace(record(1), measurement=Measurement("ok", scatter))
    later = tuple(1.1 * seconds for seconds in scatter[3:] + scatter[:3])
    after = dataclasses.replace(record(1), measurement=Measurement("ok", later))
    (found,) = differences([before], [after])
    assert found.ratio == pytest.approx(1.1)
    assert found.verdict == "same"


def test_devices_are_compared_with_themselves_where_they_can() -> None:
    here, there = repeated(1, 1e-3, target=H200), repeated(1, 2e-3, target=A100)
    assert [d.after.target for d in differences([here, there], [there])] == [A100]
    (moved,) = differences([here], [there])
    assert moved.changed == {"device": ("NVIDIA H200", A100.device)}


def test_failures_and_other_kernels_are_not_compared() -> None:
    other = repeated(1, 1e-3, workload=ops.matmul(32, 32, 32))
    assert differences([record(1, None), other], [repeated(1, 1e-3)]) == []


def test_the_command_prints_lines_and_json(tmp_path: Path) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    TuningLog(before).append(repeated(1, 1e-3, OLD))
    TuningLog(after).append(repeated(1, 2e-3, NEW))
    _, line, count = run("diff", before, after).output.splitlines()
    assert "slower" in line
    assert "driver 570.1 -> 580.1" in line
    assert count == "1 slower, 0 faster, 0 the same within noise"
    (told,) = json.loads(run("diff", before, after, "--json").output)
    assert (told["verdict"], told["ratio"], told["key"]) == ("slower", 2.0, SMALL.key)


def test_logs_without_a_kernel_in_common_are_refused(tmp_path: Path) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    TuningLog(before).append(record(1))
    TuningLog(after).append(record(1, workload=ops.matmul(32, 32, 32)))
    shown = run("diff", before, after)
    assert shown.exit_code == 2
    assert "have no kernel in common" in shown.output


@pytest.mark.parametrize("format", ["kernel-tuner", "t4"])
def test_a_log_goes_to_another_tuner_and_back(tmp_path: Path, format: str) -> None:
    log, table, back = tmp_path / "log.jsonl", tmp_path / "table.json.gz", tmp_path / "back.jsonl"
    TuningLog(log).append(record(16), record(32, None), record(16, target=A100))
    shown = run("export", "--log", log, "--format", format, "--target", "h200", "--to", table)
    assert "2 configurations" in shown.output
    assert run("import", table, "--log", back).output.strip() == f"{back}: 2 records more"
    assert [(r.key, r.schedule, r.measurement.status) for r in TuningLog(back)] == [
        (r.key, r.schedule, r.measurement.status) for r in list(TuningLog(log))[:2]
    ]


@pytest.mark.parametrize("format", ["kernel-tuner", "t4"])
def test_what_comes_back_from_another_tuner_is_known_by_what_was_measured(tmp_path: Path, format: str) -> None:
    log, table, back, both = (tmp_path / name for name in ("log.jsonl", "table.json", "back.jsonl", "both.jsonl"))
    final = repeated(16, 1.23456e-3, finals=7)
    TuningLog(log).append(at(1763868117.1234567, 16), at(2.0000005, 32, "too slow"), at(3.3, 64), final)
    assert run("export", "--log", log, "--format", format, "--to", table).exit_code == 0
    assert run("import", table, "--log", back).output.strip() == f"{back}: 3 records more"
    for again, into in (([table], back), ([table, table], log)):
        shown = run("import", *again, "--log", into)
        assert shown.output.strip() == f"{into}: 0 records more, {3 * len(again)} were there already"
    assert "4 records, 3 duplicates left out" in run("merge", back, log, "-o", both).output
    assert sorted((r.provenance.finals, r.measurement.detail) for r in TuningLog(both)) == [
        (0, ""), (0, ""), (0, "too slow"), (7, "")
    ]  # fmt: skip


@pytest.mark.parametrize("format", ["kernel-tuner", "t4"])
def test_the_knobs_of_every_sketch_come_back_in_their_order(tmp_path: Path, format: str) -> None:
    log, table, back = (tmp_path / name for name in ("log.jsonl", "table.json", "back.jsonl"))
    whole = Schedule("whole", (("rows", 2), ("vectors", (4, 1)), ("columns", 8)), backend="triton")
    looped = Schedule("looped", (("rows", 2), ("columns", 8), ("online", True), ("vectors", (4, 1))))
    before_online = Schedule("looped", (("columns", 8), ("rows", 2), ("vectors", (4, 1))))
    schedules = [whole, looped, before_online]
    TuningLog(log).append(*(dataclasses.replace(record(), schedule=schedule) for schedule in schedules))
    assert run("export", "--log", log, "--format", format, "--to", table).exit_code == 0
    run("import", table, "--log", back)
    assert [r.schedule for r in TuningLog(back)] == schedules
    assert run("import", table, "--log", log).output.strip() == f"{log}: 0 records more, 3 were there already"


def test_copies_are_known_whatever_the_order_of_their_knobs() -> None:
    turned = dataclasses.replace(record(), schedule=Schedule("tiled", record().schedule.values[::-1]))
    assert merged([record(), turned]) == [record()]


def test_nobody_appends_between_finding_what_is_new_and_writing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "LOCK_TIMEOUT_S", 0.01)
    log = TuningLog(tmp_path / "log.jsonl")

    def chosen() -> list[TuningRecord]:
        with pytest.raises(LogError, match="another process has held its lock"):
            TuningLog(log.path).append(record(16))
        return new_to(log, [record(16), record(32)])

    assert tiles(log.append_chosen(chosen)) == tiles(log) == [16, 32]


def test_exporting_asks_which_kernel_is_meant(tmp_path: Path) -> None:
    log, table = tmp_path / "log.jsonl", tmp_path / "table.json"
    TuningLog(log).append(record(16), record(16, workload=ops.matmul(32, 32, 32)))
    for arguments in ([], ["--kernel", "softmax"]):
        shown = run("export", "--log", log, "--format", "t4", "--to", table, *arguments)
        assert shown.exit_code == 2
        assert f"{SMALL.label} on NVIDIA H200 ({SMALL.key})" in shown.output
    assert not table.exists()
    assert run("export", "--log", log, "--format", "t4", "--to", table, "--kernel", SMALL.key).exit_code == 0


def test_importing_another_tuner_s_table_writes_nothing(tmp_path: Path) -> None:
    write_table(tmp_path / "theirs.json", small_table(), "t4")
    shown = run("import", tmp_path / "theirs.json", "--log", tmp_path / "log.jsonl")
    assert shown.exit_code == 2
    assert "of another tuner's kernel no tuning record can be made" in shown.output
    assert not (tmp_path / "log.jsonl").exists()
