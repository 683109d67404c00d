"""Products whose large operand streams through registers: right on the interpreter and as C++, and who has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autosched
from autosched.backends import spaces
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import TrialData
from cuda_on_cpu import EmulatedProgram
from needed import needs_hopper, needs_nvrtc
from schedule_checks import fault, tried
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Workload, ops, target_named
from search_spaces.errors import UnmatchedError
from search_spaces.programs.statements import Load, statements
from search_spaces.structure.streamed import streamed
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Expression
from search_spaces.workloads.expressions.walking import rewritten
from search_spaces.workloads.workload import Axis, Reduction, Stage, Tensor

CUDA, H200 = CudaBackend(), target_named("h200")


def product(m: int = 3, n: int = 40, k: int = 512, **options: Any) -> Workload:
    return ops.matmul(m, n, k, **{"dtype": "bfloat16", "layout": "nt", "constant": "b", **options})


STREAMED = {
    "as stored": product(),
    "float16, more rows": product(21, dtype="float16"),
    "int8": product(b_dtype="int8"),
    "int8 in groups": product(b_dtype="int8", group=128, dtype="float16"),
    "int8 with zero points": product(b_dtype="int8", group=64, zero_points=True, dtype="float16"),
    "int4": product(b_dtype="int4", group=128),
    "int4 in short groups": product(9, b_dtype="int4", group=32, dtype="float16"),
    "int4 in long groups, few of them": product(b_dtype="int4", group=256, k=768),
    "int4 with zero points": product(b_dtype="int4", group=64, zero_points=True),
    "int4 and one scale for a column": product(b_dtype="int4"),
    "floats of eight bits": product(b_dtype="float8_e4m3fn"),
    "wide floats of eight bits, in groups": product(b_dtype="float8_e5m2", group=128, dtype="float16"),
    "few columns": ops.matmul(40, 3, 512, "float16", layout="nt"),
    "with an epilogue": product(epilogue="gelu"),
}


def computed_scales() -> Workload:
    """Scales that are infinite of what is read outside: seven groups, and an even number of warps."""
    m, n, g, k = Axis("m", 3), Axis("n", 40), Axis("g", 7), Axis("k", 64)
    x = Access("x", (axis_index("m"), axis_index("g"), axis_index("k")))
    q = Access("q", (axis_index("n"), axis_index("g"), axis_index("k")))
    s = ex.call("rsqrt", Access("s", (axis_index("n"), axis_index("g"))))
    product = ex.mul(x, ex.call("round_bfloat16", ex.mul(q, s)))
    inputs = (Tensor("x", (3, 7, 64), "bfloat16"), Tensor("q", (40, 7, 64), "int8"), Tensor("s", (40, 7), "float32"))
    stage = Stage("out", (m, n), product, Reduction("sum", (g, k)), "bfloat16")
    return Workload("by_roots", inputs, (stage,))


STREAMED["with computed scales, and uneven parts"] = computed_scales()
every = pytest.mark.parametrize("workload", STREAMED.values(), ids=STREAMED)


def space_of(workload: Workload) -> SearchSpace:
    return spaces.build(workload, H200, [CUDA]).restricted("streamed_contraction")


@every
def test_schedules_are_right_whatever_the_scales(workload: Workload) -> None:
    space, given = space_of(workload), random_inputs(workload, seed=3)
    for number, factor in enumerate((1e-4, 1.0, 1e4)):
        by = 1.0 if workload.inputs[0].dtype == "float16" else factor
        inputs = [x * by if "scale" in t.name else x for t, x in zip(workload.inputs, given, strict=True)]
        schedule = space.sample(np.random.default_rng(number))
        (result,) = interpreted(workload, schedule.program, [x.double() for x in inputs])
        ratio = error_ratio(torch.from_numpy(np.ascontiguousarray(result)), expect(workload, inputs)[0])
        assert ratio <= 1, schedule.one_line


@every
def test_kernels_compute_what_they_should(workload: Workload, tmp_path: Path) -> None:
    schedule = space_of(workload).sample(np.random.default_rng(len(workload.name)))
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    data.poison()
    EmulatedProgram(schedule.program, H200, tmp_path)(data.operands)
    data.judge()


def starts_of(workload: Workload) -> list[Schedule]:
    """The first starts that load and that copy the large operand."""
    found: dict[bool, Schedule] = {}
    for s in space_of(workload).seeds():
        found.setdefault(s.knobs.integer("stages") > 2, s)
    return [*found.values()]


MANY_PARTS = product(9, k=1024, b_dtype="int4", group=64)


@needs_nvrtc
@pytest.mark.parametrize("workload", [STREAMED["float16, more rows"], STREAMED["int4 with zero points"]])
def test_kernels_compile_without_spills_as_was_told_before(workload: Workload) -> None:
    for schedule in starts_of(workload):
        facts = CUDA.compile(CUDA.render(schedule.program, "", H200), schedule.program, H200).facts
        needs = CUDA.limits.needs(schedule.program, schedule.program.kernels[0], H200)
        assert needs is not None
        assert facts.spill_bytes == 0, schedule.one_line
        assert facts.registers <= needs.registers_per_thread + 16, schedule.one_line
        assert facts.shared_memory_bytes == needs.shared_memory_bytes


def test_copies_ahead_compute_what_they_should(tmp_path: Path) -> None:
    data = TrialData.drawn(MANY_PARTS, 0, torch.device("cpu"))
    copying = [s for s in space_of(MANY_PARTS).seeds() if "copy_ahead<" in CUDA.render(s.program, "", H200)]
    assert len(copying) > 2
    for number, schedule in enumerate(copying[:3]):
        data.poison()
        (folder := tmp_path / str(number)).mkdir()
        EmulatedProgram(schedule.program, H200, folder)(data.operands)
        data.judge()


def test_no_warp_waits_for_another_before_all_sums() -> None:
    workload = product(k=4096, b_dtype="int4", group=128)
    for schedule in starts_of(workload):
        body = [*statements(schedule.program.kernels[0].body)]
        assert sum(isinstance(s, Load) and s.dst.dtype == "uint8" for s in body) == 1
        text = CUDA.render(schedule.program, "", H200)
        loop = text.partition("#pragma unroll 1\n")[2].partition("float sum[")[0]
        assert "multiply_bfloat16<" in loop
        assert "__syncthreads" not in loop
        assert "bar.sync" not in loop
        assert ("wait_ahead<" in loop) == (schedule.knobs.integer("stages") > 2)


def test_backends_that_cannot_have_no_such_kernels() -> None:
    both = spaces.build(product(b_dtype="int8"), H200, [TritonBackend(), CUDA])
    made = [s for s in both.seeds() if s.sketch == "streamed_contraction"]
    assert {s.backend for s in made} == {"cuda"}
    alone = spaces.build(product(b_dtype="int8"), H200, [TritonBackend()])
    assert "streamed_contraction" not in [s.name for s in alone.sketches]
    assert "no kernels of streamed_contraction" in (both.why_illegal(replace(made[0], backend="triton")) or "")


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (product(65, n=128), "more than 64 rows"),
        (product(dtype="float32"), "no product of float16 or bfloat16"),
        (product(k=1000), "k=1000"),
        (product(layout="nn"), "no whole vectors"),
        (product(b_dtype="int4", group=16), "no rows as stored"),
        (product(b_dtype="int8", group=96, k=960), "no whole vectors of 4 lanes"),
    ],
    ids=["rows", "type", "k", "layout", "groups", "odd groups"],
)
def test_others_are_refused_with_the_reason(workload: Workload, why: str) -> None:
    with pytest.raises(UnmatchedError, match=why):
        streamed(workload.scheduled)


def test_a_scale_of_each_value_in_a_byte_is_refused() -> None:
    made = product(b_dtype="int4", group=128)
    summed = next(stage for stage in made.stages if stage.reduction)
    assert summed.reduction
    (digit,) = (x.name for x in summed.reduction.axes if x.extent == 2)
    scale = made.inputs[-1]

    def of_each(e: Expression) -> Expression | None:
        return (
            replace(e, index=(*e.index, axis_index(digit)))
            if isinstance(e, Access) and e.tensor == scale.name
            else None
        )

    stages = tuple(replace(s, expression=rewritten(s.expression, of_each)) for s in made.stages)
    changed = replace(made, inputs=(*made.inputs[:-1], replace(scale, shape=(*scale.shape, 2))), stages=stages)
    with pytest.raises(UnmatchedError, match="a scale that differs between the values of a byte"):
        streamed(changed.scheduled)


@pytest.mark.gpu
@needs_hopper
@every
def test_kernels_are_right_on_a_gpu(workload: Workload) -> None:
    space, data = space_of(workload), TrialData.drawn(workload, 0, torch.device("cuda"))
    for schedule in tried(space, 3, 0):
        assert fault(schedule, data, H200) is None, schedule.one_line


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize("workload", [MANY_PARTS, product(64, n=512, k=4096, b_dtype="int8")], ids=["few", "many"])
def test_every_way_to_load_is_right_on_a_gpu(workload: Workload) -> None:
    data = TrialData.drawn(workload, 0, torch.device("cuda"))
    for schedule in starts_of(workload):
        assert fault(schedule, data, H200) is None, schedule.one_line


def of_floats(x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x @ (q.bfloat16().view(64, 4, 128) * scale[:, :, None]).flatten(1).T


def of_signed_fields(x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    fields = torch.stack(((q << 4) >> 4, q >> 4), -1).bfloat16()
    return x @ (fields.view(64, 4, 128) * scale[:, :, None]).flatten(1).T


@pytest.mark.parametrize(
    ("function", "weight"),
    [(of_floats, torch.empty(64, 512, dtype=torch.float8_e4m3fn)), (of_signed_fields, torch.empty(64, 256).char())],
    ids=["floats", "signed fields"],
)
def test_dequantisation_that_is_written_out_streams(
    function: Callable[..., torch.Tensor], weight: torch.Tensor
) -> None:
    traced = autosched.trace(function, torch.empty(4, 512).bfloat16(), weight, torch.empty(64, 4).bfloat16())
    (product,) = next(c for c in traced.cuts if len(c.workloads) == 1).workloads
    assert "streamed_contraction" in [s.name for s in spaces.build(product, H200, [CUDA]).sketches]
