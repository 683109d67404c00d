"""The command line, run in this process: what it prints, and how it ends."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner, Result

import autosched
import cost_models
from autosched import strategies
from autosched.cli.commands import app
from autosched.tuning.progress import Progress, progress_display
from search_spaces import SearchSpace
from search_spaces.ops.matmul import OPERANDS
from search_spaces.workloads.activations import CHAIN_LINKS
from tuning_logs import Measurement, TuningLog

SOFTMAX = ["softmax", "rows=64", "columns=128", "--target", "cpu"]


def run(*arguments: str) -> Result:
    # Wide enough for every line of help.
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in which the command line has tuned a small softmax."""
    path = tmp_path_factory.mktemp("cli") / "tuning.jsonl"
    result = run("tune", *SOFTMAX, "--trials", "6", "--strategy", "random", "--log", str(path))
    assert result.exit_code == 0, result.output
    return path


def test_help_names_every_command_and_operator() -> None:
    shown = run("--help").output
    for word in ("demo", "tune", "replay", "compare", "log", "targets", "matmul m= n= k=", "softmax rows= columns="):
        assert word in shown


@pytest.mark.parametrize("command", ["tune", "replay", "compare"])
def test_the_help_of_a_command_has_an_example(command: str) -> None:
    assert f"autosched {command} matmul m=512" in run(command, "--help").output


def test_the_help_of_tune_names_every_strategy_and_cost_model() -> None:
    shown = run("tune", "--help").output
    for word in (*strategies.names(), *cost_models.names()):
        assert word in shown


@pytest.mark.parametrize("command", ["tune", "replay", "compare", "export"])
def test_the_help_of_a_command_lists_dtypes_layouts_and_links(command: str) -> None:
    shown = run(command, "--help").output
    for word in (*OPERANDS, "int32", "nn, nt, tn, tt", *CHAIN_LINKS, "fast_accum=False"):
        assert word in shown


def test_the_version_is_shown() -> None:
    assert run("--version").output == f"autosched {autosched.__version__}\n"


def test_the_package_runs_as_a_module() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "autosched", "--version"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert (ran.returncode, ran.stdout) == (0, f"autosched {autosched.__version__}\n")


def test_remarks_on_the_search_space_come_before_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SearchSpace, "remarks", ("x: read by pointers", "out: written by pointers"))
    result = run("tune", *SOFTMAX, "--trials", "1", "--strategy", "random", "--log", str(tmp_path / "tuning.jsonl"))
    assert result.exit_code == 0, result.output
    assert result.output.startswith("x: read by pointers\nout: written by pointers\n")


def test_tuning_shows_progress_in_plain_lines_and_the_result(tmp_path: Path) -> None:
    path = tmp_path / "tuning.jsonl"
    result = run("tune", *SOFTMAX, "--trials", "4", "--strategy", "random", "--log", str(path))
    assert result.exit_code == 0, result.output
    assert "4/4 trials" in result.output
    assert "x the library" in result.output
    assert "trials/s" in result.output
    assert str(path) in result.output


def test_a_suite_is_tuned_together_and_the_table_says_where_the_trials_went(tmp_path: Path) -> None:
    suite, path = tmp_path / "small.json", tmp_path / "tuning.jsonl"
    shapes = [{"name": "a", "m": 16, "n": 16, "k": 16}, {"name": "b", "m": 32, "n": 16, "k": 16}]
    suite.write_text(json.dumps({"shapes": shapes}))
    arguments = ("--weight", "b=3", "--trials", "34", "--target", "cpu", "--log", str(path))
    result = run("tune-many", str(suite), *arguments)
    assert result.exit_code == 0, result.output
    assert "34/34 trials" in result.output
    assert "1 first" in result.output
    assert len([r for r in TuningLog(path) if not r.provenance.finals]) == 34


def test_a_suite_is_tuned_by_another_strategy_model_and_backend(tmp_path: Path) -> None:
    suite, path = tmp_path / "small.json", tmp_path / "tuning.jsonl"
    suite.write_text(json.dumps({"shapes": [{"name": "a", "m": 16, "n": 16, "k": 16}]}))
    arguments = ("--trials", "2", "--target", "cpu", "--log", str(path), "--strategy", "random")
    result = run("tune-many", str(suite), *arguments, "--cost-model", "roofline", "--backend", "llvm")
    assert result.exit_code == 0, result.output
    assert "2/2 trials" in result.output


@pytest.mark.parametrize(
    ("option", "message"),
    [("--strategy", "strategy"), ("--cost-model", "cost model"), ("--backend", "backend")],
)
def test_a_name_that_is_none_is_refused_before_a_suite_is_tuned(option: str, message: str, tmp_path: Path) -> None:
    suite, path = tmp_path / "small.json", tmp_path / "tuning.jsonl"
    suite.write_text(json.dumps({"shapes": [{"name": "a", "m": 16, "n": 16, "k": 16}]}))
    result = run("tune-many", str(suite), "--target", "cpu", "--log", str(path), option, "nobody")
    assert result.exit_code == 2
    assert message in result.stderr
    assert not path.exists()


def test_tuning_again_says_that_everything_is_known(log: Path) -> None:
    before = log.read_bytes()
    result = run("tune", *SOFTMAX, "--trials", "6", "--log", str(log))
    assert "all known from the log" in result.output
    assert log.read_bytes() == before


def test_replay_checks_the_kernel_and_shows_its_loop_nest(log: Path) -> None:
    result = run("replay", *SOFTMAX, "--log", str(log))
    assert result.exit_code == 0, result.output
    assert "kernel max_sum_64: grid" in result.output
    assert "results agree with the float64 reference" in result.output


def test_export_writes_a_file_for_a_gpu_that_need_not_be_here(tmp_path: Path) -> None:
    product = ["matmul", "m=4096", "n=4096", "k=4096", "dtype=float16"]
    result = run("export", *product, "--target", "h200", "--to", str(tmp_path / "product.py"))
    assert result.exit_code == 0, result.output
    assert "def matmul(a, b):" in (tmp_path / "product.py").read_text(encoding="utf-8")


def test_export_refuses_kernels_for_the_cpu(log: Path, tmp_path: Path) -> None:
    result = run("export", *SOFTMAX, "--log", str(log), "--to", str(tmp_path / "softmax.py"))
    assert result.exit_code == 2
    assert "made by the backend 'llvm', whose code needs autosched to run" in " ".join(result.output.split())
    assert not (tmp_path / "softmax.py").exists()


def test_replay_prints_the_source_alone_for_other_programs_to_read(log: Path) -> None:
    result = run("replay", *SOFTMAX, "--log", str(log), "--source")
    assert "define void" in result.stdout
    assert "results agree" not in result.stdout
    assert "; in0: x[" in result.stdout


def test_drift_of_a_source_alone_is_refused(log: Path) -> None:
    refused = run("replay", *SOFTMAX, "--log", str(log), "--source", "--drift")
    assert refused.exit_code == 2
    assert "--drift times a kernel, and --source builds none" in refused.stderr


@pytest.mark.parametrize(("m", "n", "k", "language"), [(1000, 1000, 1000, "__global__"), (1021, 2039, 4093, "@triton")])
def test_the_source_of_a_shipped_kernel_is_printed_where_its_gpu_is_not(
    m: int, n: int, k: int, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    shipped = ("matmul", f"m={m}", f"n={n}", f"k={k}", "dtype=bfloat16", "layout=nt", "--target", "h200")
    result = run("replay", *shipped, "--source")
    assert result.exit_code == 0, result.output
    assert language in result.stdout
    refused = run("replay", *shipped)
    assert refused.exit_code == 2
    assert "target 'h200' is NVIDIA H200" in refused.stderr


def test_compare_prints_the_table_and_says_what_is_not_available(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("no C++ compiler\nand a long story")

    monkeypatch.setattr(torch, "compile", refuse)
    result = run("compare", *SOFTMAX, "--log", str(log), "--rounds", "2")
    assert result.exit_code == 0, result.output
    for row in ("tuned", "PyTorch library", "PyTorch eager", "nominal roofline", "GB/s"):
        assert row in result.output
    assert "not available: no C++ compiler\n" in result.output


def test_log_show_lists_what_was_tuned(log: Path) -> None:
    shown = run("log", "show", "--log", str(log)).output
    assert "softmax rows=64 columns=128 float32" in shown
    assert str(log) in shown


def test_log_best_lists_the_fastest_schedules_first(log: Path) -> None:
    shown = run("log", "best", "--log", str(log), "--count", "2").output.splitlines()
    kept = TuningLog(log)
    some = next(r for r in kept if r.provenance.finals)
    best = kept.best(some.workload, some.target, some.provenance.policy)
    assert len(shown) == 3
    assert best is not None
    assert f"llvm: {best.schedule.one_line}" in shown[1]


def test_targets_say_what_is_here_and_why_the_others_are_not() -> None:
    lines = run("targets").output.splitlines()
    assert any(line.startswith("cpu") and line.endswith("yes") for line in lines)
    assert any(line.startswith("v100") for line in lines)
    assert lines[-1].startswith(("GPUs cannot be used", "Other GPUs are not here"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune", "matmull", "m=8"], "unknown operator 'matmull'; did you mean 'matmul'?"),
        (["tune", "matmul", "m=8", "n=8"], "matmul needs k=…"),
        (["tune", "matmul", "m", "n=8", "k=8"], "got 'm'; expected NAME=VALUE, such as m=512"),
        (["tune", "matmul", "m=8", "m=9", "n=8", "k=8"], "m is given twice: 8 and 9"),
        (["tune", "matmul", "m=8", "n=8", "k=eight"], "k='eight': expected int"),
        (["tune", "matmul", "m=8", "n=8", "k=8", "q=8"], "unknown argument of matmul 'q'"),
        (["tune", "matmul", "m=8", "n=8", "k=8", "--trials", "0", "--target", "cpu"], "trials=0; expected"),
        (["tune", *SOFTMAX, "--trials", "many"], "--trials many: expected a number, or auto"),
        (
            ["tune-many", "gemm", "--only", "square-512", "--weight", "b=1"],
            "expected NAME=NUMBER, with one of square-512",
        ),
        (["tune-many", "gemm", "--only", "square-512", "--weight", "square-512=x"], "such as square-512=8"),
        (["tune-many", "none.json"], "none.json"),
        (["tune-model", "nothing:there"], "nothing:there: No module named 'nothing'; expected MODULE:FUNCTION"),
        (["tune-model", "math:tau"], "math:tau: float; expected a function without arguments"),
        (["export-model", "math:tau", "--to", "m.py"], "math:tau: float; expected a function without arguments"),
        (["tune-model", "os:getcwd"], "os:getcwd returned str; expected a callable and a sequence of its inputs"),
        (["tune", *SOFTMAX, "--history", "none.jsonl"], "history: there is no file none.jsonl"),
        (["tune", *SOFTMAX, "--history", "none.jsonl", "--cold"], "expected it without --history"),
        (["replay", "matmul", "m=8", "n=8", "k=8", "--target", "cpu", "--log", "none.jsonl"], "no successful record"),
        (["compare", "matmul", "m=8", "n=8", "k=8", "--target", "cpu", "--log", "none.jsonl"], "no successful record"),
        (["log", "show", "--log", "none.jsonl"], "none.jsonl holds no tuning record"),
        (["log", "best", "--log", "none.jsonl", "--count", "0"], "count=0; expected an integer of at least 1"),
        (["repro", "none"], "none holds no failed trial"),
        (["tune", "matmul", "m=8", "n=8", "k=8", "scale=nan", "epilogue=scale"], "constant nan; expected a number"),
        (
            ["tune", "matmul", "m=8", "n=8", "k=8", "batch=0"],
            "batch: size 0 is not allowed; expected a positive integer",
        ),
        (["tune", "matmul", "m=0", "n=8", "k=8"], "m: size 0 is not allowed; expected a positive integer"),
        (["tune", *SOFTMAX, "--policy", "graph"], "timing policy 'graph' launches CUDA graphs, got a CPU"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_misuse_ends_in_one_line_and_status_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["replay", *SOFTMAX],
        ["replay", *SOFTMAX, "--source"],
        ["compare", *SOFTMAX],
        ["export", *SOFTMAX[:3], "--target", "h200", "--to", "kernel.py"],
        ["log", "show"],
        ["log", "best"],
        ["log", "export", "--to", "records"],
    ],
    ids=lambda command: " ".join(c for c in command if c not in SOFTMAX),
)
def test_a_file_that_is_no_log_is_refused_once_and_nothing_is_created(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Of a size at which a log gets an index.
    (tmp_path / "README.md").write_text("# How to run\n\nmilk, eggs\n" * 400_000)
    result = run(*command, "--log", "README.md")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: README.md is not a tuning log: expected a first line such as")
    assert len(result.stderr.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    "command",
    [["tune", *SOFTMAX], ["bench", "gemm", "--suite", "gemm", "--target", "cpu"], ["demo"]],
    ids=lambda c: c[0],
)
def test_a_log_without_its_folder_is_refused_before_anything_is_done(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*command, "--log", "nowhere/tuning.jsonl")
    assert result.exit_code == 2
    assert "error: nowhere/tuning.jsonl: there is no folder nowhere; expected one that exists" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong", [["--strategy", "best"], ["--cost-model", "best"], ["--trials", "0"], ["--log", "."]], ids=lambda w: w[0]
)
def test_wrong_options_are_refused_before_the_library_is_timed(
    wrong: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("timed")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("autosched.machine.timing.interleaved", refuse)
    assert run("tune", *SOFTMAX, *wrong).exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_an_output_without_the_characters_gets_question_marks(log: Path) -> None:
    result = CliRunner(charset="ascii").invoke(app, ["replay", *SOFTMAX, "--log", str(log)])
    assert result.exit_code == 0, result.output
    assert " ?s with cold caches" in result.output
    assert CliRunner(charset="ascii").invoke(app, ["tune", "--help"]).exit_code == 0


def test_a_reader_that_has_had_enough_ends_a_command_quietly(log: Path) -> None:
    command = [sys.executable, "-c", "from autosched.cli import app; app()", "log", "best", "--log", str(log)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 1


def test_a_full_disk_behind_the_output_is_one_line(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("autosched.cli.logs.console", lambda: Console(file=Full()))
    result = run("log", "show", "--log", str(log))
    assert result.exit_code == 2
    assert result.stderr == "error: cannot write: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("command", ["replay", "compare"])
def test_data_that_do_not_fit_in_memory_are_one_line(command: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autosched.machine.memory.free_bytes", lambda device: 1000)
    result = run(command, *SOFTMAX, "--log", str(log))
    assert result.exit_code == 2
    assert "error: out of memory: the inputs of softmax rows=64 columns=128 float32 need" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_failed_trial_is_repeated(log: Path, tmp_path: Path) -> None:
    record = next(r for r in TuningLog(log) if r.measurement.ok)
    failed = dataclasses.replace(record, measurement=Measurement("wrong_result", detail="made up"))
    (tmp_path / "record.json").write_text(json.dumps(failed.to_json()))
    result = run("repro", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "then wrong_result: made up\nnow ok" in result.output


def test_a_terminal_gets_a_live_display() -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=120)
    with progress_display(terminal) as show:
        show(Progress("softmax", 7, 10, 0, 1e-6, 2e-6, (("run_crash", 2),), 3.0))
    assert "7/10 trials, best 1 µs (2.00x the library), failed: 2 run_crash, about 3 s left" in screen.getvalue()


@pytest.mark.parametrize("command", ["tune", "predict", "replay", "export", "compare"])
@pytest.mark.parametrize(
    ("operator", "said"),
    [
        ("nosuch", "error: unknown operator 'nosuch' (allowed: block_sparse_matmul, conv, "),
        ("softmx", "error: unknown operator 'softmx'; did you mean 'softmax'? (allowed: "),
        ("softmax", "error: softmax needs rows=…, columns=…; usage: softmax rows= columns= "),
    ],
)
def test_an_operator_alone_is_looked_up_before_its_sizes_are_missed(command: str, operator: str, said: str) -> None:
    result = run(command, operator, *(["--to", "kernel.py"] if command == "export" else []))
    assert (result.exit_code, said in result.output) == (2, True)


def test_the_certificate_of_a_winner_is_printed_for_people_and_for_machines(log: Path) -> None:
    shown = run("certificate", str(log), "--select", "softmax")
    assert shown.exit_code == 0, shown.output
    for word in ("softmax rows=64 columns=128", "worst error", "guard bands", "itself", "llvmlite", "cold caches"):
        assert word in shown.output
    (printed,) = json.loads(run("certificate", str(log), "--json").output)
    (best,) = [r for r in TuningLog(log) if r.measurement.certificate]
    assert best.measurement.certificate is not None
    assert printed == best.measurement.certificate.to_json()
    nothing = run("certificate", str(log), "--select", "matmul")
    assert nothing.exit_code == 2
    assert "holds no kernel with 'matmul' in its name" in nothing.output


def test_a_record_without_a_certificate_says_so(log: Path, tmp_path: Path) -> None:
    (best,) = [r for r in TuningLog(log) if r.measurement.certificate]
    older = dataclasses.replace(best, measurement=dataclasses.replace(best.measurement, certificate=None))
    TuningLog(tmp_path / "older.jsonl").append(older)
    assert "no certificate" in run("certificate", str(tmp_path / "older.jsonl")).output
    assert json.loads(run("certificate", str(tmp_path / "older.jsonl"), "--json").output) == []


def test_winners_are_verified_line_by_line_with_a_file_for_services(log: Path, tmp_path: Path) -> None:
    written = tmp_path / "verified.xml"
    done = run("verify", str(log), "--no-device", "--junit", str(written))
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0].startswith("same: softmax rows=64 columns=128 float32 on ")
    assert done.output.splitlines()[-1] == "1 same"
    assert b'tests="1" failures="0" errors="0" skipped="0"' in written.read_bytes()
    (kernel,) = json.loads(run("verify", str(log), "--no-device", "--json").output)
    assert (kernel["verdict"], kernel["same_source"], kernel["same_binary"]) == ("same", True, True)
    none = run("verify", str(log), "--no-device", "--select", "matmul")
    assert (none.exit_code, none.output) == (2, "no kernel matched\n")
    unknown = run("verify", str(log), "--against", "libary")
    assert unknown.exit_code == 2
    assert "library" in unknown.output
