"""Leading dimensions and batch strides: from the shell to the kernel, on every device; and sizes that divide nothing.

On a machine with a GPU, `pytest -m gpu` with this file tunes, replays and checks every layout.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import autosched
import best_spaces
import search_spaces
from autosched.backends.gpu.arguments import descriptor
from autosched.backends.llvm.backend import LlvmBackend
from autosched.baselines import baselines
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import empty, random_inputs
from autosched.machine import devices
from autosched.machine.element_types import torch_dtype
from needed import needs_gpu
from schedule_checks import faults
from scheduled_tensors import interpreted, launched_on
from search_spaces import Axis, InputError, Reduction, Stage, Target, Tensor, Workload, ops
from search_spaces.devices.descriptors import descriptor_remarks, why_not_describable, why_not_storable
from search_spaces.devices.target import GPUS
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Slice
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access
from tile_programs import largest_tile

HERE = devices.cpu_target()
H200 = GPUS["h200"]
LAYOUTS = ("nn", "nt", "tn", "tt")

STRIDED = (
    *(ops.matmul(37, 50, 65, layout=layout, lda=80, ldb=72, ldc=64) for layout in LAYOUTS),
    *(ops.matmul(20, 24, 300, layout=layout, batch=3, lda=301, stride_b=0, epilogue="bias_relu") for layout in LAYOUTS),
    ops.matmul(9, 10, 11, batch=4, stride_a=200, stride_b=133, ldc=40, stride_c=10),
    ops.matmul(5, 70, 300, layout="nt", dtype="bfloat16", lda=304, ldb=304, ldc=72),
)


def label(workload: Workload) -> str:
    return workload.label.replace(" ", "-")


def pointwise(shape: tuple[int, int], *strides: tuple[int, ...] | None) -> Workload:
    """max(x, 0) of a matrix, with the strides of x and of the output."""
    axes = tuple(Axis(name, extent) for name, extent in zip("rc", shape, strict=True))
    body = ex.call("maximum", Access("x", tuple(axis_index(a.name) for a in axes)), ex.Literal(0.0))
    x = Tensor("x", shape, "float32", strides[0])
    return Workload("strided_relu", (x,), (Stage("out", axes, body),), output_strides=(strides[1],))


# What a layout is


def test_leading_dimensions_and_batch_strides_are_those_of_blas() -> None:
    strided = ops.matmul(4, 5, 6, layout="tn", batch=2, lda=8, ldb=7, ldc=9, stride_b=0, stride_c=100)
    assert [t.strides for t in strided.inputs] == [(48, 8, 1), (0, 7, 1)]
    assert strided.outputs[0].strides == (100, 9, 1)
    assert [t.span for t in (*strided.inputs, *strided.outputs)] == [92, 40, 132]


def test_strides_that_a_dense_tensor_has_too_are_none() -> None:
    dense = ops.matmul(4, 5, 6, batch=2)
    assert ops.matmul(4, 5, 6, batch=2, lda=6, ldb=5, ldc=5, stride_a=24, stride_b=30, stride_c=20).key == dense.key
    assert Tensor("x", (1, 6), "float32", (99, 1)) == Tensor("x", (1, 6), "float32")
    assert dense.inputs[0].effective_strides == (24, 6, 1)


def test_bytes_are_those_of_the_elements_and_a_shared_operand_counts_once() -> None:
    padded = Tensor("x", (10, 20), "bfloat16", (64, 1))
    shared = Tensor("x", (8, 10, 20), "bfloat16", (0, 20, 1))
    assert (padded.bytes, padded.elements, padded.span) == (400, 200, 596)
    assert (shared.bytes, shared.elements, shared.span) == (400, 1600, 200)


def test_dense_workloads_keep_their_json() -> None:
    """That of the version before there were strides: logs hold it."""
    data = ops.matmul(8, 8, 8).to_json()
    assert set(data) == {"name", "arguments", "precision", "inputs", "stages"}
    assert [len(t) for t in data["inputs"]] == [3, 3]
    assert dict(data["arguments"]).keys() == {"m", "n", "k", "dtype", "layout", "batch", "epilogue", "scale"}


@pytest.mark.parametrize("workload", STRIDED, ids=label)
def test_strides_survive_their_json_and_make_other_keys(workload: Workload) -> None:
    assert Workload.from_json(workload.to_json()) == workload
    dense = {k: v for k, v in workload.arguments if not (k.startswith("ld") or k.startswith("stride"))}
    assert ops.matmul(**dense).key != workload.key  # type: ignore[arg-type]  # of many types


def test_arguments_of_a_shell_say_strides_too() -> None:
    given = {"m": "4", "n": "5", "k": "6", "batch": "2", "lda": "8", "stride_b": "0"}
    assert ops.construct("matmul", given) == ops.matmul(4, 5, 6, batch=2, lda=8, stride_b=0)
    assert "stride_b=0" in ops.construct("matmul", given).label


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lda": 5}, "lda=5; expected at least 6"),
        ({"layout": "tn", "lda": 3}, "lda=3; expected at least 4"),
        ({"ldb": True}, "ldb=True; expected at least 5"),
        ({"stride_a": 24}, "stride_a=24 without batch"),
        ({"batch": 2, "stride_c": 0}, "out: stride 0 of a dimension of size 2 is not allowed; expected at least"),
        ({"batch": 2, "stride_a": 23}, "a: stride 23 of a dimension of size 2 is not allowed; expected at least 24"),
        ({"batch": 2, "stride_a": -1}, "a: stride -1 is not allowed; expected a non-negative integer"),
    ],
)
def test_strides_that_place_elements_upon_each_other_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ops.matmul(4, 5, 6, **arguments)  # type: ignore[arg-type]  # of many types


def test_a_tensor_has_a_stride_for_every_dimension() -> None:
    with pytest.raises(InputError, match="x: 1 strides for 2 dimensions"):
        Tensor("x", (4, 5), "float32", (5,))


def test_axes_merge_only_where_rows_follow_each_other() -> None:
    dense = pointwise((4, 8), None, None).scheduled
    assert dense.outputs[0].shape == (32,)
    for strides in [((10, 1), None), (None, (10, 1)), ((10, 1), (10, 1)), ((0, 1), None), ((1, 4), None)]:
        kept = pointwise((4, 8), *strides).scheduled
        assert sorted(kept.outputs[0].shape) == [4, 8]


# What a kernel does with it


def run_here(
    workload: Workload, schedule: search_spaces.Schedule, inputs: list[torch.Tensor], out: torch.Tensor
) -> None:
    backend, program = LlvmBackend(), schedule.program
    launcher = backend.load(backend.compile(backend.render(program, "", HERE), program, HERE), program)
    launcher(launched_on(workload, inputs, out))
    launcher.unload()


@pytest.mark.parametrize(
    "workload",
    [
        *STRIDED,
        pointwise((13, 101), (128, 1), (103, 1)),
        pointwise((13, 64), (0, 1), None),
        ops.matmul(1, 64, 40, lda=64),
    ],
    ids=label,
)
def test_kernels_of_a_cpu_read_and_write_strided_tensors(workload: Workload) -> None:
    inputs, rng = random_inputs(workload, 2), np.random.default_rng(5)
    expectation, space = expect(workload, inputs)[0], best_spaces.build(workload, HERE)
    for schedule in dict.fromkeys(space.sample(rng) for _ in range(5)):
        out = empty(workload.outputs[0], "cpu")
        memory = out.as_strided((workload.outputs[0].span,), (1,))
        memory.fill_(torch.nan)
        run_here(workload, schedule, inputs, out)
        assert error_ratio(out, expectation) <= 1.0, str(schedule)
        # Nothing was written between the rows.
        assert int(memory.isfinite().sum()) == out.numel()


@pytest.mark.parametrize("target", [H200, GPUS["a100"]], ids=lambda t: t.name)
@pytest.mark.parametrize("workload", STRIDED, ids=label)
def test_lowered_programs_compute_strided_tensors(workload: Workload, target: Target) -> None:
    inputs, rng = random_inputs(workload, 2), np.random.default_rng(5)
    expectation, space = expect(workload, inputs)[0], best_spaces.build(workload, target)
    for schedule in dict.fromkeys(space.sample(rng) for _ in range(6)):
        program = schedule.program
        # A batch that is inside of rows in memory is outermost in loops.
        tensors = (*workload.scheduled.inputs, *workload.scheduled.outputs)
        strides = {t.name: {*t.effective_strides} for t in tensors}
        assert {b.name: {*b.strides} for b in program.buffers if b.role != "workspace"} == strides
        got = torch.from_numpy(interpreted(workload, program, [x.float() for x in inputs])[0])
        made = got.to(torch_dtype(workload.outputs[0].dtype))
        assert error_ratio(made, expectation) <= 1.0, str(schedule)


def test_rows_that_are_one_in_memory_are_one_row() -> None:
    dense = ops.matmul(64, 64, 64, dtype="float16", batch=2)
    for strides in ((64, 0, 1), (0, 64, 1)):
        a = dataclasses.replace(dense.inputs[0], strides=strides)
        space = best_spaces.build(dataclasses.replace(dense, inputs=(a, dense.inputs[1])), H200)
        knobs = {k.name: k.values for k in space.sketch("contraction").knobs}
        assert knobs["a_load"] == ("pointer", "descriptor")


def test_contractions_on_a_cpu_take_columns_that_are_apart() -> None:
    dense = ops.matmul(8, 17, 32)
    a, b = (dataclasses.replace(t, strides=(2 * t.shape[1] + 3, 2)) for t in dense.inputs)
    apart = dataclasses.replace(dense, inputs=(a, b), output_strides=((3, 26),))
    assert not faults(apart, samples=6)


@pytest.mark.parametrize("workload", STRIDED, ids=label)
def test_the_library_takes_strided_operands(workload: Workload) -> None:
    inputs = random_inputs(workload, 1)
    assert [x.stride() for x in inputs] == [t.effective_strides for t in workload.inputs]
    known = baselines.baseline(workload)
    assert known is not None
    assert known.library is not None
    out = empty(workload.outputs[0], "cpu")
    address, strides = out.data_ptr(), out.stride()
    known.library(inputs, out)
    assert (out.data_ptr(), out.stride()) == (address, strides)
    assert error_ratio(out, *expect(workload, inputs)) <= 1.0
    assert error_ratio(known.eager(*inputs), *expect(workload, inputs)) <= 1.0


# Descriptors


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (Tensor("b", (4096, 4096), "bfloat16"), None),
        (
            Tensor("b", (4096, 4093), "bfloat16"),
            "rows of 4093 bfloat16 are 8186 bytes apart; descriptors need multiples",
        ),
        (Tensor("b", (4096, 4093), "bfloat16", (4096, 1)), None),
        (Tensor("b", (8, 64, 64), "float8_e4m3fn", (0, 64, 1)), None),
        (Tensor("b", (8, 64, 64), "float8_e4m3fn", (4100, 64, 1)), "matrices of float8_e4m3fn are 4100 bytes apart"),
        (Tensor("b", (1, 4093), "bfloat16"), None),
        (Tensor("b", (1, 64, 64), "float8_e4m3fn", (4100, 64, 1)), None),
        (Tensor("b", (64, 64), "float32", (1, 64)), "elements of its last dimension are 64 apart"),
        (Tensor("b", (), "int64"), "it has no dimensions"),
        (Tensor("b", (2, 2, 2, 2, 2, 64), "float16"), "it has 6 dimensions; descriptors have at most 5"),
    ],
)
def test_descriptors_need_aligned_strides(tensor: Tensor, reason: str | None) -> None:
    found = why_not_describable(tensor)
    assert (found is None) == (reason is None)
    assert reason is None or str(found).startswith(reason)


@pytest.mark.parametrize(("columns", "possible"), [(31, False), (33, False), (24, True)])
def test_a_descriptor_writes_no_row_that_ends_within_a_piece_of_it(columns: int, possible: bool) -> None:
    # The only row of a matrix has no stride that would say so, nor have padded rows.
    assert (why_not_storable(Tensor("out", (1, columns), "float16")) is None) == possible
    assert (why_not_storable(Tensor("out", (64, columns), "float16", (64, 1))) is None) == possible
    space = best_spaces.build(ops.matmul(1, columns, 512, dtype="float16"), H200)
    stores = [k.values for s in space.sketches if s.name == "contraction" for k in s.knobs if k.name == "store"]
    assert [("descriptor" in values) for values in stores] == [possible]


def test_a_batch_that_is_innermost_in_memory_has_schedules_that_compute_it() -> None:
    # The last dimension of an operand is then the batch, of which a tile has one index.
    axes = tuple(Axis(name, extent) for name, extent in (("z", 5), ("m", 13), ("n", 13)))
    a, b = (Access(name, tuple(map(axis_index, index))) for name, index in (("a", "kmz"), ("b", "zkn")))
    stage = Stage("out", axes, ex.mul(a, b), Reduction("sum", (Axis("k", 65),)), "float16")
    inputs = (Tensor("a", (65, 13, 5), "float16"), Tensor("b", (5, 65, 13), "float16"))
    space = best_spaces.build(Workload("batch_innermost", inputs, (stage,)), H200)
    assert space.seeds()
    rng = np.random.default_rng(0)
    drawn = random_inputs(space.workload, seed=1)
    for schedule in (space.sample(rng) for _ in range(4)):
        got = torch.from_numpy(interpreted(space.workload, schedule.program, [x.float() for x in drawn])[0])
        assert error_ratio(got, *expect(space.workload, drawn)) <= 1, str(schedule)


def test_a_space_says_why_a_tensor_has_no_descriptor() -> None:
    workload = ops.matmul(4096, 4093, 512, dtype="bfloat16")
    because = "rows of 4093 bfloat16 are 8186 bytes apart; descriptors need multiples of 16"
    assert descriptor_remarks(workload, ("a", "b"), H200) == (
        f"b: {because}, so b is read by pointers, or copied first",
        f"out: {because}, so out is written by pointers",
    )
    assert descriptor_remarks(workload, ("a", "b"), GPUS["a100"]) == ()


def test_a_space_says_why_what_an_epilogue_reads_has_no_descriptor() -> None:
    workload = ops.matmul(4096, 4093, 512, dtype="bfloat16", epilogue="bias_residual")
    assert [r.partition(":")[0] for r in descriptor_remarks(workload, ("a", "b"), H200)] == ["b", "residual", "out"]
    assert descriptor_remarks(workload, ("a", "b"), H200)[1].endswith("so residual is read by pointers")


def test_a_single_row_of_any_length_is_described_with_a_stride_that_is_allowed() -> None:
    row = Buffer("out", (1, 4093), "bfloat16", "output")
    assert row.strides == (4093, 1)
    assert descriptor(row, (Slice(Affine(), 16, "m"), Slice(Affine(), 64, "k"))).strides == (4096, 1)


@pytest.mark.parametrize(
    "workload",
    [
        ops.matmul(64, 64, 64, dtype="bfloat16", batch=4, stride_b=0),
        ops.matmul(64, 64, 64, dtype="bfloat16", lda=72, ldc=80, layout="nt"),
        ops.matmul(1000, 1000, 1000, dtype="bfloat16"),
        ops.matmul(1021, 2039, 4093, dtype="float16"),
        ops.matmul(35, 8457, 2560, dtype="bfloat16", layout="nt"),
    ],
    ids=label,
)
def test_every_layout_and_size_compiles(workload: Workload) -> None:
    pytest.importorskip("triton")
    from autosched.backends.triton.backend import TritonBackend

    backend, space = TritonBackend(), best_spaces.build(workload, H200)
    sketch = space.sketch("contraction")
    # The compiler takes as much longer as a tile is larger.
    programs = sorted((sketch.lower(s) for s in sketch.seeds if sketch.why_illegal(s) is None), key=largest_tile)
    for program in programs[:2]:
        source = backend.render(program, "", H200)
        assert all(b.startswith(b"\x7fELF") for b in backend.compile(source, program, H200).binaries)


# End to end


def check_tuned(workload: Workload, target: Target, trials: int, log: Path) -> None:
    result = autosched.tune(workload, target=target, trials=trials, log=log)
    kernel = autosched.replay(workload, target=target, log=log)
    inputs = random_inputs(workload, 99, kernel.device)
    (expectation,) = expect(workload, inputs)
    out = empty(workload.outputs[0], kernel.device)
    memory = out.as_strided((workload.outputs[0].span,), (1,))
    memory.fill_(torch.nan)
    kernel(*inputs, out=out)
    assert error_ratio(out, expectation) <= 1.0, str(result)
    assert int(memory.isfinite().sum()) == out.numel()
    # Dense tensors are copied into the layout that was tuned; those that a batch shares stay shared.
    dense = [x if 0 in x.stride() else x.contiguous() for x in inputs]
    assert error_ratio(kernel(*dense), expectation) <= 1.0


@pytest.mark.parametrize(
    "workload",
    [
        ops.matmul(64, 48, 100, layout="nt", batch=2, lda=104, ldc=64, stride_b=0, epilogue="bias_relu"),
        # Between these rows lies a single element.
        ops.matmul(64, 48, 100, lda=101, ldb=49, ldc=49),
    ],
    ids=["padded rows", "one element between rows"],
)
def test_a_strided_matmul_is_tuned_and_replayed_on_a_cpu(workload: Workload, tmp_path: Path) -> None:
    check_tuned(workload, HERE, 4, tmp_path / "log.jsonl")


MEASURED = [
    *(
        ops.matmul(512, 768, 1024, dtype=dtype, layout=layout, lda=1160, ldb=1176, ldc=800)
        for dtype in ("bfloat16", "tf32", "float8_e4m3fn")
        for layout in LAYOUTS
    ),
    *(ops.matmul(512, 768, 1024, dtype="bfloat16", layout=layout, batch=3, stride_b=0) for layout in LAYOUTS),
    ops.matmul(256, 256, 256, dtype="float16", batch=4, lda=1024, stride_a=256, ldc=1024, stride_c=256),
    ops.matmul(512, 768, 1024, dtype="bfloat16", lda=1027, ldb=769, ldc=771),
    ops.matmul(1000, 1000, 1000, dtype="bfloat16"),
    ops.matmul(1021, 2039, 4093, dtype="bfloat16", epilogue="bias_gelu"),
    ops.matmul(35, 8457, 2560, dtype="float16", layout="nt"),
]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("workload", MEASURED, ids=label)
def test_every_layout_is_tuned_and_replayed_on_a_gpu(workload: Workload, tmp_path: Path) -> None:
    check_tuned(workload, devices.gpu_target(), 12, tmp_path / "log.jsonl")
