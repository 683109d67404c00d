"""Benchmarks of whole suites: reading them, what the figures mean, how the table reads, and what is saved when."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner, Result

import autosched
from autosched.baselines.names import BASELINES, BaselineName
from autosched.bench import runner
from autosched.bench.drawing.roofline import roofline
from autosched.bench.peaks import Peaks, dot_dtype, dot_flops, measure_peaks
from autosched.bench.rows import BenchRow, BenchTable
from autosched.bench.runner import BenchPlan, run_bench
from autosched.bench.saved import save_table, saved_roofline, table_json
from autosched.bench.suites.operator_suite import OperatorCase, read_operator_suite
from autosched.bench.suites.shipped import suite_path
from autosched.bench.suites.suite import Case, Suite
from autosched.bench.table import StreamedTable, markdown, summary_lines
from autosched.cli.commands import app
from autosched.comparing.compare import Comparison, Row
from autosched.tuning.history import TuningHistory
from search_spaces import InputError, SearchSpace, Target, Workload, ops, target_named
from search_spaces.devices.target import cpu

TARGET = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)
PRODUCT = ops.matmul(100, 200, 300)
PEAKS = Peaks((("float32", 120e9),), 10e9)
ROUNDS = 15

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def suite_file(folder: Path, *shapes: object) -> Path:
    path = folder / "small.json"
    path.write_text(json.dumps({"what": "a test", "shapes": list(shapes)}))
    return path


def case(name: str = "one", workload: Workload = PRODUCT) -> OperatorCase:
    return OperatorCase(name, workload, (("m", "100"), ("dtype", "float32")))


def compared(tuned_s: float, *others: tuple[BaselineName, float | None]) -> Comparison:
    """A comparison without any noise; None for what is not available."""
    rows = [Row("tuned", (tuned_s,) * ROUNDS, name="tuned")]
    for name, seconds in others:
        absent = Row(name, note="not available: no compiler", name=name)
        rows.append(absent if seconds is None else Row(name, (seconds,) * ROUNDS, name=name, compile_s=12.3))
    rows.append(Row("roofline", note="predicted from nominal rates", predicted_s=1e-9, name="roofline"))
    return Comparison(PRODUCT, TARGET, 1, tuple(rows))


def table(*rows: BenchRow, baselines: tuple[BaselineName, ...] = ("library", "max-autotune")) -> BenchTable:
    versions = (("torch", "2.13.0"), ("device", TARGET.device))
    return BenchTable("small", TARGET, "cold", baselines, PEAKS, "autosched bench gemm", versions, rows, ended="")


FASTER = BenchRow(
    case("quick"),
    compared(1e-3, ("library", 2e-3), ("max-autotune", 1.1e-3)),
    TuningHistory(trials=200, seconds=31.4, near_trials=40, near_s=5.25),
)
SLOWER = BenchRow(case("slow"), compared(2e-3, ("library", 1e-3), ("max-autotune", None)))
FAILED = BenchRow(case("broken"), why_not="no trial succeeded (6 compile_error)")


def test_a_suite_names_its_shapes_and_takes_every_argument_of_matmul(tmp_path: Path) -> None:
    shapes = [
        {"name": "a", "m": 8, "n": 16, "k": 32, "dtype": "tf32", "layout": "nt"},
        {"name": "b", "m": 8, "n": 16, "k": 32, "batch": 4, "epilogue": "scale", "scale": 0.5},
        {"name": "c", "m": 8, "n": 16, "k": 32, "batch": None},
    ]
    suite = read_operator_suite(suite_file(tmp_path, *shapes))
    assert suite.name == "small"
    assert [c.op for c in suite.cases] == [
        ops.matmul(8, 16, 32, dtype="tf32", layout="nt"),
        ops.matmul(8, 16, 32, batch=4, epilogue="scale", scale=0.5),
        ops.matmul(8, 16, 32),
    ]
    assert dict(suite.cases[0].facts) == {"m": "8", "n": "16", "k": "32", "dtype": "tf32", "layout": "nt", "and": ""}
    assert dict(suite.cases[1].facts)["and"] == "batch=4 epilogue=scale scale=0.5"


def test_arguments_that_no_shape_names_have_no_column(tmp_path: Path) -> None:
    suite = read_operator_suite(suite_file(tmp_path, {"name": "a", "m": 8, "n": 16, "k": 32}))
    assert [heading for heading, _ in suite.cases[0].facts] == ["m", "n", "k", "dtype", "layout"]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"name": "x", "m": 8, "n": 8}, r"shape 1 \(x\): matmul needs k="),
        ({"name": "x", "m": 8, "n": 8, "k": 8, "dtype": "float8"}, r"shape 1 \(x\): unknown dtype 'float8'.*allowed: "),
        ({"name": "x", "m": 8, "n": 8, "k": 8, "tile": 4}, r"unknown argument of matmul 'tile'.*allowed: .*layout"),
        ({"name": "x", "m": 8, "n": 8, "k": [8]}, r"k=\[8\]; expected a number"),
        ({"name": "x", "m": 8.5, "n": 8, "k": 8}, r"m='8.5': expected int"),
        ({"m": 8, "n": 8, "k": 8}, r"shape 1: name=None; expected a text"),
        ("x", r"shape 1: got 'x'; expected"),
    ],
)
def test_a_bad_entry_is_named_with_what_is_allowed(shape: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_operator_suite(suite_file(tmp_path, shape))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"shapes": {}}', '{"shapes": []}', "{"])
def test_a_file_that_is_no_suite_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"suite\.json"):
        read_operator_suite(path)


def test_entries_of_one_name_are_numbered(tmp_path: Path) -> None:
    shape = {"name": "x", "m": 8, "n": 8, "k": 8}
    suite = read_operator_suite(suite_file(tmp_path, shape, {**shape, "name": "x-2"}, shape, shape))
    assert [case.name for case in suite.cases] == ["x", "x-2", "x-3", "x-4"]


LAYER = {"name": "a", "n": 2, "c": 8, "h": 9, "w": 7, "k": 8, "r": 3, "s": 3}


def test_a_suite_of_convolutions_takes_sizes_in_every_spelling(tmp_path: Path) -> None:
    layers = [
        {**LAYER, "stride": [2, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1, "epilogue": "bn_add_relu"},
        {**LAYER, "name": "b", "class": "depthwise", "groups": 8, "layout": "NCHW", "epilogue": None},
        {"name": "c", "n": 1, "c": 4, "d": 5, "h": 9, "w": 7, "k": 6, "kernel": 3, "padding": "same", "constant": ""},
        {"name": "d", "n": 1, "c": 4, "w": 17, "k": 6, "s": 3, "layout": "channels_last", "dtype": "bfloat16"},
        {"name": "e", "n": 1, "c": 4, "size": "9x7", "k": 6, "kernel": [3, 2]},
    ]
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(layers))
    suite = read_operator_suite(path, "conv")
    assert suite == read_operator_suite(path)
    assert [c.op for c in suite.cases] == [
        ops.conv(2, 8, (9, 7), 8, 3, stride=(2, 1), padding=1, epilogue="bn_residual_relu", constant="w"),
        ops.conv(2, 8, (9, 7), 8, 3, groups=8, layout="contiguous", constant="w"),
        ops.conv(1, 4, (5, 9, 7), 6, 3, padding="same"),
        ops.conv(1, 4, 17, 6, 3, dtype="bfloat16", constant="w"),
        ops.conv(1, 4, (9, 7), 6, (3, 2), constant="w"),
    ]
    first, second = (dict(case.facts) for case in suite.cases[:2])
    assert first["and"] == "stride=2x1 padding=1 epilogue=bn_residual_relu"
    assert (first["class"], second["class"], second["layout"]) == ("", "depthwise", "contiguous")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": None}, r"layer 1 \(a\): conv needs k="),
        ({"h": None}, r"layer 1 \(a\): kernel='3x3' has 2 dimensions; expected a number, or 1"),
        ({"size": 9}, r"unknown argument of conv 'h'"),
        ({"padding": [1, "x"]}, r"padding='1xx'; expected a number, or 2"),
        ({"dtype": "half"}, r"layer 1 \(a\): unknown dtype 'half'"),
        ({"epilogue": "bias_swish"}, r"unknown link 'swish'"),
        ({"layout": "NHCW"}, r"unknown layout 'NHCW'.*channels_last, contiguous"),
        ({"class": 3}, r"layer 1: class=3; expected a text"),
        ({"k": {}}, r"k=\{\}; expected a number"),
    ],
    ids=str,
)
def test_a_bad_layer_is_named_with_what_is_allowed(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_operator_suite(suite_file(tmp_path, {**LAYER, **change}), "conv")


def test_part_of_a_suite_is_chosen_by_name() -> None:
    suite = Suite("small", (case("a"), case("b"), case("c")))
    assert [c.name for c in suite.only(["c", "a"]).cases] == ["a", "c"]
    assert suite.only([]) == suite.only(["a", "b", "c"]) == suite
    assert suite.only(["a"]).name == "small-part"
    with pytest.raises(InputError, match=r"unknown shape of small 'd'.*allowed: a, b, c"):
        suite.only(["d"])


def test_a_suite_that_ships_is_named_without_a_path_unless_a_file_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = read_operator_suite(suite_path(Path("gemm")))
    assert (suite.name, len(suite.cases)) == ("gemm", 22)
    layers = read_operator_suite(suite_path(Path("conv")))
    assert (layers.kind, len(layers.cases)) == ("conv", 67)
    (tmp_path / "gemm").write_text("{}")
    assert suite_path(Path("gemm")) == Path("gemm")
    assert suite_path(Path("other.json")) == Path("other.json")


def test_a_table_leaves_no_picture_of_another_one_beside_it(tmp_path: Path) -> None:
    for name in ("roofline.png", "roofline.svg"):
        (tmp_path / name).write_text("of an earlier table")
    save_table(table(FASTER), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"table.md", "table.json"}


def test_a_rate_above_the_peak_is_explained() -> None:
    said = "of peak: above 100 %"
    fast, slow = table(FASTER), table(SLOWER)
    low = dataclasses.replace(fast, peaks=dataclasses.replace(fast.peaks, dots=(("float32", 1e3),)))
    assert any(line.startswith(said) for line in summary_lines(low))
    assert not any(line.startswith(said) for line in summary_lines(slow))


def test_dots_are_counted_without_what_surrounds_them() -> None:
    fused = ops.matmul(10, 20, 30, dtype="bfloat16", epilogue="bias_gelu")
    assert dot_flops(fused) == 2 * 10 * 20 * 30
    assert dot_dtype(fused) == "bfloat16"
    assert dot_dtype(ops.matmul(10, 20, 30, dtype="tf32")) == "tf32"
    assert (dot_flops(ops.softmax(4, 4)), dot_dtype(ops.softmax(4, 4))) == (0, None)


def test_the_roofline_is_the_longer_of_dots_and_bytes_at_measured_rates() -> None:
    large, thin = ops.matmul(1000, 1000, 1000), ops.matmul(1, 1000, 1000)
    assert PEAKS.bound_s(large) == pytest.approx(2e9 / 120e9)
    assert PEAKS.bound_s(thin) == pytest.approx(4 * (1000 + 1_000_000 + 1000) / 10e9)
    assert PEAKS.bound_s(ops.softmax(100, 100)) == pytest.approx(2 * 4 * 100 * 100 / 10e9)
    assert PEAKS.bound_s(ops.matmul(8, 8, 8, dtype="float16")) is None


def test_peaks_are_measured_for_the_types_of_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autosched.bench.peaks._SIDES", {"cpu": (64, 128)})
    monkeypatch.setattr("autosched.bench.peaks._COPIED_BYTES", {"cpu": 2**20})
    monkeypatch.setattr("autosched.bench.peaks._CALLS", 2)
    peaks = measure_peaks([ops.matmul(8, 8, 8), ops.matmul(8, 8, 8, dtype="bfloat16")], autosched.cpu_target())
    assert [dtype for dtype, _ in peaks.dots] == ["bfloat16", "float32"]
    # Far above a scalar loop in Python, and no CPU comes to a PFLOP/s on one thread.
    assert all(1e8 < rate < 1e15 for _, rate in peaks.dots)
    assert 1e8 < peaks.copied < 1e13
    assert dict(peaks.dots)["bfloat16"] >= dict(peaks.dots)["float32"]


def test_the_best_baseline_and_the_parts_of_the_peaks_are_read_off_a_row() -> None:
    best = FASTER.best_baseline(BASELINES)
    assert best is not None
    assert best.name == "max-autotune"
    only = FASTER.best_baseline(["library", "eager"])
    assert only is not None
    assert only.name == "library"
    assert FASTER.part_of_peak(PEAKS) == pytest.approx(2 * 100 * 200 * 300 / 1e-3 / 120e9)
    assert FASTER.part_of_roofline(PEAKS) == pytest.approx(0.1)
    assert FAILED.ratio("library") is None
    assert SLOWER.ratio("max-autotune") is None


EXPECTED = """\
# small on Imaginary CPU, 1 thread, timed with cold caches

| name | m | dtype | library | max-autotune | max-autotune compiled in | tuned | library / tuned \
| best baseline / tuned | of peak | of roofline | trials | tuned in | to 95 % |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
| quick | 100 | float32 | 2 ms | 1.1 ms | 12.3 s | 1 ms | 2.00x (2.00–2.00) | 1.10x (1.10–1.10) max-autotune \
| 10 % | 10 % | 200 | 31 s | 5.2 s / 40 |
| broken | 100 | float32 | no trial succeeded (6 compile_error) |  |  |  |  |  |  |  |  |  |  |
| slow | 100 | float32 | 1 ms | – | – | 2 ms | 0.50x (0.50–0.50) | 0.50x (0.50–0.50) library \
| 5 % | 5 % | shipped | – | – |
"""


def test_the_table_is_written_as_markdown() -> None:
    text = markdown(table(FASTER, FAILED, SLOWER))
    shown, _, notes = text.partition("\n\n- ")
    assert shown + "\n" == EXPECTED
    assert (
        "library / tuned: geometric mean 1.000 over 2 of 3 shapes, smallest 0.500 (slow); 1 faster, 1 slower" in notes
    )
    assert "max-autotune / tuned: geometric mean 1.100 over 1 of 3 shapes, smallest 1.100 (quick); 1 faster" in notes
    assert "best baseline / tuned: geometric mean 0.742 over 2 of 3 shapes, smallest 0.500 (slow)" in notes
    assert "slow, max-autotune: not available: no compiler" in notes
    assert "measured peaks, best call of the library in this run: float32 0.12 TFLOP/s, a copy 10 GB/s" in notes
    assert "max-autotune-no-cudagraphs" in notes
    assert notes.endswith("- command: autosched bench gemm\n- torch 2.13.0, device Imaginary CPU\n")


def test_convolutions_have_means_by_class_and_the_librarys_fastest_way() -> None:
    def row(name: str, class_: str, tuned_s: float, library_s: float, compile_s: float) -> BenchRow:
        layer = OperatorCase(name, PRODUCT, (("class", class_), ("n", "1")))
        made = compared(tuned_s, ("library", library_s), ("compile", compile_s), ("max-autotune", 4e-3))
        rows = (made.rows[0], dataclasses.replace(made.rows[1], way="contiguous, benchmark"), *made.rows[2:])
        return BenchRow(layer, dataclasses.replace(made, rows=rows))

    rows = [row("a", "1x1", 1e-3, 1e-3, 2e-3), row("b", "stem", 1e-3, 2e-3, 8e-3), row("c", "stem", 1e-3, 8e-3, 8e-3)]
    three: tuple[BaselineName, ...] = ("library", "compile", "max-autotune")
    text = markdown(dataclasses.replace(table(*rows, baselines=three), kind="conv"))
    assert "| name | class | n | library | torch.compile | max-autotune | fastest way |" in text
    assert "| a | 1x1 | 1 | 1 ms | 2 ms | 4 ms | contiguous, benchmark |" in text
    assert "library / tuned: geometric mean 2.520 over 3 of 3 layers, smallest 1.000 (a)" in text
    of_stems = (
        "class stem, 2 of 3: library / tuned 4.000 (2.000, b), torch.compile / tuned 8.000 (8.000, b), "
        "max-autotune / tuned 4.000 (4.000, b), better compiled / tuned 4.000 (4.000, b)"
    )
    assert of_stems in text
    alone = dataclasses.replace(table(rows[0], baselines=three), kind="conv")
    assert "class 1x1," not in markdown(alone)


def test_rows_are_printed_in_the_columns_of_the_header_as_they_come() -> None:
    rows = table(FASTER, FAILED, SLOWER)
    streamed = StreamedTable([row.case for row in rows.rows], rows)
    quick, broken, slow = (streamed.line(row, rows) for row in rows.rows)
    for line, cell in ((quick, "2 ms"), (slow, "1 ms")):
        assert line.index(cell) + len(cell) == streamed.header.index("library") + len("library")
    assert quick.index("1.10x") > streamed.header.index("library / tuned")
    assert len(quick) == len(slow) == len(streamed.header)
    assert broken == "broken  100  float32  no trial succeeded (6 compile_error)"


def test_what_no_baseline_could_be_timed_for_has_no_mean() -> None:
    row = BenchRow(case("alone"), compared(1e-3, ("library", None)))
    shown = list(summary_lines(table(row, baselines=("library",))))
    assert "library / tuned: not measured" in shown
    assert "alone" in markdown(table(row, baselines=("library",)))
    assert "| 1 ms | – | – |" in markdown(table(row, baselines=("library",)))


def test_the_notes_have_the_precision_of_products_of_float32_on_a_gpu() -> None:
    gpu = target_named("h200")
    rows = [
        BenchRow(case(f"of {dtype}"), Comparison(ops.matmul(8, 8, 8, dtype=dtype), gpu, 0, (Row("tuned", (1e-3,)),)))
        for dtype in ("tf32", "float16", "float32")
    ]
    said = "products of float32, on both sides:"
    shown = [line for line in summary_lines(table(*rows, baselines=())) if line.startswith(said)]
    assert shown == [f"{said} tf32 in of tf32", f"{said} ieee in of float32"]


def test_a_table_without_baselines_shows_the_tuned_kernels_alone() -> None:
    text = markdown(table(BenchRow(case("alone"), compared(1e-3)), baselines=()))
    assert "| name | m | dtype | tuned | of peak |" in text
    assert "| alone | 100 | float32 | 1 ms | 10 % |" in text


def test_the_json_has_the_latencies_of_every_round() -> None:
    data = json.loads(json.dumps(table_json(table(FASTER, FAILED))))
    quick, broken = data["rows"]
    by_name = {c["name"]: c for c in quick["contenders"]}
    assert by_name.keys() == {"tuned", "library", "max-autotune"}
    assert by_name["library"]["latencies_s"] == [2e-3] * ROUNDS
    assert quick["ratios"]["library"] == {"ratio": 2.0, "low": 2.0, "high": 2.0}
    assert Workload.from_json(quick["workload"]) == PRODUCT
    assert quick["tuning"]["near_trials"] == 40
    assert broken["why_not"] == FAILED.why_not
    assert data["measured_peaks"] == {"flops_per_s": {"float32": 120e9}, "copied_bytes_per_s": 10e9}


def test_a_saved_roofline_is_the_one_that_was_measured(tmp_path: Path) -> None:
    saved = table(FASTER, FAILED, SLOWER)
    save_table(saved, tmp_path)
    read = saved_roofline(tmp_path / "table.json")
    assert [p.name for p in read.points] == ["quick", "slow"]
    assert read.points[0].tuned_rate == pytest.approx(2 * read.points[0].baseline_rate)  # type: ignore[operator]  # not None here
    assert read == roofline(saved, read.title)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": 99}', '{"schema": 1, "roofline": {"points": [{}]}}'])
def test_a_file_that_is_no_table_is_not_drawn(text: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"table\.json"):
        saved_roofline(path)


SMALL = {"name": "small", "m": 16, "n": 16, "k": 16}
EVEN = {"name": "even", "m": 16, "n": 32, "k": 16, "layout": "nt"}


@pytest.fixture(autouse=True)
def quick_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(workloads: Sequence[Workload], target: Target) -> Peaks:
        return PEAKS

    monkeypatch.setattr(runner, "measure_peaks", measured)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in which one of two shapes was tuned."""
    log = tmp_path_factory.mktemp("bench") / "tuning.jsonl"
    autosched.tune(ops.matmul(16, 16, 16), "cpu", 4, strategy="random", cost_model="random", log=log)
    return log


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})


def test_replay_measures_what_the_log_has_and_names_what_it_has_not(tuned: Path, tmp_path: Path) -> None:
    before, out = tuned.read_bytes(), tmp_path / "out"
    suite = suite_file(tmp_path, EVEN, SMALL)
    where = ("--suite", str(suite), "--log", str(tuned), "--out", str(out), "--target", "cpu")
    result = run("gemm", *where, "--replay", "--rounds", "6")
    assert result.exit_code == 1, result.output
    assert "even   16  32  16  float32  nt      no successful record of matmul m=16 n=32 k=16" in result.output
    assert "over 1 of 2 shapes" in result.output
    assert tuned.read_bytes() == before
    even, small = json.loads((out / "table.json").read_text())["rows"]
    assert "no successful record" in even["why_not"]
    assert [len(c["latencies_s"]) for c in small["contenders"]] == [6, 6]
    assert small["tuning"]["trials"] == 4
    assert "| small | 16 | 16 | 16 | float32 | nn |" in (out / "table.md").read_text()


def test_convolutions_are_tuned_and_measured_against_the_fastest_way(tmp_path: Path) -> None:
    layer = {"name": "a", "class": "3x3", "n": 1, "c": 16, "h": 6, "w": 6, "k": 16, "r": 3, "s": 3, "padding": [1, 1]}
    suite, out = suite_file(tmp_path, {**layer, "epilogue": "bn_relu"}, {**layer, "layout": "nchw"}), tmp_path / "out"
    where = ("--suite", str(suite), "--log", str(tmp_path / "log.jsonl"), "--out", str(out), "--target", "cpu")
    result = run("conv", *where, "--trials", "4", "--rounds", "6", "--baselines", "library")
    assert result.exit_code == 0, result.output
    first, second = json.loads((out / "table.json").read_text())["rows"]
    assert (first["name"], second["name"], second["layout"]) == ("a", "a-2", "contiguous")
    library = next(c for c in first["contenders"] if c["name"] == "library")
    assert library["label"] == "oneDNN library"
    assert library["way"] in {f"{f}{p}" for f in ("channels_last", "contiguous") for p in ("", ", packed")}
    assert "library / tuned: geometric mean" in (out / "table.md").read_text()


def test_every_shape_is_tuned_and_measured_and_a_second_run_tunes_nothing(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(SearchSpace, "remarks", ("b: read by pointers",))
    log, out = tmp_path / "log.jsonl", tmp_path / "out"
    log.write_bytes(tuned.read_bytes())
    suite = suite_file(tmp_path, SMALL, EVEN)
    where = ("--suite", str(suite), "--log", str(log), "--out", str(out), "--target", "cpu", "--rounds", "6")
    result = run("gemm", *where, "--trials", "4")
    assert result.exit_code == 0, result.output
    assert "[2/2] even\n  b: read by pointers\n" in result.output
    assert {path.name for path in out.iterdir()} == {"table.md", "table.json", "roofline.png", "roofline.svg"}
    before = log.read_bytes()
    again = run("gemm", *where, "--trials", "4", "--only", "even,small")
    assert again.output.count("all known from the log") == 2
    assert log.read_bytes() == before
    (out / "roofline.png").unlink()
    assert run("draw", str(out / "table.json")).exit_code == 0
    assert (out / "roofline.png").exists()


def test_a_shape_that_fails_costs_its_own_row_only(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(workload: Workload, plan: BenchPlan, console: Console) -> str | None:
        if workload == ops.matmul(16, 16, 16):
            return None
        raise RuntimeError("CUDA error: misaligned address\nand a long story")

    monkeypatch.setattr(runner, "_tune_case", refuse)
    suite = Suite(
        "small", (OperatorCase("even", ops.matmul(16, 32, 16), ()), OperatorCase("small", ops.matmul(16, 16, 16), ()))
    )
    plan = BenchPlan(autosched.cpu_target(), ("library",), trials=4, log=tuned, rounds=6)
    result = run_bench(suite, plan, tmp_path, Console(file=io.StringIO()), "test")
    assert [row.why_not for row in result.rows] == ["CUDA error: misaligned address", ""]
    assert result.rows[1].tuned_s


def test_a_kernel_with_wrong_results_is_not_timed(tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "why_wrong_now", lambda kernel, seed: "max error 7")
    suite = Suite("small", (OperatorCase("small", ops.matmul(16, 16, 16), ()),))
    plan = BenchPlan(autosched.cpu_target(), ("library",), trials=None, log=tuned)
    result = run_bench(suite, plan, tmp_path, Console(file=io.StringIO()), "test")
    assert [row.why_not for row in result.rows] == ["wrong results: max error 7"]


def test_ctrl_c_keeps_what_was_measured(tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(case: Case, plan: BenchPlan) -> BenchRow:
        if case.name == "second":
            raise KeyboardInterrupt
        return dataclasses.replace(FASTER, case=case)

    monkeypatch.setattr(runner, "_measure", measure)
    suite = Suite("small", tuple(OperatorCase(name, PRODUCT, ()) for name in ("first", "second", "third")))
    plan = BenchPlan(autosched.cpu_target(), ("library",), trials=None, log=tuned)
    result = run_bench(suite, plan, tmp_path, Console(file=io.StringIO()), "test")
    assert result.ended == "interrupted after 1 of 3 shapes"
    data = json.loads((tmp_path / "table.json").read_text())
    assert [row["name"] for row in data["rows"]] == ["first"]
    assert data["ended"] == result.ended


def test_ctrl_c_while_tuning_ends_before_anything_is_measured(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_tune_case", interrupted)
    where = ("--log", str(tuned), "--out", str(tmp_path / "out"), "--target", "cpu")
    result = run("gemm", "--suite", str(suite_file(tmp_path, SMALL)), *where)
    assert result.exit_code == 130
    assert "what was tuned is in the log" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "none.json"], "cannot read the suite none.json: No such file"),
        (["--only", "large"], "unknown shape of small 'large'"),
        (["--baselines", "cublas"], "unknown baseline 'cublas'; did you mean 'cublaslt'?"),
        (["--baselines", "library,library"], "baseline library is named twice"),
        (["--trials", "0"], "trials=0; expected an integer of at least 1"),
        (["--rounds", "0"], "rounds=0; expected an integer of at least 1"),
        (["--policy", "graph"], "'graph' launches CUDA graphs"),
        (["--log", "."], ". is no file"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_misuse_is_refused_before_anything_is_made(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = suite_file(tmp_path, SMALL)
    monkeypatch.chdir(tmp_path)
    result = run("gemm", "--suite", str(suite), "--target", "cpu", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == [suite]


def test_help_explains_suite_baselines_and_how_to_tune_in_parts() -> None:
    shown = run("gemm", "--help").output
    for word in ("--suite", "--only", "--replay", "--baselines", "autosched bench gemm --suite", *BASELINES):
        assert word in shown
    shown = run("conv", "--help").output
    for word in ("--suite", "cuDNN", "benchmark", "autosched bench conv --suite", *BASELINES):
        assert word in shown
    both = CliRunner().invoke(app, ["bench", "--help"]).output
    assert "gemm" in both
    assert "conv" in both


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_cublaslt_is_timed_beside_cublas_and_the_preference_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "measure_peaks", measure_peaks)
    before = torch.backends.cuda.preferred_blas_library()
    shapes = [{"name": d, "m": 512, "n": 512, "k": 512, "dtype": d, "layout": "nt"} for d in ("bfloat16", "tf32")]
    suite, out = suite_file(tmp_path, *shapes), tmp_path / "out"
    where = ("--suite", str(suite), "--log", str(tmp_path / "log.jsonl"), "--out", str(out))
    result = run("gemm", *where, "--trials", "8", "--baselines", "library,cublaslt,max-autotune")
    assert result.exit_code == 0, result.output
    data = json.loads((out / "table.json").read_text())
    for row in data["rows"]:
        timed = {c["name"] for c in row["contenders"] if c["latencies_s"]}
        assert timed == {"tuned", "library", "cublaslt", "max-autotune"}, row["contenders"]
        # A product this small is far from the peak, and nothing comes far above one.
        assert 0 < row["part_of_measured_peak"] < 1.1
    assert set(data["measured_peaks"]["flops_per_s"]) == {"bfloat16", "tf32"}
    assert torch.backends.cuda.preferred_blas_library() == before
