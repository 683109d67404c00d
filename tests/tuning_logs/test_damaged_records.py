"""Records of which a part is not what it should be: skipped with a warning, whatever is damaged; all others hold."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autosched.cli.commands import app
from autosched.machine import devices
from autosched.replaying.prediction_file import PredictionFile
from autosched.replaying.predictions import Prediction, Predictions
from autosched.replaying.replay import find_best
from hostile_records import damaged, parts, whole_record
from made_up_search import FakeMeasurer, search
from search_spaces import Axis, DataError, InputError, LogError, Stage, Tensor, Workload, ops, target_named
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.stages import MAX_DEPTH
from tuning_logs import Measurement, OwnKernel, TuningLog, TuningRecord
from tuning_logs import log as log_module
from tuning_logs.exchange.files import read_tables, write_table
from tuning_logs.exchange.own_logs import records_of, tables_of

CPU = devices.cpu_target()
OP = ops.pointwise(8, 8, "relu")
GOOD = whole_record(OP, CPU)
SKIPPED = "ignore:.*skipped, n"


def write(log: Path, lines: Sequence[Any]) -> Path:
    log.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return log


def read(log: Path) -> tuple[list[TuningRecord], list[str]]:
    """Its records, and what was warned of."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        found = list(TuningLog(log))
    return found, [str(w.message) for w in given]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of every record that is damaged in one place, and two whole ones around them."""
    data = GOOD.to_json()
    path = tmp_path_factory.mktemp("damaged") / "tuning.jsonl"
    return write(path, [data, *damaged(data), data])


@pytest.fixture(params=["parsed", "indexed"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Read as small logs are, and as large ones are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if request.param == "indexed":
        monkeypatch.setattr(log_module, "INDEX_FROM_BYTES", 0)


def test_a_damaged_record_is_skipped_with_a_warning_that_names_file_and_line(log: Path, size: None) -> None:
    found, warned = read(log)
    lines = log.read_text().count("\n")
    assert found[0] == found[-1] == GOOD
    # Some are other records that hold, of another size or device, say; and a warning each for those that do not.
    assert len(found) + len(warned) == lines
    assert len(warned) > 0.8 * lines
    numbers = [int(w.removeprefix(f"{log}, line ").partition(": skipped, not a tuning record (")[0]) for w in warned]
    assert numbers == sorted({*numbers})


@pytest.mark.filterwarnings(SKIPPED)
def test_what_holds_of_a_damaged_log_can_be_filed_written_and_read_again(log: Path, tmp_path: Path) -> None:
    found, _ = read(log)
    TuningLog(tmp_path / "again.jsonl").append(*found)
    again, warned = read(tmp_path / "again.jsonl")
    assert warned == []
    assert [(r.key, r.schedule, r.measurement.status) for r in again] == [
        (r.key, r.schedule, r.measurement.status) for r in found
    ]


@pytest.mark.filterwarnings(SKIPPED)
def test_a_damaged_log_replays_and_a_search_goes_on_with_it(log: Path, size: None, tmp_path: Path) -> None:
    copy = tmp_path / "tuning.jsonl"
    copy.write_bytes(log.read_bytes())
    assert find_best(OP, CPU, [copy]).schedule == GOOD.schedule
    known = search(copy, FakeMeasurer(), 3, OP, history=[copy], strategy="evolutionary", cost_model="xgboost")
    assert known.best is not None


@pytest.mark.parametrize("command", [("show",), ("best",), ("merge",), ("diff",)], ids="".join)
def test_commands_on_a_damaged_log_end_without_a_traceback(command: Sequence[str], log: Path, tmp_path: Path) -> None:
    named = ["--log", str(log)]
    if command == ("merge",):
        named = [str(log), "-o", str(tmp_path / "merged.jsonl")]
    elif command == ("diff",):
        named = [str(log), str(log)]
    done = CliRunner().invoke(app, ["log", *command, *named])
    assert done.exit_code == 0, done.exception
    assert "skipped, not a tuning record" in done.output


@pytest.mark.parametrize(
    "subject", [OwnKernel("k", "0123", (("M", 8), ("flag", None)), (("x", "float32"),)), ops.matmul(4, 4, 4)]
)
def test_whatever_part_of_a_record_is_damaged_reading_it_gives_a_record_or_one_kind_of_error(
    subject: OwnKernel | Workload,
) -> None:
    data = {**GOOD.to_json(), "workload": subject.to_json()}
    refused = 0
    for one in damaged(data):
        try:
            TuningRecord.from_json(one)
        except DataError as error:
            refused += bool(str(error))
    assert refused > 0


DATA = json.dumps(GOOD.to_json())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (DATA.replace('"seed": 1', '"seed": NaN'), "NaN is no number of JSON"),
        (DATA.replace('"power_w": 300.0', '"power_w": Infinity'), "Infinity is no number of JSON"),
        (DATA.replace('"power_w": 300.0', '"power_w": 1e400'), "power_w inf, expected a number"),
        (DATA.replace('"seed": 1', f'"seed": {"1" * 5000}'), "integer string conversion"),
        (DATA.replace('"seed": 1', '"seed": 1, "seed": 2'), "'seed' is given twice"),
        (DATA[:-1] + ', "target": {}}', "target is given twice"),
        (DATA[:-1] + ', "schema": 1}', "schema is given twice"),
        (DATA.replace('[["r", 8], ', '[["r", 4611686018427387904], '), "at most 2147483647"),
        (DATA.replace('"detail": "a detail"', '"detail": "\\ud800"'), "expected text that UTF-8 has"),
        (DATA.replace('"seed": 1', '"seed": ' + "[" * 900 + "]" * 900), "seed a list, expected an integer"),
        (DATA.replace('"seed": 1', '"seed": ' + "[" * 90000 + "]" * 90000), "RecursionError"),
        (DATA.replace('"policy": "cold"', '"policy": "../cold"'), "expected a word"),
        (DATA.replace('"lanes": ', '"lanes": 10000'), "target: lanes"),
        (DATA.encode().replace(b"a detail", b"a \xff detail"), "can't decode byte 0xff"),
    ],
)
def test_a_line_that_breaks_parsers_costs_itself_alone(line: str | bytes, reason: str, tmp_path: Path) -> None:
    content = line if isinstance(line, bytes) else line.encode()
    assert content != DATA.encode()
    path = tmp_path / "tuning.jsonl"
    path.write_bytes(content + b"\n" + DATA.encode() + b"\n")
    found, (warned,) = read(path)
    assert found == [GOOD]
    assert warned.startswith(f"{path}, line 1: skipped")
    assert reason in warned


def test_what_a_line_says_twice_changes_no_other_line(tmp_path: Path) -> None:
    other = json.dumps(ops.pointwise(4, 4, "relu").to_json())
    path = write(tmp_path / "tuning.jsonl", [f'{DATA[:-1]}, "workload": {other}}}', DATA])
    found, warned = read(path)
    assert [r.workload for r in found] == [OP]
    assert len(warned) == 1


def test_expressions_deeper_than_python_can_walk_are_refused_however_many_stages_they_are_of() -> None:
    def chain(stages: int, operators: int) -> Workload:
        made = []
        for number in range(stages):
            e: ex.Expression = ex.Access(f"s{number - 1}" if number else "x", (axis_index("i"),))
            for _ in range(operators):
                e = ex.call("neg", e)
            made.append(Stage(f"s{number}", (Axis("i", 8),), e))
        return Workload("deep", (Tensor("x", (8,), "float32"),), tuple(made))

    assert chain(2, MAX_DEPTH // 2 - 2).key
    for wide, deep in ((2, MAX_DEPTH // 2 + 2), (50, 20), (1, 400)):
        with pytest.raises(InputError, match=f"lie within each other; at most {MAX_DEPTH} may"):
            chain(wide, deep)


def test_a_knob_is_what_the_space_has_of_it_where_a_record_says_true_or_1_0(tmp_path: Path) -> None:
    data = GOOD.to_json()
    for name, value in data["schedule"]["values"].items():
        if value == 1 or value is False:
            data["schedule"]["values"][name] = float(value)
    assert json.dumps(data) != DATA
    (found,), warned = read(write(tmp_path / "tuning.jsonl", [data]))
    assert warned == []
    assert find_best(OP, CPU, [tmp_path / "tuning.jsonl"]).schedule == found.schedule == GOOD.schedule


@pytest.mark.parametrize("form", ["t4", "kernel-tuner"])
def test_a_damaged_table_is_refused_or_makes_records_that_can_be_read(form: Any, tmp_path: Path) -> None:
    (table,) = tables_of([GOOD])
    write_table(tmp_path / "whole.json", table, form)
    whole = json.loads((tmp_path / "whole.json").read_text())
    made = []
    for one in damaged(whole):
        (tmp_path / "damaged.json").write_text(json.dumps(one))
        try:
            tables = read_tables(tmp_path / "damaged.json")
        except (LogError, InputError):
            continue
        for found in tables:
            try:
                made += records_of(found)
            except ValueError:
                continue
    TuningLog(tmp_path / "made.jsonl").append(*made)
    found, warned = read(tmp_path / "made.jsonl")
    assert warned == []
    assert len(found) == len(made) > 0


def test_damaged_predictions_are_skipped_with_a_warning(tmp_path: Path) -> None:
    one = Prediction(GOOD.schedule, 1e-5, (1e-6, 1e-4), GOOD.measurement.facts, "spills")
    data = Predictions(OP, target_named("h200"), "cold", (one,), "learnt from nothing").to_json()
    file = PredictionFile(tmp_path / "tuning.jsonl")
    write(file.path, [*damaged(data), data])
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        found = list(file)
        assert file.latest(OP, target_named("h200"), "cold") is not None
    assert str(found[-1]) == str(found[-1])
    assert len(given) > len([*parts(data)])
    assert f"{file.path}, line 1: skipped, no predictions (" in str(given[0].message)


def test_what_a_compiler_says_in_no_encoding_is_written_so_that_it_can_be_read(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "tuning.jsonl")
    said = TuningRecord(OP, CPU, GOOD.schedule, Measurement("run_error", detail="file \udcff.c"), GOOD.provenance)
    log.append(said)
    (found,), warned = read(log.path)
    assert (found.measurement.detail, warned) == (r"file \udcff.c", [])
