"""The CPU backend: LLVM IR compiled for the processor that the tests run on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import search_spaces
from autosched.backends import spaces
from autosched.backends.backend import CompileError
from autosched.backends.llvm.backend import LlvmBackend
from autosched.checking import reference
from autosched.checking.operations import OPERATIONS
from autosched.checking.random_inputs import random_inputs
from autosched.machine import devices
from autosched.machine.element_types import torch_dtype
from row_kinds import kind_of
from scheduled_tensors import interpreted, launched_on
from search_spaces import Axis, Stage, Target, Tensor, Workload, ops
from search_spaces.devices.target import GPUS, cpu
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.statements import Load, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.schedules.knobs import KnobValue
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply

HERE = devices.cpu_target()
BACKEND = LlvmBackend()
PLAIN = cpu("any CPU", lanes=8, threads=1, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)


def run(
    schedule: search_spaces.Schedule, workload: Workload, inputs: list[torch.Tensor], target: Target = HERE
) -> torch.Tensor:
    program = schedule.program
    launcher = BACKEND.load(
        BACKEND.compile(BACKEND.render(program, str(schedule.one_line), target), program, target), program
    )
    out = torch.full(workload.outputs[0].shape, torch.nan, dtype=torch_dtype(workload.outputs[0].dtype))
    launcher(launched_on(workload, inputs, out))
    launcher.unload()
    return out


def unary(operator: str, elements: int) -> Workload:
    axes = (Axis("i", elements),)
    stage = Stage("out", axes, Apply(operator, (Access("x", (axis_index("i"),)),)))
    return Workload(operator, (Tensor("x", (elements,), "float32"),), (stage,))


EXTREMES = [
    0.0,
    -0.0,
    torch.inf,
    -torch.inf,
    torch.nan,
    1e-40,
    -1e-40,
    88.7,
    88.8,
    -87.4,
    -103.9,
    -104.5,
    3.4e38,
    -3.4e38,
]


@pytest.mark.parametrize(
    ("operator", "units"), [("exp", 1.5), ("log", 2.0), ("tanh", 2.0), ("erf", 2.0), ("rsqrt", 1.5), ("sqrt", 0.51)]
)
def test_polynomials_are_within_two_units_in_the_last_place(operator: str, units: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.cat(
        [torch.randn(200_000, generator=generator) * s for s in (0.01, 1.0, 4.0, 30.0)] + [torch.tensor(EXTREMES)]
    )
    workload = unary(operator, len(x))
    space = spaces.build(workload, HERE)
    got = run(space.sample(np.random.default_rng(0)), workload, [x])
    exact = OPERATIONS[operator](x.double())
    assert torch.equal(got.isnan(), exact.isnan())
    finite = exact.float().isfinite()
    assert torch.equal(got[~finite & ~exact.isnan()], exact.float()[~finite & ~exact.isnan()])
    spacing = torch.from_numpy(np.spacing(np.abs(exact.float().numpy())))
    assert float(((got.double() - exact).abs() / spacing)[finite].max()) <= units


ODD = (
    ops.matmul(5, 7, 300, layout="nt", epilogue="bias_silu"),
    ops.matmul(37, 130, 65, layout="tn", epilogue="residual_gelutanh_scale"),
    ops.matmul(64, 96, 128),
    ops.matmul(33, 65, 700, layout="tt", batch=2, epilogue="bias_gelu_residual"),
    ops.matmul(1, 100, 40),
    ops.softmax(13, 3001),
    ops.softmax(5, 7),
    ops.layernorm(7, 2500),
    ops.rmsnorm(3, 500),
    ops.row_sum(5, 3333),
    ops.gelu_scale(1000),
    ops.gelu_scale(4096),
    ops.pointwise(13, 100, "bias_gelu_residual"),
)
NARROW = (
    ops.matmul(37, 30, 65, dtype="float16", epilogue="bias_gelu"),
    ops.matmul(20, 40, 70, dtype="bfloat16", layout="nt"),
    ops.softmax(9, 33, dtype="bfloat16"),
    ops.layernorm(3, 70, dtype="float16"),
    ops.pointwise(13, 128, "bias_relu_gate", dtype="bfloat16"),
)


@pytest.mark.parametrize("workload", ODD, ids=lambda w: w.label)
def test_compiled_kernels_agree_with_the_interpreter(workload: Workload) -> None:
    space, rng = spaces.build(workload, HERE), np.random.default_rng(5)
    inputs = random_inputs(workload, seed=2)
    for schedule in dict.fromkeys(space.sample(rng) for _ in range(5)):
        expected = interpreted(workload, schedule.program, inputs)[0]
        np.testing.assert_allclose(
            run(schedule, workload, inputs), expected, rtol=1e-4, atol=1e-4, err_msg=str(schedule)
        )


@pytest.mark.parametrize("workload", NARROW, ids=lambda w: w.label)
def test_sixteen_bit_types_are_computed_in_float32_and_rounded_once(workload: Workload) -> None:
    space, rng = spaces.build(workload, HERE), np.random.default_rng(5)
    inputs = random_inputs(workload, seed=2)
    step = 2.0**-10 if workload.outputs[0].dtype == "float16" else 2.0**-7
    (expected,) = reference.evaluate(workload, inputs)
    for schedule in dict.fromkeys(space.sample(rng) for _ in range(4)):
        got = run(schedule, workload, inputs).double()
        np.testing.assert_allclose(got, expected, rtol=0.51 * step + 1e-4, atol=1e-4, err_msg=str(schedule))


def test_two_threads_share_a_grid_and_compute_the_same() -> None:
    workload = ops.matmul(200, 150, 90, epilogue="bias_relu")
    two = devices.cpu_target(threads=2)
    space, inputs = spaces.build(workload, two), random_inputs(workload, seed=0)
    rng = np.random.default_rng(2)
    for _ in range(4):
        schedule = space.sample(rng)
        assert torch.equal(run(schedule, workload, inputs, two), run(schedule, workload, inputs, HERE))


def test_nothing_is_written_beside_the_output_and_nothing_of_it_is_left_out() -> None:
    workload = ops.matmul(35, 45, 60, epilogue="bias")
    space, inputs = spaces.build(workload, HERE), random_inputs(workload, seed=0)
    rng = np.random.default_rng(9)
    for _ in range(6):
        program = space.sample(rng).program
        launcher = BACKEND.load(BACKEND.compile(BACKEND.render(program, "", HERE), program, HERE), program)
        memory = torch.full((35 * 45 + 256,), 7.0)
        launcher(launched_on(workload, inputs, memory[128 : 128 + 35 * 45].view(35, 45)))
        assert bool((memory[:128] == 7.0).all())
        assert bool((memory[-128:] == 7.0).all())
        torch.testing.assert_close(
            memory[128:-128].view(35, 45).double(), *reference.evaluate(workload, inputs), rtol=1e-4, atol=1e-4
        )


def test_a_source_compiles_to_the_same_bytes_whatever_was_compiled_before() -> None:
    rng = np.random.default_rng(0)
    programs = [spaces.build(op, HERE).sample(rng).program for op in ODD]
    sources = [BACKEND.render(p, "", HERE) for p in programs]
    first = [BACKEND.compile(s, p, HERE).binaries for s, p in zip(sources, programs, strict=True)]
    again = [BACKEND.compile(s, p, HERE).binaries for s, p in zip(sources[::-1], programs[::-1], strict=True)]
    assert first == again[::-1]


@pytest.mark.parametrize("name", ["µ", "_0", "entry", "scratch", "ret", "float"])
def test_names_may_be_any_identifiers(name: str) -> None:
    axes = (Axis(f"axis_{name}", 40),)
    stage = Stage(f"out_{name}", axes, Apply("exp", (Access(name, (axis_index(axes[0].name),)),)))
    workload = Workload(name, (Tensor(name, (40,), "float32"),), (stage,))
    x = torch.randn(40)
    got = run(spaces.build(workload, HERE).sample(np.random.default_rng(0)), workload, [x])
    torch.testing.assert_close(got, torch.exp(x))


def test_broken_source_is_a_compile_error() -> None:
    program = spaces.build(ops.gelu_scale(64), HERE).sample(np.random.default_rng(0)).program
    with pytest.raises(CompileError, match="LLVM"):
        BACKEND.compile("define void @f() { nonsense }", program, HERE)


def test_a_program_for_a_gpu_is_a_compile_error() -> None:
    space = spaces.build(ops.gelu_scale(1 << 20), GPUS["h200"])
    schedule = next(s for s in space if s.knobs["grid"] == "persistent")
    with pytest.raises(CompileError, match="grids are for GPUs"):
        BACKEND.render(schedule.program, "", HERE)


def row_program(*, atomic: bool = False, zeroed: bool = False) -> TileProgram:
    """out = x, row by row; with `zeroed` only the first of 3 rows is written."""
    where = (Slice(Affine.of(("r.0", 1)), 1, "r"), Slice(Affine(), 16, "c"))
    tile = Tile("t", ("r", "c"), (1, 16))
    body = (Load(tile, "x", where), Store("out", where, "t", atomic=atomic))
    grid = Grid((GridAxis("r.0", 1 if zeroed else 3),))
    buffers = (Buffer("x", (3, 16), "float32", "input"), Buffer("out", (3, 16), "float32", "output"))
    kernel = Kernel("copy", grid, body, Launch(lanes=8))
    return TileProgram("copy", buffers, (kernel,), zeroed=("out",) if zeroed else ())


def test_a_zeroed_output_is_cleared_before_every_call() -> None:
    program = row_program(zeroed=True)
    launcher = BACKEND.load(BACKEND.compile(BACKEND.render(program, "", HERE), program, HERE), program)
    x, out = torch.randn(3, 16), torch.full((3, 16), torch.nan)
    for _ in range(2):
        launcher([x, out])
        np.testing.assert_array_equal(out, interpret(program, [x.numpy()])[0])
        out.fill_(7.0)
    launcher.unload()


def test_an_atomic_store_is_a_compile_error() -> None:
    with pytest.raises(CompileError, match="atomic stores are not available on a CPU"):
        BACKEND.render(row_program(atomic=True), "", HERE)


def test_what_underflows_in_wide_vectors_is_masked_off() -> None:
    """A result that underflows takes a hundred cycles: rows of a mask would take as many times as long as others."""
    wide = cpu("AVX-512", lanes=16, threads=1, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
    schedule = next(iter(spaces.build(ops.softmax(16, 64), wide)))
    source = BACKEND.render(schedule.program, "", HERE)
    assert source.count("mask.scalef") > 1
    assert "i16 -1" not in source


def test_golden_matmul(check_golden: Callable[[str, str], None]) -> None:
    space = spaces.build(ops.matmul(48, 32, 64, epilogue="bias_relu"), PLAIN)
    values: dict[str, KnobValue] = {
        "register": (4, 16),
        "m": 4,
        "n": (1, 2),
        "k": (2, 32),
        "pack_a": "rows",
        "pack_b": "panels",
    }
    values |= {"order": "row_major", "inner": "ij", "unroll": 2, "prefetch": 8}
    schedule = space.bind(search_spaces.Schedule("contraction", tuple(values.items())))
    check_golden("llvm", BACKEND.render(schedule.program, str(schedule.one_line), HERE))


def test_golden_softmax(check_golden: Callable[[str, str], None]) -> None:
    space = spaces.build(ops.softmax(16, 100), PLAIN)
    schedule = next(s for s in space if kind_of(s) == "resident" and s.knobs["vectors"] == 2)
    check_golden("llvm", BACKEND.render(schedule.program, str(schedule.one_line), HERE))
