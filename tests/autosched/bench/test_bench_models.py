"""Benchmark of models: suites, ways, their results against float64, and the table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from autosched.bench.models import measuring, runner
from autosched.bench.models.expected import Expected, reference
from autosched.bench.models.measuring import ModelRow, WayRow, measured
from autosched.bench.models.names import check_ways
from autosched.bench.models.suite import ModelCase, read_model_suite
from autosched.bench.models.table import best_other_ratio, model_lines
from autosched.bench.models.ways import WayOptions, run_by
from autosched.cli.arguments import INTERRUPTED
from autosched.cli.commands import app
from autosched.torch_compile import fallback
from search_spaces import InputError

SUITE = """
import torch

MODELS = {
    "mlp": lambda: (torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).eval(), [torch.ones(4, 8)]),
    "gone": lambda: 1 / 0,
}
"""


@pytest.fixture(autouse=True)
def _without_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its compilation in C++ takes seconds."""
    monkeypatch.setattr(fallback, "why_no_inductor", lambda inputs: "left out of this test")


def suite_file(folder: Path, text: str = SUITE) -> Path:
    path = folder / "small.py"
    path.write_text(text)
    return path


def test_a_command_measures_every_model_and_saves_the_table(tmp_path: Path) -> None:
    command = ["bench", "models", "--suite", str(suite_file(tmp_path)), "--ways", "autosched,eager,graph"]
    paths = ["--out", str(tmp_path / "out"), "--log", str(tmp_path / "log.jsonl")]
    result = CliRunner().invoke(app, [*command, *paths, "--rounds", "2"])
    assert result.exit_code == 1, result.output
    assert "gone   ZeroDivisionError: division by zero" in result.output
    assert "mlp, autosched: inference graph of 3 operators by" in result.output
    table = json.loads((tmp_path / "out" / "models.json").read_text())
    assert table["ways"] == ["eager", "graph", "autosched"]
    mlp, gone = table["rows"]
    assert [(way["way"], len(way["latencies_s"]), way["why_not"]) for way in mlp["ways"]] == [
        ("eager", 2, ""),
        ("graph", 0, "InputError: its inputs are on no GPU"),
        ("autosched", 2, ""),
    ]
    assert [way["error"] for way in mlp["ways"] if way["latencies_s"]] == [1.0, 1.0]
    assert (gone["ways"], gone["why_not"]) == ([], "ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "mpl"], "unknown model 'mpl'"),
        (["--ways", "egaer"], "unknown way to run a model 'egaer'"),
        (["--ways", "autosched-max:exact"], "'exact'"),
        (["--seconds", "0"], "expected a finite number above 0"),
    ],
)
def test_arguments_that_are_not_allowed_are_refused_before_anything_runs(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = tmp_path / "out"
    command = ["bench", "models", "--suite", str(suite_file(tmp_path)), "--out", str(out), *arguments]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not out.exists()


def test_ctrl_c_ends_a_benchmark_and_says_where_its_models_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "measured", interrupted)
    command = ["bench", "models", "--suite", str(suite_file(tmp_path)), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == INTERRUPTED
    assert f"models that were measured are in {tmp_path / 'out'}" in result.output


@pytest.mark.parametrize("text", ["", "MODELS = {}", "MODELS = {'a': 1}", "MODELS = [abs]"])
def test_a_file_without_models_is_no_suite(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="expected MODELS = "):
        read_model_suite(suite_file(tmp_path, text))


def test_other_backends_of_torch_compile_are_ways() -> None:
    assert check_ways(["tvm", "autosched", "eager"]) == ("eager", "autosched", "tvm")


def test_numerics_are_part_of_a_way() -> None:
    assert check_ways(["autosched-max:fold", "eager"]) == ("eager", "autosched-max:fold")
    assert WayOptions(None, {"trials": 3}).of("autosched-max:fold")["numerics"] == "fold"
    called = run_by("tvm", lambda x: x + 1, [torch.ones(2)], WayOptions(), lambda _: None)
    with pytest.raises(Exception, match="tvm"):
        called()


def test_ways_are_in_the_usual_order_each_once() -> None:
    assert check_ways(["autosched", "eager", "autosched"]) == ("eager", "autosched")
    with pytest.raises(InputError, match="expected some of eager"):
        check_ways([])


def _case(model: Callable[..., Any]) -> ModelCase:
    return ModelCase("small", lambda: (model, [torch.linspace(-3, 3, 40)]))


def test_a_way_with_wrong_results_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(way: str, model: Callable[..., Any], inputs: list[Any], *_: object) -> Callable[[], Any]:
        return lambda: model(*inputs) + (0.01 if way == "autosched" else 0)

    monkeypatch.setattr(measuring, "run_by", wrong)
    eager, ours = measured(_case(torch.exp), ("eager", "autosched"), WayOptions(), 1).ways
    assert len(eager.latencies_s) == 1
    assert ours.latencies_s == ()
    assert ours.why_not.startswith("wrong results: RMSE")


def test_the_reason_of_a_backend_that_fails_is_its_own_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr(
        measuring, "run_by", lambda way, model, *_: lambda: torch.compile(model, backend=failing)(torch.ones(3))
    )
    (row,) = measured(_case(lambda x: x + 1), ("compile",), WayOptions(), 1).ways
    assert row.why_not == "ValueError: no such thing"


def test_a_model_that_returns_no_tensor_costs_its_own_line() -> None:
    row = measured(_case(lambda x: 3), ("eager",), WayOptions(), 1)
    assert row.ways[0].why_not == "InputError: the model returns int without a tensor; expected some"


def test_conversions_within_a_model_are_in_float64_for_the_reference() -> None:
    layer, x = torch.nn.Linear(4, 4).half(), torch.randn(2, 4)
    exact = reference(lambda x: layer(x.half()), [x])
    torch.testing.assert_close(exact, x.double() @ layer.weight.double().T + layer.bias.double(), rtol=1e-12, atol=0)
    assert layer.weight.dtype is torch.float16


@pytest.mark.parametrize(
    ("got", "fault"),
    [
        (torch.ones(4, 1), "shapes [(4, 1)]; expected [(4,)]"),
        (torch.full((4,), torch.nan), "RMSE (res-fp64): nan"),
        (torch.ones(4, dtype=torch.float64), "dtype mismatch"),
        (torch.ones(4), ""),
    ],
)
def test_results_are_judged_by_shape_type_and_error(got: Tensor, fault: str) -> None:
    assert Expected(torch.ones(4), torch.ones(4).double()).why_wrong(got).startswith(fault)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_error_is_a_multiple_of_eagers_or_of_a_tenth_of_a_unit(dtype: torch.dtype) -> None:
    exact, unit = torch.ones(4, dtype=torch.float64), torch.finfo(dtype).eps
    eager = exact.to(dtype)
    assert Expected(eager, exact).error_of(eager + 2 * unit) == pytest.approx(20)
    assert Expected(eager + 4 * unit, exact).error_of([eager + 2 * unit]) == pytest.approx(0.5)


def test_the_table_compares_every_way_with_the_fastest_of_the_others() -> None:
    eager, compiled = WayRow("eager", (4e-3,) * 6, 0.1, 1.0), WayRow("compile", (2e-3,) * 6, 9.0, 1.5)
    ours = WayRow("autosched", (1e-3,) * 6, 3.0, 0.5, 3 * 2**20, 7, ("inference graph of …",))
    failed = WayRow("autosched-max", why_not="wrong results: …")
    row = ModelRow("net", (eager, compiled, ours, failed))
    assert (best_other_ratio(row, ours), best_other_ratio(row, eager)) == (2.0, 0.5)
    lines = list(model_lines([row, ModelRow("gone", why_not="no such file")]))
    assert [line.split() for line in lines[1:6]] == [
        ["net", "eager", "4", "ms", "0.50x", "(0.50–0.50)", "1.00", "0.1", "s"],
        ["net", "compile", "2", "ms", "2.00x", "(2.00–2.00)", "1.50", "9.0", "s"],
        ["net", "autosched", "1", "ms", "2.00x", "(2.00–2.00)", "0.50", "3.0", "s", "3", "MiB", "7"],
        ["net", "autosched-max", "–"],
        ["gone", "no", "such", "file"],
    ]
    assert "net, autosched-max: wrong results: …" in lines
    assert lines[-1] == "best other / autosched: geometric mean 2.000 over 1, smallest 2.000"
