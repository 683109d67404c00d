"""The Triton printer against the NumPy interpreter and float64, its compiler without a GPU, and its launcher.

Goldens are under goldens/triton, by test name; `pytest --update-goldens` with this file rewrites them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from autosched.backends.backend import CompileError
from autosched.backends.gpu.cubin import read_cubin
from autosched.backends.gpu.kernel import CudaKernel, kernels_from_json, kernels_to_json
from autosched.backends.printing.scope import Block, Scope
from autosched.backends.triton.backend import TritonBackend
from autosched.backends.triton.compile import count_parameters, reason
from autosched.backends.triton.language.grid import print_grid
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.scope import python_identifiers
from autosched.backends.triton.resources import resources
from autosched.checking.reference import evaluate
from autosched.machine import devices
from best_spaces import build
from machine_code import machine_code
from needed import needs_gpu
from scheduled_tensors import launched_on
from search_spaces import Schedule, Workload, ops, target_named
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.statements import Fill, For, If, Load, Map, Store, View, statements
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram, loop_extents
from search_spaces.programs.tiles import Tile
from tile_programs import at, matmul_program, pointwise_program, random_inputs, softmax_program, split_matmul_program

BACKEND, H200 = TritonBackend(), target_named("h200")


def assert_interpreters_agree(triton_interpreter, program: TileProgram, tolerance: float) -> None:
    """Triton's interpreter on the printed source gives what the tile program means."""
    inputs = random_inputs(program)
    got = triton_interpreter.run(BACKEND.render(program, "test", H200), program, inputs)
    np.testing.assert_allclose(got, interpret(program, list(inputs.values()))[0], rtol=tolerance, atol=tolerance)


# A product of float16 values is exact in float32 and sums differ in order only; the result is rounded to float16.
HALF_TOLERANCE = 2 * 2.0**-10
# Sums of up to 300 products of normal values: at most 300 roundings of 2^-24, of partial sums of about sqrt(300).
SINGLE_TOLERANCE = 300 * 2.0**-24 * 17


class TestPrinting:
    def test_matmul_with_masks(self, check_golden):
        check_golden("triton", BACKEND.render(matmul_program(100, 60, 40), "a schedule", H200))

    def test_masks_are_omitted_where_tiles_fit(self):
        assert "mask" not in BACKEND.render(matmul_program(64, 64, 64), "", H200)

    def test_persistent_grouped_matmul_by_descriptor(self, check_golden):
        program = matmul_program(
            96, 64, 64, via="descriptor", halves=True, group=2, persistent=4, flatten=True, layout="nt"
        )
        check_golden("triton", BACKEND.render(program, "a schedule\nof two lines", H200))

    def test_split_matmul_with_atomics(self, check_golden):
        check_golden("triton", BACKEND.render(split_matmul_program(32, 48, 200, 3), "a schedule", H200))

    def test_online_softmax(self, check_golden):
        check_golden("triton", BACKEND.render(softmax_program(10, 100, 4, 32), "a schedule", H200))

    def test_tanh(self, check_golden):
        check_golden("triton", BACKEND.render(pointwise_program(100, "tanh"), "a schedule", H200))

    def test_the_same_program_gives_the_same_text(self):
        program = matmul_program(100, 60, 40, halves=True)
        assert BACKEND.render(program, "c", H200) == TritonBackend().render(replace(program), "c", H200)

    def test_offsets_beyond_32_bits_are_computed_in_64(self):
        where = (at(("s", 1)), at(("i.0", 64), extent=64))
        tile = Tile("t", ("i",), (64,))
        grid = Grid((GridAxis("s", 4), GridAxis("i.0", 2**24)))
        buffers = (Buffer("out", (4, 2**30), "float32", "output"),)
        program = TileProgram("big", buffers, (Kernel("big", grid, (Fill(tile, 0.0), Store("out", where, "t"))),))
        assert "tl.cast(s, tl.int64) * 1073741824 + offs_i.to(tl.int64)" in BACKEND.render(program, "", H200)

    def test_names_that_python_reserves_or_that_clash_are_replaced(self):
        where = (at(("for", 16), extent=16, axis="i"),)
        program = TileProgram(
            "pid",
            (Buffer("tl", (64,), "float32", "input"), Buffer("out", (64,), "float32", "output")),
            (
                Kernel(
                    "2 kernel",
                    Grid((GridAxis("for", 4),)),
                    (Load(Tile("tl", ("i",), (16,)), "tl", where), Store("out", where, "tl")),
                ),
            ),
        )
        text = BACKEND.render(program, "", H200)
        assert "def v_2_kernel(tl_ptr, out_ptr):" in text
        assert "tl_ = tl.load(tl_ptr + offs_i)" in text

    @pytest.mark.parametrize(
        ("program", "words"),
        [
            (matmul_program(100, 60, 42, via="descriptor"), "multiples of 16"),
            (matmul_program(64, 64, 64, "float16", via="descriptor", tile=(32, 32, 4)), "at least 16 bytes"),
        ],
    )
    def test_a_descriptor_that_the_hardware_cannot_have_is_refused(self, program, words):
        with pytest.raises(CompileError, match=words):
            BACKEND.render(program, "", H200)

    def test_a_descriptor_with_an_eviction_hint_is_refused(self):
        program = pointwise_program(64, "exp")
        load, *rest = program.kernels[0].body
        hinted = replace(load, via="descriptor", eviction="evict_first")
        kernel = replace(program.kernels[0], body=(hinted, *rest))
        with pytest.raises(CompileError, match="cannot have eviction='evict_first'; use pointers"):
            BACKEND.render(replace(program, kernels=(kernel,)), "", H200)

    def test_a_part_of_a_tile_is_refused(self):
        program = pointwise_program(64, "exp")
        view = View(Tile("v", ("i",), (32,)), "x", (at(extent=32, axis="i"),))
        kernel = replace(program.kernels[0], body=(*program.kernels[0].body, view))
        with pytest.raises(CompileError, match="cannot slice"):
            BACKEND.render(replace(program, kernels=(kernel,)), "", H200)


class TestGrid:
    @pytest.mark.parametrize("group", [None, 1, 2, 3, 8])
    @pytest.mark.parametrize("shape", [(1,), (7,), (1, 5), (5, 1), (4, 3), (7, 5), (2, 7, 5), (3, 1, 4), (2, 1, 3, 4)])
    def test_printed_order_is_the_grid_order(self, shape, group):
        axes = tuple(GridAxis(f"x{i}", e) for i, e in enumerate(shape))
        grid = Grid(axes, (axes[-2].variable, group) if group and len(axes) > 1 else None)
        kernel = Kernel("k", grid, ())
        root = Scope()
        block = Block(root)
        print_grid(kernel, Indexing(loop_extents(kernel), python_identifiers(), block), root, block)
        for number in range(grid.tiles):
            names = {"tl": _PythonForTriton(number)}
            exec("\n".join(root.text(0)), names)
            assert {a.variable: names.get(a.variable, 0) for a in axes} == grid.position(number)


class _PythonForTriton:
    """The few functions of triton.language that a grid uses, for integers."""

    def __init__(self, number: int) -> None:
        self._number = number

    def program_id(self, axis: int) -> int:
        assert axis == 0
        return self._number

    def minimum(self, a: int, b: int) -> int:
        return min(a, b)


class TestInterpreted:
    @pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
    def test_matmul_in_every_layout(self, triton_interpreter, layout):
        assert_interpreters_agree(triton_interpreter, matmul_program(100, 60, 40, layout=layout), HALF_TOLERANCE)

    @pytest.mark.parametrize("group", [0, 2, 3])
    @pytest.mark.parametrize("persistent", [None, 5])
    def test_matmul_in_every_grid_order(self, triton_interpreter, group, persistent):
        program = matmul_program(150, 60, 40, "float32", halves=True, group=group, persistent=persistent, flatten=True)
        assert_interpreters_agree(triton_interpreter, program, SINGLE_TOLERANCE)

    def test_matmul_by_descriptor(self, triton_interpreter):
        program = matmul_program(104, 56, 40, via="descriptor", layout="tt", halves=True)
        assert_interpreters_agree(triton_interpreter, program, HALF_TOLERANCE)

    def test_split_matmul_with_atomics(self, triton_interpreter):
        assert_interpreters_agree(triton_interpreter, split_matmul_program(20, 40, 200, 3), SINGLE_TOLERANCE)

    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_online_softmax(self, triton_interpreter, dtype):
        assert_interpreters_agree(triton_interpreter, softmax_program(10, 100, 4, 32, dtype), HALF_TOLERANCE)

    @pytest.mark.parametrize(
        "operator", ["neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "cast", "add", "div", "minimum"]
    )
    def test_operators(self, triton_interpreter, operator):
        program = pointwise_program(1000, operator, *([0.75] if operator in ("add", "div", "minimum") else []))
        x = np.abs(random_inputs(program)["x"]) if operator in ("log", "sqrt", "rsqrt") else random_inputs(program)["x"]
        got = triton_interpreter.run(BACKEND.render(program, "", H200), program, {"x": x})
        # The error of erf is absolute: it is fitted for sums with 1.
        smallest = 2 * 2.0**-23 if operator == "erf" else 2.0**-149
        np.testing.assert_allclose(got, interpret(program, [x])[0], rtol=8 * 2.0**-23, atol=smallest)

    def test_erf_is_within_two_units_of_1_and_keeps_nan(self, triton_interpreter):
        x = np.array([0.0, 1e-30, -1e-3, *np.linspace(-5.0, 5.0, 122), np.inf, -np.inf, np.nan], dtype=np.float32)
        program = pointwise_program(len(x), "erf")
        got = triton_interpreter.run(BACKEND.render(program, "", H200), program, {"x": x})
        expected = np.array([math.erf(v) for v in x.astype(np.float64)])
        np.testing.assert_allclose(got, expected, rtol=0.0, atol=2 * 2.0**-23)

    def test_tanh_is_exact_near_zero_and_far_away(self, triton_interpreter):
        x = np.array([0.0, 1e-30, -1e-6, 0.01, 0.299, 0.301, -2.0, 9.0, 50.0, -1e4], np.float32)
        program = pointwise_program(len(x), "tanh")
        got = triton_interpreter.run(BACKEND.render(program, "", H200), program, {"x": x})
        np.testing.assert_allclose(got, np.tanh(x.astype(np.float64)), rtol=4 * 2.0**-23)

    def test_branches_on_a_loop_variable(self, triton_interpreter):
        """A running product that starts at 2 in the first turn and grows by 3 in every other one."""
        t, where = Tile("t", ("i",), (16,)), (at(extent=16, axis="i"),)
        branch = If("s", 0, (Map(t, "add", ("t", 2.0)),), (Map(t, "mul", ("t", 3.0)),))
        body = (Fill(t, 0.0), For("s", 4, (branch,)), Store("out", where, "t"))
        program = TileProgram(
            "branch", (Buffer("out", (16,), "float32", "output"),), (Kernel("branch", Grid(()), body),)
        )
        got = triton_interpreter.run(BACKEND.render(program, "", H200), program, {})
        assert got.tolist() == [54.0] * 16


WORKLOADS = {
    "matmul_gelu": ops.matmul(52, 40, 70, dtype="float16", epilogue="bias_gelu"),
    "matmul_nt_relu": ops.matmul(33, 65, 128, dtype="float32", layout="nt", epilogue="bias_relu"),
    "matmul_split": ops.matmul(20, 24, 600, dtype="float32"),
    "matmul_batched": ops.matmul(24, 40, 56, dtype="float16", batch=3, layout="tn"),
    "matmul_thin": ops.matmul(3, 40, 330, dtype="float16", layout="nt", epilogue="bias_gelu"),
    "matvec": ops.matmul(150, 1, 200, dtype="float32", layout="tn", batch=2),
    "softmax": ops.softmax(7, 133, "float32"),
    "softmax_half": ops.softmax(3, 200, "float16"),
    "layernorm": ops.layernorm(10, 100, "float32"),
    "rmsnorm": ops.rmsnorm(9, 250, "float16"),
    "row_sum": ops.row_sum(4, 4000, "float32"),
    "gelu_scale": ops.gelu_scale(3001, "float32"),
}
# Triton's interpreter takes 2 to 10 ms for a tile of the grid, and about as much for a turn of a loop.
MAX_INTERPRETED_TURNS = 80
# Kernels with more live values spill, and then compile for seconds.
MAX_COMPILED_REGISTERS = 80


def sampled(
    workload: Workload, target: str, each: int, allowed: Callable[[TileProgram], bool] = lambda program: True
) -> list[Schedule]:
    """A few schedules of every sketch whose programs are allowed."""
    rng = np.random.default_rng(0)
    space = build(workload, target_named(target))
    found: dict[str, list[Schedule]] = {s.name: [] for s in space.sketches}
    for _ in range(400):
        schedule = space.sample(rng)
        if len(found[schedule.sketch]) < each and allowed(schedule.program):
            found[schedule.sketch].append(schedule)
    return [s for group in found.values() for s in group]


def quick_to_interpret(program: TileProgram) -> bool:
    """Few turns, and nothing that Triton's interpreter has not: atomic stores by descriptor, warps with roles."""
    if any(k.launch.producer_warps for k in program.kernels):
        return False
    stores = [s for k in program.kernels for s in statements(k.body) if isinstance(s, Store)]
    if any(s.atomic and s.via == "descriptor" for s in stores):
        return False
    turns = (k.grid.tiles * (1 + sum(s.extent for s in k.body if isinstance(s, For))) for k in program.kernels)
    return sum(turns) <= MAX_INTERPRETED_TURNS


def quick_to_compile(program: TileProgram) -> bool:
    needs = (resources(program, k, target_named("b200")) for k in program.kernels)
    return all(r.registers_per_thread < MAX_COMPILED_REGISTERS for r in needs)


class TestSketches:
    @pytest.mark.parametrize("name", WORKLOADS)
    def test_sampled_schedules_compute_the_workload(self, triton_interpreter, name):
        workload = WORKLOADS[name]
        rng = np.random.default_rng(1)
        inputs = [rng.standard_normal(t.shape).astype(t.dtype) for t in workload.inputs]
        expected = evaluate(workload, [torch.from_numpy(x) for x in inputs])[0].numpy()
        for schedule in sampled(workload, "h200", 2, quick_to_interpret):
            source = BACKEND.render(schedule.program, schedule.one_line, H200)
            (got,) = triton_interpreter.computed(source, workload, schedule.program, inputs)
            tolerance = HALF_TOLERANCE if workload.outputs[0].dtype == "float16" else SINGLE_TOLERANCE
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=schedule.one_line)


def instructions(program: TileProgram, folder: Path) -> str:
    """Of an H200, those that a program of one kernel compiles to."""
    artefact = BACKEND.compile(BACKEND.render(program, "", H200), program, H200)
    return "\n".join(machine_code(artefact.binaries[0], folder))


class TestCompiling:
    @pytest.mark.parametrize(
        ("name", "target"),
        [
            ("matmul", "a100"),
            ("matmul", "h200"),
            ("matmul", "b200"),
            ("softmax", "a100"),
            ("layernorm", "h200"),
            ("gelu_scale", "b200"),
        ],
    )
    def test_schedules_compile_without_a_gpu(self, target, name):
        workload = {
            "matmul": ops.matmul(512, 512, 512, dtype="bfloat16", epilogue="bias_gelu"),
            "softmax": ops.softmax(4096, 1000, "float32"),
            "layernorm": ops.layernorm(4096, 768, "float16"),
            "gelu_scale": ops.gelu_scale(2**20, "float32"),
        }[name]
        device = target_named(target)
        for schedule in sampled(workload, target, 1, quick_to_compile):
            source = BACKEND.render(schedule.program, schedule.one_line, device)
            artefact = BACKEND.compile(source, schedule.program, device)
            assert all(b.startswith(b"\x7fELF") for b in artefact.binaries)
            assert 16 <= artefact.facts.registers <= 255
            assert artefact.facts.shared_memory_bytes <= device.shared_memory_bytes

    def test_a_descriptor_kernel_takes_tensor_maps_and_no_scratch_memory(self):
        program = matmul_program(256, 256, 256, via="descriptor", tile=(64, 64, 64))
        artefact = BACKEND.compile(BACKEND.render(program, "", H200), program, H200)
        (kernel,) = kernels_from_json(artefact.launch)
        assert kernel.arguments == ()
        assert [m.buffer for m in kernel.maps] == ["a", "b", "out"]
        assert kernel.maps[0].shape == (256, 256)
        assert kernel.maps[0].strides == (256, 1)
        assert kernel.scratch_bytes == 0

    def test_vector_loads_are_used_for_aligned_buffers(self, tmp_path):
        assert "LDG.E.128 " in instructions(pointwise_program(2**20, "exp", width=1024), tmp_path)

    def test_a_row_fold_that_is_read_twice_compiles(self):
        """Triton's pass OptimizeThreadLocality asserts that the loop's result has a single use."""
        space = build(ops.softmax(64, 4096, "float32"), H200)
        values = {"rows": (4, 16), "columns": (4, 1024), "online": False, "accumulate": "row"}
        values |= {"warps": 16, "stages": 1, "streaming": False}
        program = space.bind(Schedule("reduction", tuple(values.items()))).program
        BACKEND.compile(BACKEND.render(program, "", H200), program, H200)

    def test_a_register_cap_is_kept(self):
        program = matmul_program(256, 256, 256, tile=(128, 128, 32))
        capped = replace(program.kernels[0], launch=Launch(num_warps=4, num_stages=2, max_registers=64))
        program = replace(program, kernels=(capped,))
        facts = BACKEND.compile(BACKEND.render(program, "", target_named("a100")), program, target_named("a100")).facts
        assert facts.registers <= 64
        assert facts.spill_bytes > 0

    @pytest.mark.parametrize("via", ["pointer", "descriptor"])
    def test_a_cluster_shares_the_tile_of_a_program(self, via):
        """Two blocks hold half of the accumulator each, so that a thread needs fewer registers."""
        facts = {}
        for ctas in (1, 2):
            program = matmul_program(512, 512, 256, tile=(128, 128, 64), via=via)
            launch = Launch(num_warps=4, num_stages=3, num_ctas=ctas)
            program = replace(program, kernels=(replace(program.kernels[0], launch=launch),))
            artefact = BACKEND.compile(BACKEND.render(program, "", H200), program, H200)
            facts[ctas] = artefact.facts
            (kernel,) = kernels_from_json(artefact.launch)
            assert (kernel.programs, kernel.num_ctas) == (16, ctas)
        assert facts[2].registers < facts[1].registers
        assert facts[2].shared_memory_bytes < facts[1].shared_memory_bytes

    def test_an_eviction_hint_reaches_the_device(self, tmp_path):
        program = pointwise_program(2**20, "exp", width=1024)
        load, *rest = program.kernels[0].body
        kernel = replace(program.kernels[0], body=(replace(load, eviction="evict_first"), *rest))
        assert "LDG.E.EF.128 " in instructions(replace(program, kernels=(kernel,)), tmp_path)

    def test_what_the_compiler_refuses_is_one_line_and_nothing_is_printed(self, capfd):
        program = pointwise_program(96, "exp", width=48)
        with pytest.raises(CompileError, match=r"power of 2") as caught:
            BACKEND.compile(BACKEND.render(program, "", H200), program, H200)
        assert "\n" not in str(caught.value)
        assert capfd.readouterr() == ("", "")

    def test_a_cpu_target_is_refused(self):
        program = pointwise_program(64, "exp")
        cpu = replace(H200, kind="cpu", name="cpu")
        with pytest.raises(CompileError, match="gpu"):
            BACKEND.compile(BACKEND.render(program, "", cpu), program, cpu)


class TestReasons:
    def test_mlir_diagnostics_follow_the_exception(self):
        printed = "x.py:3:4: error: tile too large\nmodule {\n}\nx.py:5:1: error: second\n"
        assert reason(RuntimeError("PassManager::run failed"), printed) == "PassManager::run failed: tile too large"

    def test_the_pass_that_failed_is_named(self):
        printed = (
            "LLVM ERROR: unsupported load\nmodule {\n}\n"
            "x.py:1:0: error: Failures have been detected while processing an MLIR pass pipeline\n"
            "x.py:1:0: note: Pipeline failed while executing [`WarpSpecialization` on 'builtin.module' operation]\n"
        )
        assert reason(RuntimeError("failed"), printed) == "failed: unsupported load (in WarpSpecialization)"

    def test_a_failed_assertion_of_the_compiler_is_a_reason(self):
        printed = "python: /x/Pass.cpp:341: virtual void run(): Assertion `result.hasOneUse()' failed.\nmodule {\n}\n"
        assert reason(RuntimeError("failed"), printed) == "failed: Assertion `result.hasOneUse()' failed."

    def test_a_quoted_source_is_left_out(self):
        error = ValueError("at 3:8:\n    x = tl.arange(0, 48)\n        ^\narange's range must be a power of 2")
        assert reason(error, "") == "arange's range must be a power of 2"

    def test_a_quoted_source_without_a_reason_has_that_of_its_cause(self):
        error = ValueError("at 3:8:\n    f(x)\n    ^")
        error.__cause__ = ValueError("at 9:8:\n    y = x[:, None]\n        ^\n")
        error.__cause__.__cause__ = ValueError("expected a distributed_type but got: float32")
        assert reason(error, "") == "expected a distributed_type but got: float32"

    def test_ptxas_complaints_are_kept(self):
        error = RuntimeError("`ptxas` failed with error code 255\n`ptxas` stderr:\nptxas error   : too much data\nmore")
        assert reason(error, "") == "`ptxas` failed with error code 255 | ptxas error   : too much data"

    def test_an_exception_without_words_is_named(self):
        assert reason(AssertionError(), "") == "AssertionError"


def test_parameters_of_a_kernel_are_counted_in_its_ptx():
    assert count_parameters(".visible .entry k(\n\t.param .u64 k_param_0,\n\t.param .u64 k_param_1\n)\n{ .param }") == 2


def test_something_else_than_a_cubin_is_refused():
    with pytest.raises(ValueError, match="expected a 64-bit little-endian ELF file"):
        read_cubin(b"MZ\0\0\0\0")


def test_kernels_survive_their_json():
    kernels = (CudaKernel("k", ("a", "out"), 10, 4, 1, 2048, 128, 2),)
    assert kernels_from_json(kernels_to_json(kernels)) == kernels


@pytest.mark.gpu
@needs_gpu
class TestOnGpu:
    @pytest.mark.parametrize("name", WORKLOADS)
    def test_sampled_schedules_compute_the_workload(self, name):
        workload = WORKLOADS[name]
        rng = np.random.default_rng(1)
        inputs = [torch.from_numpy(rng.standard_normal(t.shape).astype(t.dtype)).cuda() for t in workload.inputs]
        (expected,) = evaluate(workload, inputs)
        for schedule in sampled(workload, "h200", 4):
            artefact = BACKEND.compile(
                BACKEND.render(schedule.program, schedule.one_line, H200),
                schedule.program,
                H200,
            )
            launcher = BACKEND.load(artefact, schedule.program)
            out = torch.full_like(expected, torch.nan, dtype=inputs[0].dtype)
            launcher(launched_on(workload, inputs, out))
            tolerance = HALF_TOLERANCE if workload.outputs[0].dtype == "float16" else SINGLE_TOLERANCE
            torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance, msg=schedule.one_line)
            launcher.unload()

    @pytest.mark.parametrize("via", ["pointer", "descriptor"])
    @pytest.mark.parametrize(
        "launch",
        [Launch(num_warps=4, num_stages=3, num_ctas=2), Launch(num_warps=4, num_stages=3, max_registers=64)],
        ids=["cluster", "register cap"],
    )
    def test_launch_attributes_change_nothing_but_speed(self, launch, via):
        program = matmul_program(256, 256, 128, tile=(64, 64, 32), via=via)
        self._compare(replace(program, kernels=(replace(program.kernels[0], launch=launch),)), HALF_TOLERANCE)

    def test_atomic_stores_add_to_a_zeroed_output(self):
        self._compare(split_matmul_program(100, 60, 200, 3), SINGLE_TOLERANCE)

    def test_eviction_hints_change_nothing_but_speed(self):
        self._compare(softmax_program(10, 100, 4, 32), SINGLE_TOLERANCE)

    def test_a_cuda_graph_captures_a_call_and_repeats_it_on_other_inputs(self):
        program = split_matmul_program(100, 60, 200, 3)
        here = devices.gpu_target()
        launcher = BACKEND.load(BACKEND.compile(BACKEND.render(program, "", here), program, here), program)
        first, second = random_inputs(program, seed=1), random_inputs(program, seed=2)
        buffers = [torch.from_numpy(x).cuda() for x in first.values()]
        out = torch.full((100, 60), torch.nan, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launcher([*buffers, out])
        for inputs in (first, second):
            for buffer, x in zip(buffers, inputs.values(), strict=True):
                buffer.copy_(torch.from_numpy(x))
            graph.replay()
            expected = torch.from_numpy(interpret(program, list(inputs.values()))[0])
            torch.testing.assert_close(out.cpu(), expected, rtol=SINGLE_TOLERANCE, atol=SINGLE_TOLERANCE)
        del graph
        launcher.unload()

    def _compare(self, program: TileProgram, tolerance: float) -> None:
        """Two calls, the second on what the first left behind, both give what the program means."""
        here = devices.gpu_target()
        launcher = BACKEND.load(BACKEND.compile(BACKEND.render(program, "", here), program, here), program)
        inputs = random_inputs(program)
        buffers = [torch.from_numpy(x).cuda() for x in inputs.values()]
        output = next(b for b in program.buffers if b.role == "output")
        out = torch.full(output.shape, torch.nan, dtype=getattr(torch, output.dtype), device="cuda")
        expected = torch.from_numpy(interpret(program, list(inputs.values()))[0])
        for _ in range(2):
            launcher([*buffers, out])
            torch.testing.assert_close(out.cpu(), expected.to(out.dtype), rtol=tolerance, atol=tolerance)
        launcher.unload()
