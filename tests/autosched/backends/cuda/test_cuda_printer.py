"""The CUDA printer: what its kernels compute, run on the CPU, and what their text says.

Goldens are under goldens/cuda, by test name; `pytest --update-goldens` with this file rewrites them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from autosched.backends import spaces
from autosched.backends.backend import CompileError
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.trial_data import TrialData
from cuda_on_cpu import EmulatedProgram
from dependent_workloads import place_of_extreme
from random_workloads import random_workload
from row_kinds import first_start, of_kind
from scanned_workloads import recurrence, running, running_place
from search_spaces import Target, Workload, ops, target_named
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.statements import (
    Deinterleave,
    Gather,
    Interleave,
    Load,
    Map,
    Reduce,
    Regroup,
    Split,
    Statement,
    Store,
    View,
)
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine
from structured_workloads import adam, folds_of_folds, quantised, transposed

BACKEND = CudaBackend()
A100, V100 = target_named("a100"), target_named("v100")


def program_of(workload: Workload, kind: str, target: Target = A100) -> TileProgram:
    space = spaces.build(workload, target, [TritonBackend()])
    return first_start(space, kind).program


def program(*body: Statement, warps: int = 4, out: tuple[int, ...] = (16, 64)) -> TileProgram:
    """Statements about x, 16 rows of 64 numbers, which store to `out`."""
    buffers = (Buffer("x", (16, 64), "float32", "input"), Buffer("out", out, "float32", "output"))
    kernel = Kernel("kernel", Grid((GridAxis("m.0", 1),)), tuple(body), Launch(num_warps=warps))
    return TileProgram("program", buffers, (kernel,))


def tile(name: str, m: int = 16, n: int = 64) -> Tile:
    return Tile(name, ("m", "n"), (m, n))


def whole(**extents: int) -> tuple[Slice, ...]:
    return tuple(Slice(Affine(), extent, axis) for axis, extent in extents.items())


def part(begin: int, extent: int | None, axis: str = "") -> Slice:
    return Slice(Affine(offset=begin), extent, axis)


LOAD = Load(tile("x"), "x", whole(m=16, n=64))


def check(made: TileProgram, directory: Path, x: np.ndarray | None = None) -> None:
    """Compare with the interpreter, bit for bit: nothing here rounds."""
    x = np.arange(16 * 64, dtype=np.float32).reshape(16, 64) if x is None else x
    (expected,) = interpret(made, [x])
    out = torch.full(made.buffer("out").shape, -1.0)
    EmulatedProgram(made, A100, directory)([torch.from_numpy(x), out])
    np.testing.assert_array_equal(out.numpy(), expected)


class TestKernelsComputeWhatTheirWorkloadSays:
    @pytest.mark.parametrize(
        ("workload", "kind", "target"),
        [
            (ops.pointwise(5, 77, "bias_silu_residual", dtype="bfloat16"), "pointwise", V100),
            (adam(7, 29), "pointwise", A100),
            (transposed(2, 37, 45), "pointwise", A100),
            (ops.softmax(9, 301, dtype="float16"), "resident", V100),
            (ops.layernorm(5, 1300), "streamed", A100),
            (ops.row_sum(3, 5000), "shared", V100),
            (quantised(3, 300), "resident", A100),
            (folds_of_folds(3, 25, 20), "resident", A100),
            (place_of_extreme(5, 1300), "streamed", A100),
            (running(3, 700, "prod", reverse=True), "streamed", V100),
            (running_place(2, 2100), "resident", A100),
            (recurrence(2, 4096), "shared", A100),
        ],
        ids=lambda given: given if isinstance(given, str) else getattr(given, "name", None),
    )
    def test_workload(self, workload: Workload, kind: str, target: Target, tmp_path: Path) -> None:
        judge(workload, program_of(workload, kind, target), target, tmp_path)


def judge(workload: Workload, found: TileProgram, target: Target, directory: Path) -> None:
    """Run a kernel as a trial does, and check what it gives and what it touched."""
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    run = EmulatedProgram(found, target, directory)
    data.poison()
    run(data.operands)
    data.judge()
    data.judge_surroundings()


@pytest.mark.parametrize("seed", [1, 9, 17, 23])
def test_random_workloads_come_out_right(seed: int, tmp_path: Path) -> None:
    workload = random_workload(seed)
    space = spaces.build(workload, A100, [BACKEND])
    judge(workload, space.sample(np.random.default_rng(seed)).program, A100, tmp_path)


class TestLoadsAhead:
    WORKLOAD = ops.softmax(3, 5000, dtype="float16")

    def program(self, target: Target) -> TileProgram:
        space = spaces.build(self.WORKLOAD, target, [BACKEND])
        (point, *_) = of_kind(
            space, "streamed", stages=[3 if target.features.copy_bytes else 1], columns=[(10, 512)], warps=[2]
        )
        return space.lower(point)

    def test_loops_that_bring_what_comes_next_are_right(self, tmp_path: Path) -> None:
        found = self.program(A100)
        assert "wait_ahead<1>();" in BACKEND.render(found, "", A100)
        judge(self.WORKLOAD, found, A100, tmp_path)

    def test_devices_without_asynchronous_copies_have_several_iterations_on_their_way(self) -> None:
        text = BACKEND.render(self.program(V100), "", V100)
        assert "copy_ahead" not in text
        assert "#pragma unroll 8\n" in text or "#pragma unroll 4\n" in text


class TestTilesAreRearranged:
    def test_a_part_of_a_tile_is_read_by_threads_that_do_not_hold_it(self, tmp_path: Path) -> None:
        view = View(tile("y", 8, 32), "x", (part(8, 8, "m"), part(17, 32, "n")))
        check(program(LOAD, view, Store("out", whole(m=8, n=32), "y"), out=(8, 32)), tmp_path)

    def test_one_row_of_a_tile(self, tmp_path: Path) -> None:
        view = View(Tile("y", ("n",), (64,)), "x", (part(5, None), part(0, 64, "n")))
        check(program(LOAD, view, Store("out", whole(n=64), "y"), out=(64,)), tmp_path)

    @pytest.mark.parametrize("axis", ["m", "n"])
    def test_halves(self, axis: str, tmp_path: Path) -> None:
        shape = (8, 64) if axis == "m" else (16, 32)
        first, second = tile("first", *shape), tile("second", *shape)
        swapped = Map(first, "sub", ("second", "first"))
        body = (LOAD, Split(first, second, "x", axis), swapped, Store("out", whole(m=shape[0], n=shape[1]), "first"))
        check(program(*body, out=shape), tmp_path)

    @pytest.mark.parametrize("axis", ["m", "n"])
    def test_every_other_element_and_back(self, axis: str, tmp_path: Path) -> None:
        shape = (8, 64) if axis == "m" else (16, 32)
        even, odd = tile("even", *shape), tile("odd", *shape)
        apart, together = Deinterleave((even, odd), "x", axis), Interleave(tile("y"), ("odd", "even"), axis)
        check(program(LOAD, apart, together, Store("out", whole(m=16, n=64), "y")), tmp_path)

    def test_an_axis_is_cut_into_several(self, tmp_path: Path) -> None:
        cut = Tile("y", ("m", "a", "b", "n"), (16, 2, 8, 4))
        body = (LOAD, Regroup(cut, "x", "n"), Reduce(Tile("z", ("m", "a", "n"), (16, 2, 4)), "y", "b", "sum"))
        check(program(*body, Store("out", whole(m=16, a=2, n=4), "z"), out=(16, 2, 4)), tmp_path)

    def test_a_tile_is_stored_with_its_axes_turned_round(self, tmp_path: Path) -> None:
        check(program(LOAD, Store("out", whole(n=64, m=16), "x"), out=(64, 16)), tmp_path)


def test_look_ups_outside_give_what_is_asked_for(tmp_path: Path) -> None:
    x = np.tile(np.array([3.0, -1.0, 99.0, np.nan], np.float32), 256).reshape(16, 64)
    gather = Gather(tile("y"), "x", ("x", Slice(Affine(), 64, "n")), fill=7.0)
    check(program(LOAD, gather, Store("out", whole(m=16, n=64), "y")), tmp_path, x)


@pytest.mark.parametrize("operator", ["max", "min"])
def test_the_extreme_of_a_row_with_nan_is_nan(operator: str, tmp_path: Path) -> None:
    x = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    x[3, 40] = np.nan
    fold = Reduce(Tile("y", ("m",), (16,)), "x", "n", operator)
    check(program(LOAD, fold, Store("out", whole(m=16), "y"), out=(16,)), tmp_path, x)


class TestText:
    def test_the_schedule_and_the_program_stand_on_top(self) -> None:
        found = program_of(ops.softmax(8, 64), "resident")
        text = BACKEND.render(found, "rows=8x1", A100)
        tensors = "// in0: (8, 64) float32\n// out0: (8, 64) float32\n//\n"
        assert text.startswith(f"// rows=8x1\n//\n{tensors}// kernel max_sum_8: grid")
        assert text == BACKEND.render(found, "rows=8x1", A100)

    @pytest.mark.parametrize(("columns", "count"), [(64, 4), (66, 2), (67, 1)])
    def test_vectors_are_as_long_as_the_alignment_of_rows_allows(self, columns: int, count: int) -> None:
        made = program(LOAD, Store("out", whole(m=16, n=64), "x"))
        buffers = (Buffer("x", (16, columns), "float32", "input"), made.buffers[1])
        assert f" load<{count}, 1>(" in BACKEND.render(replace(made, buffers=buffers), "", A100)

    def test_threads_meet_once_for_each_fold_across_warps(self) -> None:
        text = BACKEND.render(program_of(ops.softmax(8, 4096), "resident"), "", A100)
        assert text.count("__syncthreads();") == 2

    def test_what_lies_the_other_way_round_in_memory_goes_through_shared_memory(self) -> None:
        made = program(LOAD, Store("out", whole(n=64, m=16), "x"), out=(64, 16))
        text = BACKEND.render(made, "", A100)
        assert "shared + scratch" in text
        assert " store<4, 2>(x_stored_moved_at" in text

    def test_offsets_beyond_32_bits_are_counted_in_64(self) -> None:
        made = program(LOAD, Store("out", whole(m=16, n=64), "x"))
        far = Buffer("x", (16, 64), "float32", "input", (2**30, 1))
        text = BACKEND.render(replace(made, buffers=(far, made.buffers[1])), "", A100)
        assert f"own_m * {2**30}ll" in text

    def test_kernels_of_one_name_are_refused(self) -> None:
        made = program(LOAD, Store("out", whole(m=16, n=64), "x"))
        with pytest.raises(CompileError, match="expected different names"):
            BACKEND.render(replace(made, kernels=made.kernels * 2), "", A100)

    def test_8_bit_floats_are_refused_before_ada(self) -> None:
        workload = replace(ops.gelu_scale(4096), name="narrow")
        found = program_of(workload, "pointwise")
        narrow = replace(found, buffers=tuple(replace(b, dtype="float8_e5m2") for b in found.buffers))
        with pytest.raises(CompileError, match="conversions of float8_e5m2 are instructions that the device lacks"):
            BACKEND.render(narrow, "", A100)


@pytest.mark.parametrize("target", ["v100", "a100", "h200"])
@pytest.mark.parametrize("kind", ["resident", "streamed"])
def test_code_is_made_for_every_architecture_without_spilling(kind: str, target: str) -> None:
    device = target_named(target)
    found = program_of(ops.layernorm(64, 1000, dtype="float16"), kind, device)
    facts = BACKEND.compile(BACKEND.render(found, "", device), found, device).facts
    assert facts.spill_bytes == 0
    assert 0 < (facts.registers or 0) <= 255


@pytest.mark.parametrize("columns", [768, 770])
def test_rows_of_float16_are_computed_by_code_for_volta(columns: int, tmp_path: Path) -> None:
    """Of whole vectors, which are inside or outside together, and others."""
    workload = ops.layernorm(6, columns, dtype="float16")
    judge(workload, program_of(workload, "resident", V100), V100, tmp_path)


@pytest.mark.parametrize("target", ["a100", "h200"])
def test_bfloat16_is_added_to_in_memory(target: str, tmp_path: Path) -> None:
    """Before Hopper by way of the word that it is half of."""
    device = target_named(target)
    made = program(LOAD, Store("out", whole(m=16, n=64), "x", atomic=True))
    made = replace(made, buffers=(made.buffers[0], replace(made.buffers[1], dtype="bfloat16")), zeroed=("out",))
    text = BACKEND.render(made, "", device)
    assert ("atomicCAS" in text) == (device.capability < 90)
    assert BACKEND.compile(text, made, device).facts.spill_bytes == 0
    if device.capability < 90:
        x, out = torch.arange(16.0 * 64).reshape(16, 64) / 4, torch.empty(16, 64, dtype=torch.bfloat16)
        EmulatedProgram(made, device, tmp_path)([x, out])
        assert torch.equal(out, x.bfloat16())


class TestGoldens:
    def test_gelu(self, check_golden: Callable[[str, str], None]) -> None:
        found = program_of(ops.gelu_scale(1_000_000, dtype="bfloat16"), "pointwise")
        check_golden("cuda", BACKEND.render(found, "a schedule", A100))

    def test_softmax(self, check_golden: Callable[[str, str], None]) -> None:
        found = program_of(ops.softmax(1000, 3000), "resident", V100)
        check_golden("cuda", BACKEND.render(found, "a schedule", V100))

    def test_layernorm(self, check_golden: Callable[[str, str], None]) -> None:
        found = program_of(ops.layernorm(1000, 768, dtype="float16"), "resident", V100)
        check_golden("cuda", BACKEND.render(found, "a schedule", V100))

    def test_running_product(self, check_golden: Callable[[str, str], None]) -> None:
        found = program_of(running(64, 2048, "prod"), "resident")
        check_golden("cuda", BACKEND.render(found, "a schedule", A100))


def test_an_infinite_fill_keeps_masked_columns_out_of_a_maximum(tmp_path: Path) -> None:
    x = -np.arange(1, 16 * 64 + 1, dtype=np.float32).reshape(16, 64)
    load = Load(tile("x", 16, 128), "x", whole(m=16, n=128), fill=-math.inf, guarded=True)
    fold = Reduce(Tile("y", ("m",), (16,)), "x", "n", "max")
    check(program(load, fold, Store("out", whole(m=16), "y"), out=(16,)), tmp_path, x)
