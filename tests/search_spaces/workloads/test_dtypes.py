"""8-bit floats and integers: how they are rounded, multiplied, checked and compared with.

On a machine with a GPU, `pytest -m gpu` with this file tunes, replays and checks every type in every layout.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import autosched
import best_spaces
import search_spaces
from autosched.backends.triton.resources import why_too_large
from autosched.baselines import baselines
from autosched.checking import reference
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import empty, random_inputs
from autosched.machine import devices
from autosched.machine.element_types import torch_dtype
from needed import needs_gpu
from scheduled_tensors import interpreted
from search_spaces import Axis, EmptySearchSpaceError, InputError, Reduction, Stage, Tensor, Workload, ops
from search_spaces.devices.target import GPUS, cpu
from search_spaces.workloads.dtypes import FLOAT8, FLOAT8_CHAIN, dtype, round_to
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access
from tile_programs import largest_tile

CPU = cpu("a CPU", lanes=8, threads=1, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
LAYOUTS = ("nn", "nt", "tn", "tt")

NARROW = (
    ops.matmul(37, 50, 300, dtype="float8_e4m3fn"),
    ops.matmul(37, 50, 300, dtype="float8_e5m2", layout="nt", fast_accum=True, out_dtype="float32"),
    ops.matmul(20, 50, 64, dtype="float8_e4m3fn", layout="tt", epilogue="rowscale_colscale_bias_gelu"),
    ops.matmul(4, 50, 300, dtype="float8_e4m3fn", out_dtype="float8_e5m2"),
    ops.matmul(37, 50, 300, dtype="int8", layout="tn"),
    ops.matmul(37, 50, 1300, dtype="int8", layout="nt", batch=2),
    ops.matmul(37, 50, 300, dtype="int8", out_dtype="bfloat16"),
    ops.matmul(37, 50, 300, dtype="int8", epilogue="rowscale_colscale_bias", out_dtype="float16"),
    ops.matmul(37, 50, 90, dtype="bfloat16", out_dtype="float32", epilogue="bias"),
    ops.matmul(37, 50, 90, dtype="float32", out_dtype="float8_e4m3fn"),
)


def label(workload: Workload) -> str:
    return workload.label.replace(" ", "-")


# Rounding


@pytest.mark.parametrize("name", FLOAT8)
def test_rounding_to_eight_bits_is_that_of_pytorch(name: str) -> None:
    rng = np.random.default_rng(0)
    every_half = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    anything = rng.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    spread = (rng.standard_normal(100_000) * 10.0 ** rng.uniform(-6, 6, 100_000)).astype(np.float32)
    for values in (every_half, anything, spread):
        # Versions of PyTorch differ in what becomes of that which is too large.
        kept = values[~(np.abs(values) > LARGEST[name])]
        expected = torch.from_numpy(kept).to(torch_dtype(name)).float().numpy()
        np.testing.assert_array_equal(round_to(kept, name), expected)


@pytest.mark.skipif(
    bool(torch.tensor(1e4).to(torch.float8_e4m3fn).float().isnan()), reason="PyTorch before 2.13 makes NaN of it"
)
@pytest.mark.parametrize("name", FLOAT8)
def test_what_is_too_large_becomes_what_it_becomes_in_pytorch(name: str) -> None:
    beside = LARGEST[name] * np.linspace(0.99, 1.15, 4001)
    beyond = np.concatenate([beside, LARGEST[name] * np.logspace(0, 30, 4001), [np.inf, np.nan]]).astype(np.float32)
    given = np.concatenate([beyond, -beyond])
    for source in (torch.float32, torch.bfloat16, torch.float16):
        values = torch.from_numpy(given).to(source)
        expected = values.to(torch_dtype(name)).float().numpy()
        np.testing.assert_array_equal(round_to(values.float().numpy(), name), expected)


@pytest.mark.parametrize(("name", "beyond"), [("float8_e4m3fn", 448.0), ("float8_e5m2", np.inf)])
def test_what_is_too_large_saturates_or_becomes_infinite(name: str, beyond: float) -> None:
    largest = LARGEST[name]
    step = largest * 2.0 ** -(2 if name == "float8_e5m2" else 3) / 1.75 / 2
    # Half way to the next multiple goes to even, which is the largest for one type and beyond it for the other.
    just_below = np.float32(largest + step * 0.99)
    given = np.array([largest, just_below, 3 * largest, -3 * largest, np.inf, np.nan], dtype=np.float32)
    np.testing.assert_array_equal(round_to(given, name), [largest, largest, beyond, -beyond, beyond, np.nan])


@pytest.mark.parametrize("name", FLOAT8)
def test_a_rounded_number_rounds_to_itself_and_half_way_to_even(name: str) -> None:
    finite = np.arange(256, dtype=np.uint8)
    values = torch.from_numpy(finite).view(torch_dtype(name)).float().numpy()
    np.testing.assert_array_equal(round_to(values, name), values)
    step = np.float32(dtype(name).epsilon)
    one = np.float32(1.0)
    np.testing.assert_array_equal(round_to(np.array([one + step / 2, one + 3 * step / 2]), name), [one, one + 2 * step])


# What is allowed


def test_outputs_have_the_default_type_of_their_operands() -> None:
    made = {d: ops.matmul(16, 16, 16, dtype=d).outputs[0].dtype for d in ("bfloat16", "tf32", *FLOAT8, "int8")}
    assert made == {
        "bfloat16": "bfloat16",
        "tf32": "float32",
        "float8_e4m3fn": "bfloat16",
        "float8_e5m2": "bfloat16",
        "int8": "int32",
    }


def test_sums_of_integers_are_int32_whatever_the_output_is() -> None:
    scaled = ops.matmul(8, 8, 8, dtype="int8", epilogue="rowscale_colscale", out_dtype="bfloat16")
    assert [(s.name, s.dtype) for s in scaled.stages] == [("acc", "int32"), ("out", "bfloat16")]
    assert [(t.name, t.shape, t.dtype) for t in scaled.inputs[2:]] == [
        ("rowscale", (8,), "float32"),
        ("colscale", (8,), "float32"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "int32"}, "unknown dtype 'int32'"),
        ({"dtype": "uint8"}, "unknown dtype 'uint8'"),
        ({"dtype": "int8", "out_dtype": "int8"}, r"out_dtype int8 of int8 operands \(allowed: .*int32\)"),
        (
            {"dtype": "int8", "epilogue": "relu"},
            "int8 operands with an epilogue, and no out_dtype; expected one of float32",
        ),
        ({"out_dtype": "int32"}, "out_dtype int32 of float32 operands"),
        ({"fast_accum": True}, "fast_accum with dtype float32; it is for float8_e4m3fn and float8_e5m2 only"),
    ],
)
def test_types_that_make_no_sense_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ops.matmul(8, 8, 8, **arguments)  # type: ignore[arg-type]  # of many types


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "bool"])
def test_no_stage_before_the_last_holds_integers_but_a_sum_of_products_of_integers(dtype: str) -> None:
    i, x = Axis("i", 4), Tensor("x", (4,), "int8")
    doubled = Stage("doubled", (i,), ex.mul(Access("x", (axis_index("i"),)), ex.Literal(2.0)), dtype=dtype)
    assert Workload("doubled", (x,), (doubled,)).outputs[0].dtype == dtype
    out = Stage("out", (i,), Access("doubled", (axis_index("i"),)))
    with pytest.raises(InputError, match=f"stage 'doubled' has dtype {dtype}; expected one of float32"):
        Workload("again", (x,), (doubled, out))
    total = Stage("total", (), Access("x", (axis_index("i"),)), Reduction("sum", (i,)), dtype=dtype)
    with pytest.raises(InputError, match="or int32 for a sum of products of int8"):
        Workload("total", (x,), (total, Stage("out", (), Access("total", ()))))


def test_fast_sums_are_another_workload_than_exact_ones() -> None:
    exact, fast = (ops.matmul(8, 8, 8, dtype="float8_e5m2", fast_accum=f) for f in (False, True))
    assert (exact.precision, fast.precision) == ("ieee", "fast")
    assert exact.key != fast.key
    assert Workload.from_json(fast.to_json()) == fast


def test_arguments_of_a_shell_say_types_too() -> None:
    given = {"m": "8", "n": "16", "k": "32", "dtype": "float8_e4m3fn", "out_dtype": "float32", "fast_accum": "true"}
    expected = ops.matmul(8, 16, 32, dtype="float8_e4m3fn", out_dtype="float32", fast_accum=True)
    assert ops.construct("matmul", given) == expected
    assert ops.construct("matmul", {**given, "fast_accum": "no"}).precision == "ieee"
    with pytest.raises(InputError, match="fast_accum='maybe': expected one of true"):
        ops.construct("matmul", {**given, "fast_accum": "maybe"})


def test_the_label_says_what_is_read_and_what_is_made() -> None:
    assert ops.matmul(8, 8, 8, dtype="int8").label.endswith(" int8 to int32")
    assert ops.matmul(8, 8, 8, dtype="float8_e5m2", fast_accum=True).label.endswith(
        " fast_accum=True float8_e5m2 to bfloat16"
    )


@pytest.mark.parametrize(
    ("workload", "target", "message"),
    [
        (
            ops.matmul(64, 64, 64, dtype="float8_e4m3fn"),
            "a100",
            "a100 has no conversions of float8_e4m3fn",
        ),
        (
            ops.matmul(64, 64, 64, dtype="bfloat16"),
            "t4",
            "t4 has no matrix instructions for bfloat16",
        ),
        (ops.matmul(64, 64, 64, dtype="float8_e4m3fn"), "l40s", "not kept in float32 on l40s, whose matrix"),
    ],
)
def test_a_target_without_the_type_says_which_it_takes(workload: Workload, target: str, message: str) -> None:
    with pytest.raises(EmptySearchSpaceError, match=message):
        best_spaces.build(workload, GPUS[target])


def test_fast_sums_need_no_promotion() -> None:
    assert best_spaces.build(ops.matmul(64, 64, 64, dtype="float8_e4m3fn", fast_accum=True), GPUS["l40s"]).sketches


# Data and its check


def test_integers_are_drawn_so_that_no_sum_leaves_int32() -> None:
    for k, largest in ((64, 127), (2**18, 90)):
        a, b = random_inputs(ops.matmul(128, 128, k, dtype="int8"), 0)
        assert int(a.max()) == -int(a.min()) == int(b.max()) == largest
        assert k * largest**2 < 2**31


def test_an_integer_that_is_off_by_one_is_wrong() -> None:
    workload = ops.matmul(8, 8, 64, dtype="int8")
    a, b = random_inputs(workload, 0)
    right = (a.long() @ b.long()).int()
    (expectation,) = expect(workload, [a, b])
    assert error_ratio(right, expectation) == 0.0
    right[3, 3] += 1
    assert error_ratio(right, expectation) > 1.0


def test_large_integer_sums_are_not_rounded() -> None:
    workload = ops.matmul(1, 1, 2**17 - 1, dtype="int8")
    a, b = (torch.full(t.shape, 127, dtype=torch.int8) for t in workload.inputs)
    exact = torch.tensor([[127 * 127 * (2**17 - 1)]], dtype=torch.int32)
    assert error_ratio(exact, *expect(workload, [a, b])) == 0.0
    assert error_ratio(exact - 1, *expect(workload, [a, b])) > 1.0


def test_eight_bit_outputs_saturate() -> None:
    workload = ops.matmul(1, 2, 4, dtype="float8_e4m3fn", out_dtype="float8_e4m3fn")
    a, b = torch.full((1, 4), 16.0), torch.full((4, 2), 16.0)
    b[:, 1] = 1.0
    (expectation,) = expect(workload, [x.to(torch.float8_e4m3fn) for x in (a, b)])
    assert error_ratio(torch.tensor([[448.0, 64.0]]).to(torch.float8_e4m3fn), expectation) == 0.0
    assert error_ratio(torch.tensor([[416.0, 32.0]]).to(torch.float8_e4m3fn), expectation) > 1.0
    assert error_ratio(torch.tensor([[torch.nan, 64.0]]).to(torch.float8_e4m3fn), expectation) > 1.0


def tensor_core_sum(a: torch.Tensor, b: torch.Tensor, chain: int) -> torch.Tensor:
    """a @ b by Hopper's tensor cores: 32 products at a time are cut, with the accumulator, to 13 bits of fraction.

    Every `chain` products the accumulator is added to an exact sum.
    """
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    accumulated = total.clone()
    for first in range(0, a.shape[1], 32):
        products = a[:, first : first + 32, None].double() * b[None, first : first + 32, :].double()
        terms = torch.cat([products, accumulated[:, None, :]], 1)
        largest = terms.abs().amax(1, keepdim=True).clamp(min=1e-300)
        unit = torch.exp2(largest.log2().floor() - 13)
        accumulated = (terms.div(unit).trunc() * unit).sum(1)
        if (first + 32) % chain == 0:
            total, accumulated = total + accumulated, torch.zeros_like(total)
    return total + accumulated


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("k", [64, 1024, 4096])
def test_sums_in_fourteen_bits_are_within_the_tolerance_for_them(k: int, fast: bool) -> None:
    workload = ops.matmul(24, 24, k, dtype="float8_e4m3fn", fast_accum=fast, out_dtype="float32")
    a, b = random_inputs(workload, 0)
    got = tensor_core_sum(a, b, k if fast else FLOAT8_CHAIN)
    assert 0.02 < error_ratio(got.float(), *expect(workload, [a, b])) < 0.5


def test_sums_that_are_never_promoted_fail_the_check_that_says_they_are() -> None:
    workload = ops.matmul(24, 24, 16384, dtype="float8_e4m3fn", out_dtype="float32")
    a, b = random_inputs(workload, 0)
    assert error_ratio(tensor_core_sum(a, b, 16384).float(), *expect(workload, [a, b])) > 1.0


def test_leaving_out_a_tile_of_an_eight_bit_product_is_found() -> None:
    for fast in (False, True):
        workload = ops.matmul(64, 64, 4096, dtype="float8_e4m3fn", fast_accum=fast)
        a, b = random_inputs(workload, 0)
        less = a.float()
        less[:, 64:128] = 0
        got = (less @ b.float()).to(torch.bfloat16)
        assert error_ratio(got, *expect(workload, [a, b])) > 1.0


# Lowering, baselines


@pytest.mark.parametrize("workload", NARROW, ids=label)
def test_lowered_programs_compute_narrow_types(workload: Workload) -> None:
    inputs = random_inputs(workload, seed=3)
    expectation, space, rng = (
        *expect(workload, inputs),
        best_spaces.build(workload, GPUS["h200"]),
        np.random.default_rng(7),
    )
    for sketch in space.sketches:
        only = search_spaces.SearchSpace(workload, space.target, (sketch,), space.backends)
        for schedule in dict.fromkeys(only.sample(rng) for _ in range(6)):
            got = torch.from_numpy(interpreted(workload, schedule.program, [x.float() for x in inputs])[0])
            made = got.to(torch_dtype(workload.outputs[0].dtype))
            assert error_ratio(made, expectation) <= 1.0, str(schedule)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_large_integer_sums_stay_integers_in_every_sketch(layout: str) -> None:
    workload = ops.matmul(16, 16, 2**12, dtype="int8", layout=layout)
    inputs = [torch.full(t.shape, 127, dtype=torch.int8) for t in workload.inputs]
    inputs[0].view(-1)[5] = 126
    expected = reference.evaluate(workload, inputs)[0].numpy()
    assert expected.max() > 2**24
    space, rng = best_spaces.build(workload, GPUS["h200"]), np.random.default_rng(7)
    for schedule in dict.fromkeys(space.sample(rng) for _ in range(20)):
        np.testing.assert_array_equal(interpreted(workload, schedule.program, inputs)[0], expected)


SIXTEENS = tuple(
    ops.matmul(32, 48, 64, dtype=d, layout=layout)
    for d, layout in itertools.product(("float8_e4m3fn", "int8"), LAYOUTS)
)
LIBRARY = (
    *SIXTEENS,
    ops.matmul(32, 48, 64, dtype="float8_e4m3fn", layout="nt", fast_accum=True, batch=3),
    ops.matmul(32, 48, 64, dtype="float8_e4m3fn", layout="nt", epilogue="rowscale_colscale_bias"),
    ops.matmul(32, 48, 64, dtype="float8_e4m3fn", epilogue="rowscale_colscale", out_dtype="float32"),
    ops.matmul(32, 48, 64, dtype="float8_e4m3fn", epilogue="relu", out_dtype="float8_e5m2"),
    ops.matmul(32, 48, 64, dtype="float8_e5m2"),
    ops.matmul(31, 47, 65, dtype="float8_e4m3fn"),
    ops.matmul(31, 47, 65, dtype="int8"),
    ops.matmul(32, 48, 64, dtype="int8", epilogue="rowscale_colscale_bias", out_dtype="float32"),
    ops.matmul(32, 48, 64, dtype="int8", epilogue="relu", out_dtype="float32", batch=2),
    ops.matmul(32, 48, 64, dtype="float16", out_dtype="float32", epilogue="bias_relu"),
    ops.matmul(32, 48, 64, dtype="float32", out_dtype="bfloat16", epilogue="relu"),
)


@pytest.mark.parametrize("workload", LIBRARY, ids=label)
def test_the_library_computes_narrow_types(workload: Workload) -> None:
    inputs = random_inputs(workload, seed=1)
    expected = reference.evaluate(workload, inputs)[0].float()
    known = baselines.baseline(workload)
    assert known is not None
    # Some forms round to bfloat16 before the epilogue.
    error = {"rtol": 0.26, "atol": 0.5} if workload.outputs[0].dtype in FLOAT8 else {"rtol": 0.02, "atol": 0.1}
    torch.testing.assert_close(known.eager(*inputs).float(), expected, **error)
    if known.library is not None:
        for _ in range(2):
            out = empty(workload.outputs[0], "cpu")
            known.library(inputs, out)
            torch.testing.assert_close(out.float(), expected, **error)


def test_the_library_is_called_by_its_name() -> None:
    names = {}
    for workload in LIBRARY:
        known = baselines.baseline(workload)
        assert known is not None
        names[known.called] = known.library is not None
    assert names == {
        "torch._scaled_mm": True,
        "torch._scaled_mm for each of the batch": True,
        "torch._int_mm": True,
        "torch._int_mm for each of the batch": True,
        "torch.matmul of copies in bfloat16": False,
        "torch.matmul of copies in float32": False,
        "torch.mm(out_dtype=float32)": True,
        "torch.matmul": True,
    }


def test_stages_of_eight_bit_inputs_can_be_written_out() -> None:
    for workload in (ops.matmul(16, 16, 32, dtype="float8_e4m3fn"), ops.matmul(16, 16, 32, dtype="int8")):
        inputs = random_inputs(workload, 0)
        assert error_ratio(*reference.as_written(workload, inputs), *expect(workload, inputs)) <= 1.0


# Compiling


def compiled(workload: Workload, target: str) -> list[bytes]:
    """The machine code of the smallest schedule to start from in one kernel, for a GPU that need not be here."""
    pytest.importorskip("triton")
    from autosched.backends.triton.backend import TritonBackend

    space = best_spaces.build(workload, GPUS[target])
    sketch = space.sketch("contraction")
    programs = [sketch.lower(s) for s in sketch.seeds if s["split"] == 1 and sketch.why_illegal(s) is None]
    # The compiler takes as much longer as a tile is larger.
    program = min((p for p in programs if why_too_large(p, GPUS[target]) is None), key=largest_tile)
    backend = TritonBackend()
    return list(backend.compile(backend.render(program, "", GPUS[target]), program, GPUS[target]).binaries)


@pytest.mark.parametrize(
    ("name", "target", "layout"),
    [
        *(("float8_e4m3fn", "h200", layout) for layout in LAYOUTS),
        ("float8_e5m2", "h200", "nt"),
        *(("int8", "h200", layout) for layout in ("nn", "tt")),
        *(("int8", "a100", layout) for layout in ("nt", "tn")),
    ],
)
def test_every_type_compiles_in_every_layout(name: str, target: str, layout: str) -> None:
    binaries = compiled(ops.matmul(1000, 1008, 1040, dtype=name, layout=layout), target)
    assert all(b.startswith(b"\x7fELF") for b in binaries)


@pytest.mark.parametrize("fast", [False, True])
def test_sums_are_promoted_on_hopper_unless_they_may_be_fast(tmp_path: Path, fast: bool) -> None:
    """Additions of float32 in the machine code are what adds accumulators up: there is no epilogue."""
    triton = pytest.importorskip("triton")
    workload = ops.matmul(1024, 1024, 1024, dtype="float8_e4m3fn", layout="nt", fast_accum=fast)
    (tmp_path / "cubin").write_bytes(compiled(workload, "h200")[-1])
    disassembler = str(triton.knobs.nvidia.nvdisasm.path)
    listing = subprocess.run([disassembler, "-c", str(tmp_path / "cubin")], capture_output=True, text=True, check=True)
    assert "QGMMA" in listing.stdout
    assert (len(re.findall(r"\bFADD\b", listing.stdout)) > 0) != fast


# On a GPU

MEASURED = [
    *(
        ops.matmul(512, 1024, 2048, layout=layout, **kind)  # type: ignore[arg-type]  # of many types
        for kind in (
            {"dtype": "float8_e4m3fn"},
            {"dtype": "float8_e4m3fn", "fast_accum": True},
            {"dtype": "float8_e5m2"},
            {"dtype": "int8"},
        )
        for layout in LAYOUTS
    ),
    ops.matmul(1021, 2039, 4093, dtype="float8_e4m3fn"),
    ops.matmul(1021, 2039, 4093, dtype="int8"),
    ops.matmul(35, 8457, 2560, dtype="float8_e4m3fn", layout="nt", epilogue="rowscale_colscale_bias"),
    ops.matmul(35, 8457, 2560, dtype="int8", layout="nt", epilogue="rowscale_colscale", out_dtype="bfloat16"),
    ops.matmul(
        512, 512, 512, dtype="float8_e4m3fn", layout="nt", out_dtype="float8_e4m3fn", epilogue="scale", scale=0.1
    ),
    ops.matmul(512, 512, 512, dtype="bfloat16", out_dtype="float32", batch=3),
]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("workload", MEASURED, ids=label)
def test_tuned_kernels_of_narrow_types_are_right(workload: Workload, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    target = devices.gpu_target()
    result = autosched.tune(workload, target=target, trials=12, log=log)
    kernel = autosched.replay(workload, target=target, log=log)
    inputs = random_inputs(workload, 99, kernel.device)
    (expectation,) = expect(workload, inputs)
    assert error_ratio(kernel(*inputs), expectation) <= 1.0, str(result)
    known = baselines.baseline(workload)
    assert known is not None
    if known.library is not None and not workload.stages[1:]:
        out = empty(workload.outputs[0], kernel.device)
        known.library(inputs, out)
        assert error_ratio(out, expectation) <= 1.0, known.called
