"""What a kernel is compared with, and how the comparison reads."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import autosched
from autosched.baselines.baselines import baseline, library_settings
from autosched.baselines.library_convolutions import with_benchmark
from autosched.checking import reference
from autosched.checking.random_inputs import random_inputs
from autosched.comparing.compare import Comparison, Row
from autosched.comparing.contenders import Absent, Contender, fastest_way
from autosched.machine.element_types import torch_dtype
from autosched.machine.timing import timer_for
from search_spaces import InputError, Workload, ops, target_named
from search_spaces.devices.target import cpu
from search_spaces.workloads.workload import Scalar, Stage
from untuned import untuned_kernels, untuned_replay

TARGET = cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11)

OPERATORS = [
    ops.matmul(5, 6, 7),
    ops.matmul(5, 6, 7, layout="nt", epilogue="bias_gelu"),
    ops.matmul(5, 6, 7, layout="tn", batch=2, epilogue="bias_silu_residual_scale"),
    ops.matmul(5, 6, 7, layout="tt", epilogue="relu_gate_gelutanh"),
    ops.softmax(5, 9),
    ops.layernorm(5, 9),
    ops.rmsnorm(5, 9),
    ops.row_sum(5, 9),
    ops.gelu_scale(20, scale=3.0),
    ops.pointwise(5, 9, "bias_silu_gate_relu"),
    ops.conv(2, 6, (5, 7), 4, 3, padding=1, groups=2, epilogue="bn_residual_relu"),
    ops.grouped_matmul(3, 16, 5, 8, dtype="float32"),
    ops.segment_sum(16, 5, 3),
    ops.block_sparse_matmul(16, 5, 8, 3, 4, dtype="float32"),
    ops.varlen_attention(16, 2, 8, 3, causal=True, dtype="float32"),
]
# The others have an eager form alone.
WITH_LIBRARY = [op for op in OPERATORS if (known := baseline(op)) and known.library]
CONVOLUTIONS = [
    ops.conv(2, 8, (9, 7), 6, 3, padding=1, stride=2, epilogue="bias_relu"),
    ops.conv(2, 8, (9, 7), 6, 3, padding=1, layout="contiguous", epilogue="bias_gelutanh_residual_scale"),
    ops.conv(1, 8, (9, 7), 8, (4, 3), padding="same", dilation=(2, 1), groups=8, epilogue="bn_hardswish"),
    ops.conv(1, 8, (9, 7), 8, (2, 3), padding="same", epilogue="relu"),
    ops.conv(2, 8, (9, 7), 8, 3, groups=2, epilogue="relu_colscale"),
    ops.conv(1, 8, (9, 7), 8, 3, out_layout="contiguous"),
    ops.conv(2, 4, 17, 6, 5, dilation=2, epilogue="bias_silu"),
    ops.conv(1, 4, (5, 6, 4), 6, 3, padding=1, epilogue="bias"),
    ops.conv(1, 8, (9, 7), 8, 3, dtype="bfloat16", epilogue="bias_silu_residual"),
    ops.conv(1, 8, (9, 7), 8, 3, dtype="bfloat16", out_dtype="float32", epilogue="bias_relu"),
    ops.conv(1, 8, (9, 7), 8, 3, dtype="float8_e4m3fn", epilogue="relu"),
    ops.conv(1, 8, (9, 7), 8, 3, dtype="int8"),
    ops.conv(1, 8, (9, 7), 8, 3, dtype="int8", out_dtype="bfloat16", epilogue="bias"),
]


def comparison(*rows: Row, workload: Workload = OPERATORS[0]) -> Comparison:
    return Comparison(workload, TARGET, 1, rows)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.label)
def test_every_baseline_computes_the_operator(op: Workload) -> None:
    inputs = random_inputs(op, seed=1)
    expected = reference.evaluate(op, inputs)[0].float()
    known = baseline(op)
    assert known is not None
    torch.testing.assert_close(known.eager(*inputs), expected, rtol=1e-4, atol=1e-4)
    if known.library is not None:
        for _ in range(2):
            out = torch.full(op.outputs[0].shape, torch.nan)
            known.library(inputs, out)
            torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("op", CONVOLUTIONS, ids=lambda op: op.label)
def test_every_way_of_a_convolution_computes_it(op: Workload) -> None:
    inputs, known = random_inputs(op, seed=1), baseline(op)
    kept = [x.clone() for x in inputs]
    expected = reference.evaluate(op, inputs)[0].double()
    # Results and links of 16 bits are rounded after every call.
    within = 1e-4 if op.outputs[0].dtype == op.inputs[0].dtype == "float32" else 0.05 * float(expected.abs().max())
    assert known is not None
    assert known.ways is not None
    assert known.converting is not None
    ways, converting = known.ways(inputs), known.converting(inputs)
    assert len(ways) >= 2
    assert list(converting) == list(ways)
    (out,) = op.outputs
    laid_out = out.strides or torch.empty(out.shape).stride()
    assert {call().stride() for call in converting.values()} == {laid_out}
    for call in (lambda: known.eager(*inputs), *ways.values(), *ways.values(), *converting.values()):
        made = call()
        assert made.dtype == torch_dtype(op.outputs[0].dtype)
        torch.testing.assert_close(made.double(), expected, rtol=1e-4, atol=within)
    assert all(torch.equal(x.float(), k.float()) for x, k in zip(inputs, kept, strict=True))


@pytest.mark.parametrize("op", OPERATORS + CONVOLUTIONS[:2], ids=lambda op: op.label)
def test_torch_compile_follows_a_whole_call(op: Workload) -> None:
    known, inputs = baseline(op), random_inputs(op, seed=1)
    assert known is not None
    torch.compiler.reset()
    compiled = torch.compile(known.eager, backend="aot_eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(compiled(*inputs), known.eager(*inputs))


def test_the_library_is_the_fastest_of_its_ways() -> None:
    def refused() -> None:
        raise RuntimeError("not for this device")

    ways = {"slow": lambda: time.sleep(4e-3), "quick": lambda: None, "refused": refused}
    timer = timer_for(autosched.cpu_target(1), "hot")
    found = fastest_way("library", "cuDNN library", "F.conv2d", ways, timer)
    assert isinstance(found, Contender)
    assert (found.way, found.note) == ("quick", "F.conv2d, quick: the fastest of 2 ways, allocates")
    absent = fastest_way("library", "cuDNN library", "F.conv2d", {"refused": refused}, timer)
    assert isinstance(absent, Absent)
    assert (absent.label, absent.why) == ("cuDNN library", "not available: not for this device")


def test_searching_among_algorithms_is_over_after_every_call() -> None:
    seen: list[bool] = []
    cudnn = torch.backends.cudnn
    kept = cudnn.benchmark, cudnn.allow_tf32
    with_benchmark(lambda: seen.append(cudnn.benchmark), tf32=True)()
    with pytest.raises(ZeroDivisionError):
        with_benchmark(lambda: 1 / 0, tf32=True)()
    assert seen == [True]
    assert (cudnn.benchmark, cudnn.allow_tf32) == kept


@pytest.mark.parametrize("op", WITH_LIBRARY, ids=lambda op: op.label)
def test_inputs_are_left_alone_by_the_library(op: Workload) -> None:
    known = baseline(op)
    assert known is not None
    assert known.library is not None
    inputs = random_inputs(op, seed=1)
    kept = [x.clone() for x in inputs]
    known.library(inputs, torch.empty(op.outputs[0].shape))
    assert all(torch.equal(x, k) for x, k in zip(inputs, kept, strict=True))


def test_every_named_operator_has_a_baseline() -> None:
    assert {op.name for op in OPERATORS} == set(ops.CONSTRUCTORS)


def test_a_workload_that_only_borrows_a_name_has_no_baseline() -> None:
    softmax = ops.softmax(5, 9)
    last = softmax.stages[-1]
    impostor = Workload(
        "softmax",
        softmax.inputs,
        (*softmax.stages[:-1], Stage("out", last.axes, softmax.stages[1].expression)),
        arguments=softmax.arguments,
    )
    assert baseline(impostor) is None


@pytest.mark.parametrize("arguments", [(), (("rows", 5),), (("rows", "many"), ("columns", 9)), (("axis", 1),)])
def test_a_custom_workload_named_like_an_operator_has_no_baseline(arguments: tuple[tuple[str, Scalar], ...]) -> None:
    softmax = ops.softmax(5, 9)
    assert baseline(Workload("softmax", softmax.inputs, softmax.stages, arguments=arguments)) is None


def test_a_workload_that_leaves_defaults_out_has_the_baseline_of_the_operator() -> None:
    product = ops.matmul(5, 6, 7)
    short = Workload("matmul", product.inputs, product.stages, arguments=(("m", 5), ("n", 6), ("k", 7)))
    assert baseline(short) is not None


def test_the_library_runs_with_the_threads_of_the_target_and_settings_are_restored() -> None:
    threads = torch.get_num_threads()
    with library_settings("ieee", autosched.cpu_target(2)):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("precision", "wanted"), [("tf32", "high"), ("ieee", "highest"), ("fast", "highest")])
def test_the_library_multiplies_as_precisely_as_the_workload_asks(precision: str, wanted: str) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with library_settings(precision, autosched.cpu_target(1)):
            assert torch.get_float32_matmul_precision() == wanted
            assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_table_shows_median_spread_rate_and_ratio() -> None:
    tuned = Row("tuned", (1e-6, 2e-6, 3e-6), "writes to a given output")
    eager = Row("PyTorch eager", (4e-6, 5e-6, 6e-6))
    header, columns, first, second = str(comparison(tuned, eager)).splitlines()
    assert header == "matmul m=5 n=6 k=7 layout=nn float32 on Imaginary CPU, 1 thread, cold caches, whole calls"
    assert columns.split() == ["median", "p25", "–", "p75", "GFLOP/s", "tuned", "is", "faster"]
    assert first.split()[:9] == ["tuned", "2", "µs", "1.5", "µs", "–", "2.5", "µs", "0.2"]
    assert "2.50x" in second


def test_a_comparison_is_short_where_it_is_not_printed() -> None:
    table = comparison(Row("tuned", (2e-6,)), Row("PyTorch eager", (5e-6,)), Row("torch.compile", note="not here"))
    shown = "matmul m=5 n=6 k=7 layout=nn float32 on Imaginary CPU, 1 thread: tuned 2 µs, PyTorch eager 5 µs"
    assert repr(table) == f"<Comparison {shown}>"


QUIET = tuple(1e-3 * (1 + 0.001 * i) for i in range(15))
NOISY = (1e-3, 2e-3) * 7


def test_a_ratio_comes_with_its_interval() -> None:
    table = comparison(Row("tuned", QUIET), Row("PyTorch eager", tuple(1.25 * t for t in QUIET)))
    interval = table.speedup_interval("PyTorch eager")
    assert interval is not None
    assert interval.low <= table.speedup("PyTorch eager") <= interval.high
    assert table.verdict("PyTorch eager") == "faster"
    assert str(table).splitlines()[-1].split()[-2:] == ["1.25x", "(1.25–1.25)"]


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        (tuple(0.9 * t for t in QUIET), "slower"),
        (tuple(reversed(QUIET)), "even"),
        (QUIET[:5], "too few rounds"),
    ],
)
def test_a_ratio_has_a_verdict(other: tuple[float, ...], verdict: str) -> None:
    table = comparison(Row("tuned", QUIET[: len(other)]), Row("MKL library", other))
    assert table.verdict("MKL") == verdict
    assert ("even" in str(table)) == (verdict == "even")
    assert "noisy" not in str(table)


def test_too_few_rounds_show_a_ratio_without_an_interval() -> None:
    table = comparison(Row("tuned", QUIET[:5]), Row("MKL library", QUIET[:5]))
    assert table.speedup_interval("MKL") is None
    assert str(table).splitlines()[-1].split()[-1] == "1.00x"


def test_a_machine_that_was_too_noisy_to_tell_is_said_to_be() -> None:
    table = comparison(Row("tuned", NOISY), Row("MKL library", NOISY[::-1]), Row("as its parts", (9e-3,) * 14))
    assert table.verdict("MKL") == "too noisy"
    expected = "too noisy to tell tuned from MKL library (intervals wider than 5% that contain 1)"
    assert expected in str(table).splitlines()[-1]
    assert "even" not in str(table)


def test_rounds_that_other_work_slowed_down_are_counted() -> None:
    slowdowns = (1.0,) * 10 + (1.4, 1.9)
    table = Comparison(OPERATORS[0], TARGET, 1, (Row("tuned", QUIET),), slowdowns=slowdowns)
    assert str(table).endswith("other work slowed this core in 2 of 12 rounds, up to 1.9 times")


@pytest.mark.parametrize(("dtype", "expected"), [("tf32", ": tf32"), ("float32", ": ieee"), ("float16", None)])
def test_the_table_of_a_gpu_has_the_precision_of_both_sides(dtype: str, expected: str | None) -> None:
    layer = ops.conv(2, 8, (9, 7), 16, 3, dtype=dtype)
    shown = str(Comparison(layer, target_named("h200"), 0, (Row("tuned", QUIET),)))
    assert shown.partition("products of float32, on both sides")[2] == (expected or "")


def test_bandwidth_stands_where_nothing_is_contracted() -> None:
    shown = str(comparison(Row("tuned", (1e-6,)), workload=ops.softmax(100, 100)))
    assert "GB/s" in shown
    assert "80.0" in shown


def test_a_prediction_never_stands_among_the_measured_figures() -> None:
    tuned, bound = Row("tuned", (2e-6,)), Row("roofline", note="no bound", predicted_s=1e-6)
    *_, measured, predicted = str(comparison(tuned, bound)).splitlines()
    assert measured.index("2 µs") < predicted.index("estimate 1 µs")
    assert predicted[: predicted.index("estimate")].split() == ["roofline"]


def test_what_is_not_available_says_why() -> None:
    shown = str(comparison(Row("tuned", (2e-6,)), Row("torch.compile", note="not available: no C++ compiler")))
    assert "not available: no C++ compiler" in shown


def test_rows_are_found_by_the_start_of_their_label() -> None:
    table = comparison(Row("tuned", (1e-6,)), Row("MKL library", (2e-6,)))
    assert table.speedup("MKL") == 2.0
    with pytest.raises(InputError, match="there are: tuned, MKL library"):
        table.row("cuBLAS")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workload, Path]:
    op, log = ops.softmax(64, 128), tmp_path_factory.mktemp("compare") / "tuning.jsonl"
    autosched.tune(op, "cpu", 8, strategy="random", cost_model="random", log=log)
    return op, log


def test_a_tuned_kernel_is_compared_with_everything_in_one_run(tuned: tuple[Workload, Path]) -> None:
    op, log = tuned
    table = autosched.compare(op, "cpu", log=log, rounds=3)
    labels = [row.label for row in table.rows]
    assert labels[0] == "tuned"
    assert set(labels) == {
        "tuned",
        "PyTorch library",
        "PyTorch eager",
        "as its parts",
        "torch.compile",
        "nominal roofline",
    }
    for row in table.rows:
        measured = row.name not in ("roofline", "compile")
        assert len(row.latencies_s) == 3 if measured else row.note
    assert table.row("roofline").predicted_s
    assert table.row("roofline").note.startswith("an estimate, no bound")
    assert table.speedup("PyTorch eager") > 0


def test_a_comparison_knows_of_every_round_how_disturbed_it_was(tuned: tuple[Workload, Path]) -> None:
    table = autosched.compare(tuned[0], "cpu", log=tuned[1], rounds=6, baselines=("eager",))
    assert len(table.slowdowns) == 6
    assert min(table.slowdowns) >= 1.0
    assert table.speedup_interval("PyTorch eager") is not None


def jagged_sum(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return torch.segment_reduce(x, "sum", offsets=offsets, unsafe=True)


def test_all_rows_are_timed_over_several_histograms_of_segments() -> None:
    op, traced = ops.segment_sum(64, 8, 4), autosched.trace(jagged_sum, torch.randn(64, 8), torch.arange(5) * 16)
    cpu = autosched.cpu_target(1)
    seen: dict[str, list[tuple[int, ...]]] = {"op": [], "traced": []}
    kernels = {"op": untuned_kernels([op], cpu)[op.key], "traced": untuned_replay(traced, cpu)}
    for name, kernel in kernels.items():
        noted: dict[str, Any] = {"mine": lambda _, offsets, name=name: seen[name].append(tuple(offsets.tolist()))}
        table = autosched.compare_kernel(kernel, policy="hot", rounds=2, baselines=noted)
        assert len(table.rows[0].latencies_s) == 2
        assert "means over uniform, skewed segments" in str(table)
        assert len({*seen[name]}) >= 2
    given = [torch.randn(64, 8), torch.arange(5) * 16]
    table = autosched.compare_kernel(kernels["op"], rounds=2, baselines=("eager",), inputs=given)
    assert "means over" not in str(table)
    assert given[1].tolist() == [0, 16, 32, 48, 64]


def test_graphs_are_refused_on_a_cpu(tuned: tuple[Workload, Path]) -> None:
    op, log = tuned
    with pytest.raises(InputError, match=r"'graph' launches CUDA graphs, got a CPU .*allowed: cold, hot"):
        autosched.compare(op, "cpu", log=log, policy="graph")
    with pytest.raises(InputError, match="'graph' launches CUDA graphs"):
        autosched.compare_kernel(autosched.replay(op, "cpu", log=log), policy="graph")


def test_a_text_is_no_sequence_of_baselines(tuned: tuple[Workload, Path]) -> None:
    with pytest.raises(InputError, match="baselines='library' is a text; expected a sequence of names"):
        autosched.compare(tuned[0], "cpu", log=tuned[1], baselines="library")  # type: ignore[arg-type]  # the mistake under test


def test_baselines_are_chosen_and_stand_in_that_order(tuned: tuple[Workload, Path]) -> None:
    kernel = autosched.replay(tuned[0], "cpu", log=tuned[1])
    table = autosched.compare_kernel(kernel, rounds=2, baselines=("parts", "cublaslt", "eager"))
    measured = [row.name for row in table.rows if row.latencies_s]
    assert measured == ["tuned", "parts", "eager"]
    assert table.row("cublaslt").note == "not available: this workload runs on PyTorch here"
    assert table.speedup("parts") > 0
    with pytest.raises(InputError, match=r"unknown baseline 'eagre'; did you mean 'eager'\?"):
        autosched.compare_kernel(kernel, baselines=("eagre",))  # type: ignore[arg-type]  # wrong on purpose


def test_functions_of_ones_own_are_compared(tuned: tuple[Workload, Path]) -> None:
    op, log = tuned
    given: list[torch.Tensor] = []
    baselines: dict[str, Any] = {"eager": None, "mine": lambda *tensors: given.extend(tensors)}
    comparison = autosched.compare(op, target="cpu", log=log, rounds=3, baselines=baselines)
    assert [r.name for r in comparison.rows] == ["tuned", "eager", "mine", "roofline"]
    assert len(comparison.row("mine").latencies_s) == 3
    assert [tuple(x.shape) for x in given[: len(op.inputs)]] == [t.shape for t in op.inputs]
    with pytest.raises(InputError, match="'library' is the name of another row"):
        autosched.compare(op, target="cpu", log=log, baselines={"library": torch.mm})


def test_a_library_that_refuses_loses_its_own_row_only(
    tuned: tuple[Workload, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("softmax_out is not implemented for this type\nand a long story")

    kernel = autosched.replay(tuned[0], "cpu", log=tuned[1])
    monkeypatch.setattr(torch, "softmax", refuse)
    table = autosched.compare_kernel(kernel, rounds=2, baselines=("library", "eager"))
    assert table.row("library").note == "not available: softmax_out is not implemented for this type"
    assert len(table.row("eager").latencies_s) == 2


def test_max_autotune_says_how_long_it_compiled(tuned: tuple[Workload, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[object] = []

    def instantly(function: object, *, dynamic: bool, mode: str | None) -> object:
        modes.append(mode)
        return function

    monkeypatch.setattr(torch, "compile", instantly)
    kernel = autosched.replay(tuned[0], "cpu", log=tuned[1])
    table = autosched.compare_kernel(kernel, rounds=2, baselines=("compile", "max-autotune"))
    assert modes == [None, "max-autotune-no-cudagraphs"]
    for name in ("compile", "max-autotune"):
        row = table.row(name)
        assert row.compile_s is not None
        assert row.note.endswith(f"compiled in {row.compile_s:.1f} s")


def test_rounds_that_are_not_given_are_as_many_as_there_is_time_for(
    tuned: tuple[Workload, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = autosched.replay(tuned[0], "cpu", log=tuned[1])
    quick = autosched.compare_kernel(kernel, rounds=None, baselines=("eager",))
    assert len(quick.slowdowns) > 30
    monkeypatch.setattr(sys.modules[Comparison.__module__], "_TIMING_S", 0.0)
    slow = autosched.compare_kernel(kernel, rounds=None, baselines=("eager",))
    assert len(slow.slowdowns) == 30


def test_a_kernel_is_not_compared_in_no_rounds(tuned: tuple[Workload, Path]) -> None:
    kernel = autosched.replay(tuned[0], "cpu", log=tuned[1])
    with pytest.raises(InputError, match="rounds=0; expected an integer of at least 1"):
        autosched.compare_kernel(kernel, rounds=0)


def test_a_workload_that_was_never_tuned_cannot_be_compared(tuned: tuple[Workload, Path]) -> None:
    with pytest.raises(InputError, match="no successful record of softmax rows=7"):
        autosched.compare(ops.softmax(7, 7), "cpu", log=tuned[1])
