"""Elements that are read at any affine index, also outside of a tensor: windows, slices, padding, concatenation.

The programs are lowered by hand, in tiles that do not divide the extents. They run in the interpreter, in Triton's own
and as machine code, and compile for a GPU.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import mmap
import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from autosched.backends.backend import CompileError
from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import empty, random_inputs
from autosched.checking.reference import evaluate
from autosched.machine import devices
from autosched.machine.element_types import torch_dtype
from autosched.standalone import references
from autosched.standalone.references import HELPERS
from best_spaces import build
from schedule_checks import faults
from scheduled_tensors import interpreted
from search_spaces import Axis, InputError, Reduction, Stage, Tensor, Workload, target_named
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.lowering import Emitter, buffers
from search_spaces.programs.statements import Fill, For, Gather, Load, Statement, Store, fold_identity, statements
from search_spaces.programs.text import to_text
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Expression,
    Literal,
    Position,
    call,
    why_not_sliced,
)
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.names import Names

TRITON, LLVM, LAUNCH = TritonBackend(), LlvmBackend(), Launch()
HERE = devices.cpu_target()
H100 = target_named("h100")
ROWS, COLUMNS, WINDOW = 3, 37, 3
R, C, W = Axis("r", ROWS), Axis("c", COLUMNS), Axis("w", WINDOW)
r, c = axis_index("r"), axis_index("c")


def x(row: Affine, column: Affine, fill: float | None = None, tensor: str = "x") -> Access:
    return Access(tensor, (row, column), fill)


def along(axis: str, step: int, offset: int = 0) -> Affine:
    return Affine.of((axis, step), offset=offset)


def elements(expression: Expression, *inputs: Tensor, dtype: str = "float32") -> Workload:
    return Workload("elements", inputs, (Stage("out", (R, C), expression, dtype=dtype),))


def windows(operator: str, expression: Expression, *inputs: Tensor) -> Workload:
    assert operator in ("sum", "max")
    folded = Reduction("sum" if operator == "sum" else "max", (W,))
    return Workload("windows", inputs, (Stage("out", (R, C), expression, folded),))


def tensor(columns: int, dtype: str = "float32", name: str = "x", rows: int = ROWS) -> Tensor:
    return Tensor(name, (rows, columns), dtype)


CONCATENATED = call(
    "where",
    call("lt", Position(c), Literal(20.0)),
    x(r, c, 0.0),
    x(r, along("c", 1, -20), 0.0, "y"),
)
INSIDE = Affine.of(("c", 2), ("w", 1), offset=-1)

WORKLOADS = {
    "padded_by_0": elements(x(r, along("c", 1, -3), 0.0), tensor(30)),
    "padded_by_minus_infinity": elements(x(r, along("c", 1, -3), -math.inf), tensor(30, "float16"), dtype="float16"),
    "padded_by_an_integer": elements(
        call("to_integer", x(r, along("c", 1, -3), 7)), tensor(30, "int64"), dtype="int64"
    ),
    "padded_by_true": elements(x(r, along("c", 1, -3), 1), tensor(30, "bool"), dtype="bool"),
    "padded_in_both_dimensions": elements(x(along("r", 1, -1), along("c", 1, 2), 0.5), tensor(36, rows=1)),
    "reversed": elements(x(r, along("c", -1, COLUMNS - 1)), tensor(COLUMNS)),
    "reversed_and_padded": elements(x(along("r", -1, 3), along("c", -1, 30), 2.0), tensor(28)),
    "every_third": elements(x(r, along("c", 3, 1)), tensor(3 * COLUMNS)),
    "every_third_and_padded": elements(x(r, along("c", 3, -5), -1.0), tensor(80)),
    "every_second_backwards": elements(x(r, along("c", -2, 70), math.inf), tensor(68)),
    "by_the_transpose": elements(x(along("c", 1, -1), along("r", 2), 3.0), tensor(5, rows=20)),
    "one_row_for_all": elements(x(Affine(offset=2), along("c", 1, -1), 0.0), tensor(COLUMNS)),
    "no_row_at_all": elements(x(Affine(offset=5), c, 4.0), tensor(COLUMNS)),
    "nothing_is_inside": elements(x(r, along("c", 1, 100), 2.0), tensor(20)),
    "of_one_element": elements(x(along("r", 1, -1), along("c", 1, -36), 5.0), tensor(1, rows=1)),
    "concatenated": elements(CONCATENATED, tensor(20), tensor(17, name="y")),
    "diagonal": elements(x(c, c), tensor(COLUMNS, rows=COLUMNS)),
    "diagonal_and_padded": elements(x(along("c", 1, -2), c, 0.25), tensor(COLUMNS, rows=30)),
    "diagonal_of_rows_and_columns": elements(x(r, Affine.of(("r", 1), ("c", 1), offset=-2), 0.0), tensor(COLUMNS)),
    "largest_of_windows": windows("max", x(r, INSIDE, -math.inf), tensor(70)),
    "sums_of_windows": windows("sum", x(r, INSIDE, 0.0), tensor(70, "float16")),
}
each_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)


def lowered(workload: Workload, rows: int | None, columns: int, launch: Launch = LAUNCH) -> TileProgram:
    """The workload in tiles of so many rows (None: a program has one) and columns; windows are walked in a loop."""
    (stage,) = workload.stages
    grid = GridAxis("r.0", -(-ROWS // (rows or 1))), GridAxis("c.0", -(-COLUMNS // columns))
    place = {
        "r": Slice(Affine.of(("r.0", rows or 1)), rows, "r" if rows else ""),
        "c": Slice(Affine.of(("c.0", columns)), columns, "c"),
        "w": Slice(Affine.of(("w", 1))),
    }
    emitter = Emitter(place, {t.name: t.dtype for t in workload.inputs}, Names())
    made = emitter.tile(stage.expression, "made")
    body: list[Statement] = emitter.body
    if stage.reduction:
        axes = {a: e for a in ("r", "c") if (e := place[a].extent) is not None}
        total = Tile("total", tuple(axes), tuple(axes.values()))
        emitter.assign(total, "add" if stage.reduction.operator == "sum" else "maximum", total, made)
        body = [Fill(total, fold_identity(stage.reduction.operator, False)), For("w", WINDOW, tuple(emitter.body))]
        made = total
    emitter.body = body
    emitter.store(stage.name, ("r", "c"), made)
    kernel = Kernel(workload.name, Grid(grid), tuple(emitter.body), launch)
    return TileProgram(workload.name, buffers(workload), (kernel,))


TILINGS = ((2, 16), (None, 16), (4, 64))


def drawn(workload: Workload) -> list[torch.Tensor]:
    return random_inputs(workload, 3)


def output_of(workload: Workload, values: np.ndarray) -> torch.Tensor:
    (out,) = workload.outputs
    return torch.from_numpy(np.ascontiguousarray(values)).to(torch_dtype(out.dtype))


@each_workload
def test_the_interpreter_reads_what_the_reference_reads(workload: Workload) -> None:
    inputs = drawn(workload)
    for rows, columns in TILINGS:
        (got,) = interpret(lowered(workload, rows, columns), [v.numpy() for v in inputs])
        assert why_wrong(output_of(workload, got), *expect(workload, inputs)) is None


@each_workload
def test_triton_reads_what_the_reference_reads(triton_interpreter, workload: Workload) -> None:
    inputs = drawn(workload)
    named = {t.name: v.numpy() for t, v in zip(workload.inputs, inputs, strict=True)}
    for rows, columns in TILINGS:
        program = lowered(workload, rows, columns)
        got = triton_interpreter.run(TRITON.render(program, "", H100), program, named)
        assert why_wrong(output_of(workload, got), *expect(workload, inputs)) is None


@each_workload
def test_triton_compiles_it_without_a_gpu(workload: Workload) -> None:
    program = lowered(workload, 2, 64)
    assert TRITON.compile(TRITON.render(program, "", H100), program, H100).binaries


def run_here(program: TileProgram, buffers: list[torch.Tensor]) -> None:
    launcher = LLVM.load(LLVM.compile(LLVM.render(program, "", HERE), program, HERE), program)
    launcher(buffers)
    launcher.unload()


def for_here(workload: Workload) -> list[TileProgram]:
    return [lowered(workload, *tiles, Launch(lanes=HERE.lanes, vectors=2)) for tiles in TILINGS]


@each_workload
def test_machine_code_reads_what_the_reference_reads(workload: Workload) -> None:
    inputs = drawn(workload)
    for program in for_here(workload):
        (out,) = (empty(t, "cpu") for t in workload.outputs)
        run_here(program, [*inputs, out])
        assert why_wrong(out, expect(workload, inputs)[0]) is None


def between_forbidden_pages(given: torch.Tensor, at_end: bool) -> torch.Tensor:
    """A copy that begins, or ends, where memory begins, or ends, that may be read."""
    size = given.numel() * given.element_size()
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + 2 * mmap.PAGESIZE)
    copy = torch.frombuffer(memory, dtype=torch.uint8)
    first = mmap.PAGESIZE + (pages - size if at_end else 0)
    inside = copy[first : first + size].view(given.dtype).view(given.shape)
    inside.copy_(given)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for page in (0, mmap.PAGESIZE + pages):
        assert protect(ctypes.c_void_p(copy.data_ptr() + page), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    return inside


@pytest.mark.parametrize("at_end", [False, True], ids=["from the beginning", "to the end"])
def test_machine_code_reads_no_memory_that_is_not_the_tensors(at_end: bool) -> None:
    child = os.fork()
    if child == 0:
        # What is read outside ends this process, not that of the tests.
        try:
            for workload in WORKLOADS.values():
                inputs = [between_forbidden_pages(v, at_end) for v in drawn(workload)]
                for program in for_here(workload):
                    run_here(program, [*inputs, *(empty(t, "cpu") for t in workload.outputs)])
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@each_workload
def test_schedules_for_this_machine_are_right(workload: Workload) -> None:
    assert not faults(workload, samples=2)


@pytest.mark.parametrize("name", ["concatenated", "padded_by_an_integer", "diagonal", "reversed", "largest_of_windows"])
def test_a_schedule_for_a_gpu_compiles(name: str) -> None:
    program = build(WORKLOADS[name], H100).sample(np.random.default_rng(1)).program
    assert TRITON.compile(TRITON.render(program, "", H100), program, H100).binaries


def padded(x: torch.Tensor, before: int, after: int, value: float) -> torch.Tensor:
    return torch.nn.functional.pad(x, (before, after), value=value)


PYTORCH: dict[str, Callable[..., torch.Tensor]] = {
    "padded_by_0": lambda x: padded(x, 3, 4, 0.0),
    "padded_by_an_integer": lambda x: padded(x, 3, 4, 7),
    "reversed": lambda x: x.flip(1),
    "every_third": lambda x: x[:, 1::3],
    "concatenated": lambda x, y: torch.cat([x, y], 1),
    "nothing_is_inside": lambda x: torch.full((ROWS, COLUMNS), 2.0),
    "no_row_at_all": lambda x: torch.full((ROWS, COLUMNS), 4.0),
    "diagonal": lambda x: x.diagonal().expand(ROWS, COLUMNS),
    "largest_of_windows": lambda x: torch.nn.functional.max_pool1d(padded(x, 1, 4, -math.inf), 3, 2)[:, :COLUMNS],
}


@pytest.mark.parametrize("name", PYTORCH)
def test_the_reference_reads_what_pytorch_would(name: str) -> None:
    inputs = drawn(WORKLOADS[name])
    expected = PYTORCH[name](*inputs).double()
    torch.testing.assert_close(evaluate(WORKLOADS[name], inputs)[0].double(), expected, rtol=0.0, atol=0.0)


class TestDescriptors:
    """They fill with 0 what is outside on either side, and skip nothing."""

    def test_what_is_outside_is_0_by_descriptor_too(self, triton_interpreter) -> None:
        workload = elements(CONCATENATED, tensor(20), tensor(16, name="y"))
        program = by_descriptor(lowered(workload, 2, 16))
        inputs = drawn(workload)
        named = {t.name: v.numpy() for t, v in zip(workload.inputs, inputs, strict=True)}
        got = triton_interpreter.run(TRITON.render(program, "", H100), program, named)
        assert why_wrong(output_of(workload, got), *expect(workload, inputs)) is None

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("padded_by_minus_infinity", "pads with 0, expected -inf; use pointers"),
            ("every_third", "step 3 skips elements; use pointers"),
            ("reversed", "step -1 skips elements; use pointers"),
        ],
    )
    def test_what_they_cannot_is_refused(self, name: str, words: str) -> None:
        with pytest.raises(CompileError, match=words):
            TRITON.render(by_descriptor(lowered(wide(WORKLOADS[name]), 2, 16)), "", H100)

    def test_a_dimension_that_they_leave_out_has_no_end(self) -> None:
        shared = Tensor("x", (ROWS, 32), "float32", (0, 1))
        program = by_descriptor(lowered(elements(x(along("r", 1, -1), c, 0.0), shared), 2, 16))
        with pytest.raises(CompileError, match="no end along a dimension of stride 0; use pointers"):
            TRITON.render(program, "", H100)


def wide(workload: Workload) -> Workload:
    """With rows as long in memory as descriptors need them."""
    return dataclasses.replace(
        workload, inputs=tuple(dataclasses.replace(t, strides=(128, 1)) for t in workload.inputs)
    )


def by_descriptor(program: TileProgram) -> TileProgram:
    (kernel,) = program.kernels
    body = tuple(dataclasses.replace(s, via="descriptor") if isinstance(s, Load) else s for s in kernel.body)
    return dataclasses.replace(program, kernels=(dataclasses.replace(kernel, body=body),))


class TestAddresses:
    def test_no_mask_is_printed_where_nothing_is_outside(self) -> None:
        inside = elements(x(r, along("c", -1, 63), 0.0), tensor(64, rows=4))
        text = TRITON.render(lowered(inside, 4, 16), "", H100)
        assert "tl.load(x_ptr + offs_r[:, None] * 64 + offs_c[None, :])" in text

    def test_a_mask_has_just_the_sides_that_can_be_outside(self) -> None:
        text = TRITON.render(lowered(elements(x(r, along("c", 1, -3), 0.0), tensor(64, rows=4)), 4, 16), "", H100)
        assert "mask_c = offs_c >= 0" in text
        text = TRITON.render(lowered(elements(x(r, along("c", 1, 3), 0.0), tensor(40, rows=4)), 4, 16), "", H100)
        assert "mask_c = offs_c < 40" in text

    def test_offsets_far_below_0_are_in_64_bits_as_those_far_above_are(self) -> None:
        far = Tensor("x", (2**16, 8), "float32", (2**14, 1))
        for row in (along("r", 2**17), along("r", -(2**17), 5)):
            text = TRITON.render(lowered(elements(x(row, c, 0.0), far), 4, 16), "", H100)
            assert "offs_r.to(tl.int64)[:, None] * 16384" in text

    def test_positions_beyond_32_bits_are_computed_in_64_and_masked_off(self) -> None:
        long = Tensor("x", (1, 2**31 - 1), "float32")
        third = Stage("out", (Axis("r", 1), Axis("c", (2**31 - 1) // 3)), x(r, along("c", 3)))
        program = build(Workload("thirds", (long,), (third,)), H100).sample(np.random.default_rng(0)).program
        assert "offs_i0.to(tl.int64) * 3, mask=mask_i0" in TRITON.render(program, "", H100)

    def test_what_is_clamped_is_so_on_both_sides(self) -> None:
        piece = Slice(Affine(offset=-2), 8, "i", clamped=True)
        load = Load(Tile("t", ("i",), (8,)), "x", (piece,))
        store = Store("out", (Slice(Affine(), 8, "i"),), "t")
        ends = Buffer("x", (4,), "float32", "input"), Buffer("out", (8,), "float32", "output")
        program = TileProgram("ends", ends, (Kernel("ends", Grid((GridAxis("p", 1),)), (load, store)),))
        (got,) = interpret(program, [np.arange(4, dtype=np.float32)])
        assert got.tolist() == [0, 0, 0, 1, 2, 3, 3, 3]
        assert "tl.minimum(tl.maximum(offs_i, 0), 3)" in TRITON.render(program, "", H100)


class TestSlices:
    def test_an_index_of_several_axes_moves_along_the_one_that_has_an_extent(self) -> None:
        text = to_text(lowered(WORKLOADS["largest_of_windows"], 2, 16))
        assert "load x[r.0*2 : +2, c.0*32 + w + -1 : +16 step 2] else -inf" in text

    def test_two_axes_of_a_tile_in_one_dimension_are_gathered(self) -> None:
        workload = WORKLOADS["diagonal_of_rows_and_columns"]
        (access,) = accesses(workload.stages[0].expression)
        assert why_not_sliced(access, ["c"]) is None
        why = why_not_sliced(access, ["r", "c"])
        assert why == "x is indexed by c + r + -2, which moves along c and r of one tile"
        assert any(isinstance(s, Gather) for s in statements(lowered(workload, 2, 16).kernels[0].body))

    def test_a_diagonal_is_gathered(self) -> None:
        workload = WORKLOADS["diagonal"]
        (access,) = accesses(workload.stages[0].expression)
        assert why_not_sliced(access, ["r", "c"]) == "x is read along a diagonal, by c in two dimensions"
        assert any(isinstance(s, Gather) for s in statements(lowered(workload, 2, 16).kernels[0].body))


class TestFills:
    @pytest.mark.parametrize(
        ("fill", "dtype"), [(0.1, "float16"), (math.nan, "float32"), (0.5, "int64"), (300, "uint8"), (2, "bool")]
    )
    def test_a_fill_is_a_value_that_the_tensor_can_have(self, fill: float, dtype: str) -> None:
        with pytest.raises(InputError, match="expected"):
            elements(x(r, c, fill), tensor(COLUMNS, dtype))

    def test_a_fill_of_another_kind_is_printed_as_the_tensor_has_it(self) -> None:
        assert "other=7" in TRITON.render(lowered(WORKLOADS["padded_by_an_integer"], 2, 16), "", H100)
        assert 'other=-float("inf")' in TRITON.render(lowered(WORKLOADS["padded_by_minus_infinity"], 2, 16), "", H100)


@pytest.mark.parametrize("name", ["padded_by_an_integer", "concatenated", "every_third_and_padded", "reversed"])
def test_a_file_of_its_own_reads_what_the_reference_reads(name: str) -> None:
    workload = WORKLOADS[name]
    space: dict[str, Any] = {"torch": torch, "math": math}
    for text in (*HELPERS.values(), references.reference("computed", workload)):
        exec(text, space)
    inputs = [v.double() for v in drawn(workload)]
    (expected,) = evaluate(workload, drawn(workload))
    torch.testing.assert_close(space["computed"](*inputs).double(), expected.double(), rtol=0.0, atol=0.0)


class TestKeys:
    def test_a_guard_that_always_holds_is_none(self) -> None:
        inside, plain = (elements(x(r, along("c", -1, 36), fill), tensor(COLUMNS)) for fill in (0.0, None))
        assert inside.key == plain.key

    def test_other_fills_and_other_ends_are_other_workloads(self) -> None:
        keys = {
            elements(x(r, along("c", 1, -3), fill), tensor(columns)).key
            for fill, columns in ((0.0, 30), (1.0, 30), (-math.inf, 30), (0.0, 31))
        }
        assert len(keys) == 4

    def test_what_is_always_outside_is_the_same_wherever_that_is_in_memory(self) -> None:
        first = elements(x(c, Affine(offset=1), 0.5), Tensor("x", (20, 1), "float32", (1, 20)))
        second = elements(x(c, Affine(offset=1), 0.5), Tensor("x", (20, 1), "float32", (1, 1)))
        assert first.key == second.key


def test_a_product_of_parts_of_its_operands_sums_no_more_than_these() -> None:
    m, n, k = (Axis(name, extent) for name, extent in (("m", 40), ("n", 40), ("k", 50)))
    a = Access("a", (axis_index("m"), axis_index("k")))
    b = Access("b", (axis_index("k"), axis_index("n")))
    part = Stage("out", (m, n), call("mul", a, b), Reduction("sum", (k,)))
    inputs = Tensor("a", (40, 100), "float32"), Tensor("b", (100, 40), "float32")
    workload = Workload("part", inputs, (part,))
    assert not faults(workload, samples=2)
    program = build(workload, H100).sample(np.random.default_rng(0)).program
    (got,) = interpreted(workload, program, drawn(workload))
    assert why_wrong(torch.from_numpy(got), *expect(workload, drawn(workload))) is None
