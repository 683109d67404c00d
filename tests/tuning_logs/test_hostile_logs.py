"""Logs of somebody who means harm: what they say is data in files, tables, errors and on terminals, and never runs."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from autosched.backends import spaces
from autosched.backends.build import render
from autosched.cli.commands import app
from autosched.machine import devices
from autosched.measuring import failures, repro
from autosched.replaying.replay import find_best
from autosched.standalone.file import workload_text
from autosched.standalone.tuned import Tuned
from hostile_records import parts, renamed, replaced, whole_record
from made_up_search import FakeMeasurer, search
from search_spaces import AutoschedError, InputError, Schedule, Target, Workload, ops, target_named
from tuning_logs import Measurement, TuningLog, TuningRecord
from tuning_logs.exchange.files import write_table
from tuning_logs.exchange.own_logs import tables_of

CPU, H200, V100 = devices.cpu_target(), target_named("h200"), target_named("v100")
OP = ops.softmax(8, 16)
pytestmark = pytest.mark.filterwarnings("ignore:.*skipped, not a tuning record")
# What does something where it is taken for code, and says where it was.
CODE = '__import__("pathlib").Path("was_run").touch()'
# Everything that ends a line, a comment or a string somewhere, moves a cursor, is markup, or cannot be encoded.
_ENDS = ("\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\\\n")
TEXTS = {
    "code": f"x\"\"\"; {CODE}; \"\"\" '''; {CODE}; ''' */ {CODE} /* " + "".join(e + CODE for e in _ENDS) + "\\ ",
    "terminal": "x\x1b[2J\x1b]0;title\x07\x9b2J\x08\u202e\u2066\u200f[red]text[/red][link=file:///]",
    "surrogate": "x\ud800",
}


def hostile(record: TuningRecord, text: str) -> Iterator[dict[str, Any]]:
    """The record with each of its texts, and each name of a knob or version, replaced in turn."""
    data = record.to_json()
    for path, part in parts(data):
        if isinstance(part, str):
            yield replaced(data, path, text)
        if path[:-1] in (("schedule", "values"), ("provenance", "versions")):
            yield renamed(data, path, text)


def write(log: Path, *lines: dict[str, Any]) -> Path:
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return log


def read(log: Path) -> list[TuningRecord]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(TuningLog(log))


def run(*arguments: str | Path) -> str:
    """What a command writes, which ends without a traceback, and writes nothing that a terminal would obey."""
    done = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})
    assert isinstance(done.exception, SystemExit | None), done.exception
    assert [c for c in done.output if not c.isprintable() and c != "\n"] == []
    return done.output


def bound(records: list[TuningRecord]) -> Iterator[tuple[TuningRecord, Schedule]]:
    """Those of the records whose schedules this version can print."""
    for record in records:
        try:
            yield record, spaces.build(record.workload, record.target).bind(record.schedule)
        except AutoschedError:
            continue


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "was_run").exists()


@pytest.fixture(params=TEXTS)
def text(request: pytest.FixtureRequest) -> str:
    return TEXTS[request.param]


def test_a_file_of_a_hostile_record_is_imported_and_runs_nothing_of_it(text: str, tmp_path: Path) -> None:
    log = write(tmp_path / "tuning.jsonl", *hostile(whole_record(OP, H200), text))
    written = list(bound(read(log)))
    # The others say another schedule, or are no records.
    assert len(written) >= (0 if "\ud800" in text else 6)
    for number, (record, schedule) in enumerate(written):
        file = tmp_path / f"kernel_{number}.py"
        file.write_text(workload_text(Tuned.of(record, schedule, record.workload)), encoding="utf-8")
        run = [n.id for n in ast.walk(ast.parse(file.read_bytes())) if isinstance(n, ast.Name)]
        assert "max_sum_8_kernel" in file.read_text() or record.workload.name != OP.name
        assert "__import__" not in run
        load(file)


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_of_cuda_kernels_quotes_no_hostile_text_in_their_source(text: str, tmp_path: Path) -> None:
    log = write(tmp_path / "tuning.jsonl", *hostile(whole_record(OP, V100), text))
    for record, schedule in bound(read(log)):
        tree = ast.parse(workload_text(Tuned.of(record, schedule, record.workload)))
        assert "__import__" not in [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]


@pytest.mark.parametrize(("target", "mark"), [(CPU, ";"), (V100, "//"), (H200, "#")], ids=["llvm", "cuda", "triton"])
def test_generated_code_has_hostile_text_in_comments_alone(
    target: Target, mark: str, text: str, tmp_path: Path
) -> None:
    log = write(tmp_path / "tuning.jsonl", *hostile(whole_record(OP, target), text))
    for _, schedule in bound(read(log)):
        # As a compiler for C++ or LLVM, or Python, may tell where a line ends.
        lines = render(schedule, target).splitlines()
        assert not [line for line in lines if CODE in line and not line.startswith(mark)]
        assert not [line for line in lines if line.startswith(mark) and line.rstrip().endswith("\\")]


def test_commands_show_what_a_hostile_log_says_and_nothing_of_it_moves_a_cursor(text: str, tmp_path: Path) -> None:
    good = whole_record(OP, CPU)
    log = write(tmp_path / "tuning.jsonl", *hostile(good, text), good.to_json())
    shown = run("log", "show", "--log", log)
    assert OP.label in shown
    if "[red]" in text:
        assert "[red]text[/red]" in shown
    for command in (
        ("log", "best", "--log", log),
        ("certificate", log),
        ("log", "diff", log, log),
        ("log", "merge", log, "-o", tmp_path / "merged.jsonl"),
        ("log", "export", "--log", log, "--to", tmp_path / "records"),
        ("replay", "softmax", "rows=8", "columns=16", "--log", log, "--target", "cpu", "--source"),
        ("replay", "softmax", "rows=8", "columns=32", "--log", log, "--target", "cpu"),
    ):
        run(*command)
    assert (good.key, good.schedule) in [(r.key, r.schedule) for r in read(tmp_path / "merged.jsonl")]


def test_what_is_exported_for_other_tuners_comes_back_and_stays_data(text: str, tmp_path: Path) -> None:
    log = write(tmp_path / "tuning.jsonl", *hostile(whole_record(OP, CPU), text))
    for number, table in enumerate(tables_of(TuningLog(log)) if "\ud800" not in text else ()):
        for form in ("t4", "kernel-tuner"):
            file = tmp_path / f"{number}.{form}.json"
            write_table(file, table, form)
            run("log", "import", file, "--log", tmp_path / "imported.jsonl")
    with warnings.catch_warnings(action="error"):
        list(TuningLog(tmp_path / "imported.jsonl"))


def test_a_log_with_hostile_records_replays_and_goes_on_with_the_good_one(text: str, tmp_path: Path) -> None:
    good = whole_record(OP, CPU)
    log = write(tmp_path / "tuning.jsonl", *hostile(good, text), good.to_json())
    with warnings.catch_warnings(action="ignore"):
        found = find_best(OP, CPU, [log])
        search(log, FakeMeasurer(), 4, OP)
    assert found.schedule == good.schedule


def test_a_failed_trial_is_kept_and_shown_with_what_it_says_as_text(text: str, tmp_path: Path) -> None:
    good = whole_record(OP, CPU)
    failed = dataclasses.replace(good, measurement=Measurement("run_crash", detail=text))
    ((_, schedule),) = bound([failed])
    place = failures.keep(tmp_path / "tuning.jsonl", failed, schedule)
    assert place is not None
    said = (place / "README.txt").read_text(encoding="utf-8")
    assert [c for c in said if not c.isprintable() and c != "\n"] == []
    assert repro._read(place).key == good.key


@pytest.mark.parametrize("name", ["", "1x", "a b", 'x"""; y', "x\n", "é\u202e", "x\ud800", "a.b"])
def test_an_input_stage_or_axis_that_is_no_identifier_is_refused(name: str) -> None:
    (stage,), (tensor,) = ops.pointwise(8, 8, "relu").stages, ops.pointwise(8, 8, "relu").inputs
    axes = (dataclasses.replace(stage.axes[0], name=name), *stage.axes[1:])
    for make in (
        lambda: Workload("w", (dataclasses.replace(tensor, name=name),), (stage,)),
        lambda: Workload("w", (tensor,), (dataclasses.replace(stage, name=name),)),
        lambda: Workload("w", (tensor,), (dataclasses.replace(stage, axes=axes),)),
    ):
        with pytest.raises(InputError, match=r"expected a name of letters, digits and _, such as x0"):
            make()


def test_an_error_shows_what_it_quotes_as_escapes() -> None:
    assert str(InputError("got \x1b[2J\u202e\ud800 in\nline 2")) == "got \\x1b[2J\\u202e\\ud800 in\nline 2"


def test_no_command_writes_outside_of_the_folder_that_a_log_is_exported_to(tmp_path: Path) -> None:
    good = whole_record(OP, CPU)
    data = good.to_json()
    paths = [p for p, part in parts(data) if isinstance(part, str)]
    log = write(tmp_path / "tuning.jsonl", *(replaced(data, p, "/../../../outside") for p in paths), data)
    (tmp_path / "a" / "b").mkdir(parents=True)
    run("log", "export", "--log", log, "--to", tmp_path / "a" / "b" / "records")
    assert {p.name for p in tmp_path.iterdir()} == {"tuning.jsonl", "a"}
    assert [p.name for p in (tmp_path / "a" / "b").iterdir()] == ["records"]
