"""Suites of PyTorch functions: reading them, checking and comparing what was traced, and the table that comes of it."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor
from typer.testing import CliRunner, Result

import autosched
from autosched import TracedFunction
from autosched.bench import runner
from autosched.bench.peaks import Peaks, dot_dtype, dot_flops
from autosched.bench.rows import BenchRow, BenchTable
from autosched.bench.runner import BenchPlan
from autosched.bench.saved import table_json
from autosched.bench.suites.function_suite import FunctionCase, RandomArgument, read_function_suite
from autosched.bench.table import markdown, summary_lines
from autosched.checking.functions.float64 import in_float64
from autosched.cli.commands import app
from autosched.comparing.agreement import why_disagrees
from autosched.comparing.compare import Comparison, Row
from autosched.tracing.callables.random_arguments import random_arguments
from autosched.tuning.history import TuningHistory, all_of
from search_spaces import InputError, Workload
from search_spaces.devices.target import cpu

TARGET = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
PEAKS = Peaks((("bfloat16", 1e12), ("float32", 1e12)), 10e9)
ROUNDS = 15

SUITE = """
import torch
import torch.nn.functional as F

def _scaled(x, w):
    return F.silu(x) * w + 1

def _losses(x, t):
    return F.cross_entropy(x.float(), t, reduction="none")

SUITE = {
    "scaled": (_scaled, [((8, 16), torch.float32), ((16,), "positive f32")]),
    "loss": (_losses, [((4, 10), "bf16"), ((4,), "int64 below 10")]),
    "torn": (lambda x: x.reshape(7), [((8, 16), torch.float32)]),
}
"""


def _scaled(x: Tensor, w: Tensor) -> Tensor:
    return F.silu(x) * w + 1


def suite_file(folder: Path, text: str = SUITE) -> Path:
    path = folder / "small.py"
    path.write_text(text)
    return path


def test_a_suite_is_the_functions_of_a_python_file_with_what_their_arguments_are_drawn_from(tmp_path: Path) -> None:
    suite = read_function_suite(suite_file(tmp_path))
    assert (suite.name, suite.kind) == ("small", "fused")
    assert [case.name for case in suite.cases] == ["scaled", "loss", "torn"]
    assert [dict(case.facts)["shapes"] for case in suite.cases] == [
        "8×16, 16 float32",
        "4×10 bfloat16, 4 int64",
        "8×16 float32",
    ]
    (scaled,) = suite.only(["scaled"]).cases
    assert isinstance(scaled.op, TracedFunction)
    assert scaled.op.label == "_scaled(x[8, 16] float32, w[16] float32)"
    assert suite.only(["scaled"]).kind == "fused"
    with pytest.raises(InputError, match=r"unknown function of small 'scale'; did you mean 'scaled'\?"):
        suite.only(["scale"])


def test_inputs_are_random_and_of_the_kind_that_the_suite_asks_for() -> None:
    arguments = (
        RandomArgument((1000,), torch.bfloat16),
        RandomArgument((1000,), torch.float32, positive=True),
        RandomArgument((1000,), torch.int64, below=7),
        RandomArgument((1000,), torch.bool),
    )
    case = FunctionCase("any", lambda *x: x, arguments, torch.device("cpu"))
    normal, positive, integers, flags = case.inputs(3, torch.device("cpu"))
    assert [t.dtype for t in (normal, positive, integers, flags)] == [a.dtype for a in arguments]
    assert abs(float(normal.float().mean())) < 0.15
    assert 0.85 < float(normal.float().std()) < 1.15
    assert 0.5 <= float(positive.min()) < 0.55
    assert 1.45 < float(positive.max()) <= 1.5
    assert set(integers.tolist()) == set(range(7))
    assert 400 < int(flags.sum()) < 600
    assert torch.equal(case.inputs(3, torch.device("cpu"))[0], normal)
    assert not torch.equal(case.inputs(4, torch.device("cpu"))[0], normal)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("torch.relu", r"one: got <built-in.*expected \(function, \[\(shape, dtype\), …\]\)"),
        ("(3, [])", r"one: got \(3, \[\]\)"),
        ("(torch.relu, [(8, torch.float32)])", r"one: got \(8, torch.float32\); expected \(shape, dtype\)"),
        ("(torch.relu, [((8, -1), torch.float32)])", r"expected \(shape, dtype\)"),
        ("(torch.relu, [((8,), torch.int64)])", "got the type torch.int64; expected .*int64 below 32000"),
        ("(torch.relu, [((8,), 'f23')])", "got the type 'f23'"),
        ("(torch.relu, [((8,), 'positive int64')])", "got the type 'positive int64'"),
        ("(torch.relu, [((8,), 'int64 below 0')])", "got the type 'int64 below 0'"),
    ],
)
def test_a_bad_entry_is_named_with_what_is_expected(entry: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_function_suite(suite_file(tmp_path, f"import torch\nSUITE = {{'one': {entry}}}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"small\.py: expected SUITE = "),
        ("SUITE = {}", r"small\.py: expected SUITE = "),
        ("SUITE = {1: 2}", "got the name 1; expected a text"),
        ("import nothing_of_that_name", r"small\.py fails: ModuleNotFoundError"),
        ("SUITE = (", r"small\.py fails: SyntaxError"),
    ],
)
def test_a_file_that_is_no_suite_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_function_suite(suite_file(tmp_path, text))


def test_a_file_that_is_not_there_or_no_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the suite .*none\.py: No such file"):
        read_function_suite(tmp_path / "none.py")
    other = tmp_path / "suite.json"
    other.write_text("{}")
    with pytest.raises(InputError, match=r"suite\.json is no Python file"):
        read_function_suite(other)


def traced(function: Callable[..., Any], *inputs: Tensor, **options: bool) -> TracedFunction:
    found = autosched.trace(function, *inputs, **options)
    assert isinstance(found, TracedFunction)
    return found


def test_a_function_is_bound_by_what_it_takes_and_returns_or_by_its_dots() -> None:
    def mlp(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return F.linear(torch.relu(F.linear(x, w)), v)

    wide = traced(mlp, torch.empty(4096, 1024), torch.empty(4096, 1024), torch.empty(1024, 4096))
    assert len(wide.launched) == 2
    assert dot_flops(wide) == 2 * 2 * 4096 * 1024 * 4096
    assert dot_dtype(wide) == "float32"
    assert wide.min_bytes == 4 * 4 * 4096 * 1024
    assert PEAKS.bound_s(wide) == pytest.approx(dot_flops(wide) / 1e12)
    assert PEAKS.bounded_by_dots(wide)
    slow_dots = Peaks((("bfloat16", 1e3),), 10e9)
    assert slow_dots.bound_s(wide) is None
    row = traced(_scaled, torch.empty(1000, 100), torch.empty(100))
    assert PEAKS.bound_s(row) == pytest.approx(4 * (2 * 100_000 + 100) / 10e9)
    assert not PEAKS.bounded_by_dots(row)


def test_the_precision_of_dots_is_that_of_the_trace() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        found = traced(F.linear, torch.empty(32, 32), torch.empty(32, 32))
    finally:
        torch.set_float32_matmul_precision(before)
    assert found.precision == "tf32"
    assert dot_dtype(found) == "tf32"
    assert traced(_scaled, torch.empty(8, 16), torch.empty(16)).precision == "ieee"


def test_random_arguments_that_are_indices_are_within_what_they_index() -> None:
    found = traced(F.embedding, torch.empty(64, dtype=torch.int64), torch.empty(5, 8))
    tokens, table = random_arguments(found, 0)
    assert set(tokens.tolist()) == set(range(5))
    assert table.shape == (5, 8)


def test_float64_reaches_what_a_function_converts_and_makes_itself() -> None:
    def mean_square(x: Tensor) -> Tensor:
        return (x.to(torch.float32) ** 2).sum(-1, dtype=torch.float32) / torch.full((1,), 3.0)

    x = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    exact = in_float64(mean_square, [x])
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact, (x.double() ** 2).sum(-1) / 3, rtol=1e-15, atol=0)
    weight = torch.randn(1000)
    assert in_float64(lambda x: x.float() @ weight, [x]).dtype == torch.float64
    filters, shifts = torch.randn(2, 3, 1).half(), torch.randn(2).half()
    assert in_float64(lambda x: torch.conv1d(x, filters, shifts), [torch.randn(3, 5).half()]).dtype == torch.float64


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[TracedFunction, Path]:
    """A log in which one function of the suite was tuned."""
    log = tmp_path_factory.mktemp("fused") / "tuning.jsonl"
    found = traced(_scaled, torch.empty(8, 16), torch.empty(16))
    autosched.tune(found, "cpu", 3, strategy="random", cost_model="random", log=log)
    return found, log


INPUTS = (torch.randn(8, 16, generator=torch.Generator().manual_seed(1)), torch.ones(16))


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        (_scaled, None),
        (lambda x, w: F.silu(x) * w + 1.001, "128 of 128 elements are wrong; the first, [0, 0], is "),
        (lambda x, w: (F.silu(x) * w + 1).half(), "got [8, 16] torch.float32; expected [8, 16] torch.float16"),
        (
            lambda x, w: torch.where(x == x[2, 3], math.inf, F.silu(x) * w + 1),
            "1 of 128 elements are wrong; the first, ",
        ),
    ],
    ids=["the same", "another constant", "another type", "an infinity"],
)
def test_kernels_are_held_against_the_function_itself(
    tuned: tuple[TracedFunction, Path], function: Callable[..., Tensor], wrong: str | None
) -> None:
    kernel = autosched.replay(tuned[0], "cpu", log=tuned[1])
    kernel.traced = dataclasses.replace(tuned[0], function=function)
    found = why_disagrees(kernel, INPUTS)
    assert (found is None) if wrong is None else (found is not None and found.startswith(wrong))


def test_what_is_not_finite_in_eager_may_be_the_same_in_the_kernels(tuned: tuple[TracedFunction, Path]) -> None:
    kernel = autosched.replay(tuned[0], "cpu", log=tuned[1])
    x = INPUTS[0].clone()
    x[0, 0], x[1, 1] = math.inf, math.nan
    assert why_disagrees(kernel, (x, INPUTS[1])) is None


def test_a_traced_function_is_compared_with_itself(
    tuned: tuple[TracedFunction, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, log = tuned
    asked: list[object] = []

    def instantly(function: object, *, dynamic: bool, mode: str | None) -> object:
        asked.append((function, dynamic, mode))
        return function

    monkeypatch.setattr(torch, "compile", instantly)
    monkeypatch.setattr(torch.compiler, "reset", lambda: asked.append("reset"))
    every = ("library", "eager", "parts", "compile", "max-autotune")
    table = autosched.compare(found, "cpu", log=log, rounds=6, baselines=every)
    assert asked == ["reset", (_scaled, False, None), (_scaled, False, "max-autotune-no-cudagraphs")]
    assert [row.name for row in table.rows] == ["tuned", "eager", "compile", "max-autotune", "roofline"]
    assert all(len(row.latencies_s) == 6 and "allocates" in row.note for row in table.rows[:-1])
    assert table.speedup_interval("eager") is not None
    assert str(table).startswith("_scaled(x[8, 16] float32, w[16] float32) on ")


def test_a_function_is_compared_on_the_inputs_that_are_given(tuned: tuple[TracedFunction, Path]) -> None:
    found, log = tuned
    with pytest.raises(InputError, match="takes 2 tensors"):
        autosched.compare(found, "cpu", log=log, rounds=2, baselines=("eager",), inputs=INPUTS[:1])
    assert autosched.compare(found, "cpu", log=log, rounds=2, baselines=("eager",), inputs=INPUTS).speedup("eager") > 0


def test_wrong_kernels_are_not_timed(tuned: tuple[TracedFunction, Path]) -> None:
    other = dataclasses.replace(tuned[0], function=lambda x, w: x + w)
    with pytest.raises(autosched.AutoschedError, match=r"wrong results: \d+ of 128 elements are wrong"):
        autosched.compare(other, "cpu", log=tuned[1], rounds=2, baselines=("eager",))


def test_the_searches_of_one_function_count_as_one() -> None:
    first, second = TuningHistory(10, 2.0, 3, 0.5), TuningHistory(5, 1.0, 1, 0.25)
    assert all_of([first, second]) == TuningHistory(15, 3.0, 4, 0.75)
    assert all_of([first, None]) is None


def measured(name: str, op: TracedFunction, tuned_s: float, **others: float) -> BenchRow:
    """A row without any noise."""
    rows = [Row("tuned", (tuned_s,) * ROUNDS, name="tuned")]
    names = {"eager": "eager", "compile": "compile", "max_autotune": "max-autotune"}
    rows += [Row(names[other], (s,) * ROUNDS, name=names[other], compile_s=2.5) for other, s in others.items()]
    arguments = tuple(RandomArgument(a.shape, getattr(torch, a.dtype)) for a in op.arguments)
    case = FunctionCase(name, op.function, arguments, torch.device("cpu"))
    return BenchRow(case, Comparison(op, TARGET, 1, tuple(rows)))


def table(rows: Sequence[BenchRow]) -> BenchTable:
    baselines = ("eager", "compile", "max-autotune")
    return BenchTable(
        "small", TARGET, "cold", baselines, PEAKS, "autosched bench fused", (), tuple(rows), ended="", kind="fused"
    )


@cache
def small_table() -> BenchTable:
    stream = traced(_scaled, torch.empty(50_000, 100), torch.empty(100))  # 40 MB: 4 ms at the speed of a copy
    left = traced(lambda x: torch.relu(x).sort(0)[0] + 1, torch.empty(8, 16), allow_fallback=True)
    product = traced(F.linear, torch.empty(256, 512).bfloat16(), torch.empty(1024, 512).bfloat16())  # 0.268 ms of dots
    return table(
        [
            measured("stream", stream, 5e-3, eager=10e-3, compile=6e-3, max_autotune=4.5e-3),
            measured("left", left, 1e-5, eager=1e-5, compile=2e-5),
            measured("product", product, 536.8e-6, eager=536.8e-6, compile=1080e-6, max_autotune=1073.6e-6),
        ]
    )


def test_the_table_of_functions_is_written_as_markdown() -> None:
    text = markdown(small_table())
    assert (
        "| name | shapes | eager | torch.compile | max-autotune | torch.compile compiled in | max-autotune compiled in "
        "| tuned | eager / tuned | better compiled / tuned | of copy or dots | kernels | trials | tuned in | to 95 % |"
    ) in text
    assert (
        "| stream | 50000×100, 100 float32 | 10 ms | 6 ms | 4.5 ms | 2.5 s | 2.5 s | 5 ms | 2.00x (2.00–2.00) "
        "| 0.90x (0.90–0.90) max-autotune | 80 % copy | 1 | shipped | – | – |"
    ) in text
    assert "| 2.00x (2.00–2.00) compile | 1 % copy | 2 + 1 | shipped |" in text
    assert "| 2.00x (2.00–2.00) max-autotune | 50 % bfloat16 | 1 | shipped |" in text


def test_below_the_table_stand_the_means_and_the_functions_that_are_behind() -> None:
    lines = list(summary_lines(small_table()))
    (eager,) = (line for line in lines if line.startswith("eager / tuned: "))
    (better,) = (line for line in lines if line.startswith("better compiled / tuned: "))
    assert "geometric mean 1.260 over 3 of 3 functions, smallest 1.000" in eager
    assert "geometric mean 1.533 over 3 of 3 functions, smallest 0.900 (stream)" in better
    assert "below 0.95 of the better compiled: stream 0.900" in lines
    memory = "below 0.90 of the bandwidth of a copy, among 1 bound by memory and over 32 MB: stream 0.800"
    assert memory in lines
    (left,) = (line for line in lines if line.startswith("left, left to PyTorch: "))
    assert "aten.sort" in left


def test_the_json_has_the_workloads_of_a_function_and_what_bounds_it() -> None:
    data = json.loads(json.dumps(table_json(small_table())))
    stream, left, product = data["rows"]
    assert data["kind"] == "fused"
    assert [len(row["workloads"]) for row in (stream, left, product)] == [1, 2, 1]
    assert (stream["bounded_by"], product["bounded_by"]) == ("bytes", "dots")
    assert stream["part_of_measured_roofline"] == pytest.approx(0.8, rel=1e-3)
    assert "sort" in left["left_to_pytorch"][0]
    assert [p["name"] for p in data["roofline"]["points"]] == ["stream", "left", "product"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})


def test_a_function_is_tuned_in_every_way_that_it_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = autosched.trace(lambda x, w: F.silu(x) @ w, *torch.randn(2, 16, 16).bfloat16())
    assert len(traced.cuts) == 2
    tuned: list[Workload] = []

    def tune(workload: Workload, plan: BenchPlan, console: Console) -> SimpleNamespace:
        tuned.append(workload)
        return SimpleNamespace(workload=workload, best=None, all_failures=(("run_error", 3),))

    monkeypatch.setattr(runner, "_tune_workload", tune)
    why_not = runner._tune_case(traced, BenchPlan(TARGET, ("eager",), trials=3), Console(file=io.StringIO()))
    assert why_not == "no trial succeeded (3 run_error)"
    assert set(tuned) == {w for cut in traced.cuts for w in cut.workloads}


def test_functions_are_tuned_checked_and_measured_and_one_that_fails_costs_its_own_row(
    tuned: tuple[TracedFunction, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def peaks(computed: Any, target: object) -> Peaks:
        seen.extend(computed)
        return PEAKS

    monkeypatch.setattr(runner, "measure_peaks", peaks)
    log, out = tmp_path / "log.jsonl", tmp_path / "out"
    log.write_bytes(tuned[1].read_bytes())
    where = ("--suite", str(suite_file(tmp_path)), "--log", str(log), "--out", str(out), "--target", "cpu")
    options = ("--rounds", "6", "--baselines", "eager", "--trials", "3")
    result = run("fused", *where, *options)
    assert result.exit_code == 1, result.output
    assert [op.name for op in seen if isinstance(op, TracedFunction)] == ["_scaled", "_losses"]
    assert "all known from the log" in result.output
    scaled, loss, torn = json.loads((out / "table.json").read_text())["rows"]
    for row in (scaled, loss):
        assert [len(c["latencies_s"]) for c in row["contenders"]] == [6, 6]
        assert row["tuning"]["trials"] == 3 * len(row["workloads"])
    assert "cannot be captured" in torn["why_not"]
    assert "| scaled | 8×16, 16 float32 |" in (out / "table.md").read_text()
    before = log.read_bytes()
    again = run("fused", *where, "--rounds", "6", "--baselines", "eager", "--replay", "--only", "loss")
    assert again.exit_code == 0, again.output
    assert log.read_bytes() == before
    assert "over 1 of 1 functions" in again.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "none.py"], "cannot read the suite none.py: No such file"),
        (["--only", "scale"], "unknown function of small 'scale'"),
        (["--baselines", "library"], "unknown baseline 'library' (allowed: compile, eager, max-autotune)"),
        (["--trials", "0"], "trials=0; expected an integer of at least 1"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_misuse_is_refused_before_anything_is_made(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = suite_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = run("fused", "--suite", str(suite), "--target", "cpu", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "autosched-bench").exists()


def test_help_says_that_the_suite_is_executed_and_what_it_may_hold() -> None:
    shown = " ".join(run("fused", "--help").output.split())
    for text in ("which is executed", "int64 below 32000", "positive f32", "--replay", "--only", "--baselines"):
        assert text in shown
