"""Windows at points: depthwise convolutions and poolings of every rank, unrolled, as one axis, and in loops.

Every program runs in the interpreter, some printed in Triton's own, and on this CPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

import autosched
from autosched import backends
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import random_inputs
from best_spaces import build
from convolutions import block, convolution
from scheduled_tensors import interpreted, launched_on
from search_spaces import (
    Axis,
    EmptySearchSpaceError,
    Reduction,
    Schedule,
    SearchSpace,
    Stage,
    Tensor,
    Workload,
    target_named,
)
from search_spaces.programs.statements import For, Load, Store, statements
from search_spaces.schedules.knobs import KnobValue
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access

TRITON, H200, CPU = TritonBackend(), target_named("h200"), autosched.cpu_target(1)

CASES: Mapping[str, Mapping[str, Any]] = {
    "two images": {"size": (7, 6), "kernel": (3, 3), "channels": 24, "padding": 1, "batch": 2},
    "stride": {"size": (9, 7), "kernel": (5, 3), "channels": 10, "padding": 2, "stride": 2},
    "dilation": {"size": (7, 7), "kernel": (3, 3), "channels": 8, "padding": 2, "dilation": 2},
    "no padding": {"size": (8, 20), "kernel": (3, 3), "channels": 8},
    "kernel larger than the image": {"size": (2, 3), "kernel": (5, 5), "channels": 16, "padding": 2},
    "short causal": {"size": (21,), "kernel": (4,), "channels": 12, "padding": 3},
    "volume": {"size": (3, 4, 5), "kernel": (3, 3, 3), "channels": 8, "padding": 1},
    "large": {"size": (11, 9), "kernel": (9, 9), "channels": 8, "padding": 4},
    "large volume": {"size": (5, 4, 5), "kernel": (5, 5, 5), "channels": 4, "padding": 2, "stride": 2},
    "long": {"size": (40,), "kernel": (70,), "channels": 10, "padding": 35},
    "rows of vectors": {"size": (5, 75), "kernel": (3, 5), "channels": 3, "padding": 2, "stride": 2},
    "small groups": {"size": (5, 6), "kernel": (3, 3), "channels": 8, "groups": 2, "padding": 1},
    "multiplier": {"size": (5, 6), "kernel": (3, 3), "channels": 6, "filters": 12, "padding": 1},
}
# Layouts in turn: which one it is changes no other decision.
LAYOUTS = zip(CASES, itertools.cycle(("nhwc", "nchw")), strict=False)
EACH = [pytest.param(name, layout, id=f"{name} {layout}") for name, layout in LAYOUTS]


def depthwise(name: str, layout: str = "nhwc", dtype: str = "float32") -> Workload:
    case = CASES[name]
    usual = {"filters": case["channels"], "groups": case["channels"], "layout": layout, "dtype": dtype}
    return convolution(**{**usual, **case})


def test_look_ups_of_split_axes_have_these_in_their_tiles() -> None:
    workload = depthwise("long", "nchw", "float16")
    space = build(workload, H200).restricted("reduction", accumulate=("thread",), grid=("tiles",))
    check_interpreted(workload, space.sample(np.random.default_rng(0)), random_inputs(workload, 3))


def drawn(space: SearchSpace, count: int) -> list[Schedule]:
    """So many schedules of points, of few programs."""
    rng = np.random.default_rng(4)
    whole = space.restricted("pointwise")
    found = (whole.sample(rng) for _ in range(12 * count))
    few = (s for s in found if s.program.kernels[0].grid.programs <= 64)
    return list(itertools.islice(few, count))


def check_interpreted(workload: Workload, schedule: Schedule, inputs: list[torch.Tensor]) -> None:
    got = interpreted(workload, schedule.program, [x.double() for x in inputs])
    for expected, found in zip(expect(workload, inputs), got, strict=True):
        values = torch.from_numpy(np.ascontiguousarray(found)).to(expected.values.dtype).view(expected.values.shape)
        assert why_wrong(values, expected) is None, str(schedule)


@pytest.mark.parametrize(("name", "layout"), EACH)
def test_windows_at_points_are_right_in_programs_for_a_gpu(name: str, layout: str) -> None:
    workload = depthwise(name, layout, "float16")
    schedules = drawn(build(workload, H200), 2)
    assert schedules
    for schedule in schedules:
        check_interpreted(workload, schedule, random_inputs(workload, 3))


@pytest.mark.parametrize("name", ["two images", "stride", "large"])
def test_all_axes_as_one_are_right_in_triton(triton_interpreter, name: str) -> None:
    workload = depthwise(name, dtype="float16")
    inputs = random_inputs(workload, 3)
    whole = build(workload, H200)
    space = whole.restricted("pointwise", flat=(256,), unrolled_planes=(2,), unrolled_rows=(4,), grid=("tiles",))
    program = space.sample(np.random.default_rng(0)).program
    printed = triton_interpreter.computed(TRITON.render(program, "", H200), workload, program, inputs)
    for expected, got in zip(expect(workload, inputs), printed, strict=True):
        values = torch.from_numpy(np.ascontiguousarray(got)).half().view(expected.values.shape)
        assert why_wrong(values, expected) is None


@pytest.mark.parametrize(("name", "layout"), EACH)
def test_windows_at_points_are_right_on_this_cpu(name: str, layout: str) -> None:
    workload = depthwise(name, layout)
    for schedule in drawn(build(workload, CPU), 2):
        check_run(workload, schedule, random_inputs(workload, 3))


def check_run(workload: Workload, schedule: Schedule, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    backend, program = backends.named(schedule.backend), schedule.program
    kernel = backend.load(backend.compile(backend.render(program, "", CPU), program, CPU), program)
    outputs = [torch.full(o.shape, float("nan"), dtype=getattr(torch, o.dtype)) for o in workload.outputs]
    kernel(launched_on(workload, inputs, *outputs))
    for expected, got in zip(expect(workload, inputs), outputs, strict=True):
        assert why_wrong(got.view(expected.values.shape), expected) is None, str(schedule)
    return outputs


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_what_is_outside_is_nothing_however_the_edges_are(layout: str, value: float) -> None:
    """Padding multiplies a weight by 0; a NaN or an infinity at an edge reaches its own windows only."""
    workload = depthwise("two images", layout)
    x, w = random_inputs(workload, 3)
    x[0] = x[0].index_fill(0 if layout == "nhwc" else 1, torch.tensor([0]), value)
    (schedule, *_) = drawn(build(workload, CPU).restricted("pointwise", unrolled_rows=(4,)), 1)
    (got,) = check_run(workload, schedule, [x, w])
    (gpu,) = drawn(build(workload, H200), 1)
    check_interpreted(workload, gpu, [x, w])
    by_rows = got[0] if layout == "nhwc" else got[0].movedim(-2, 0)
    assert by_rows.isfinite().flatten(1).all(1).tolist() == [False] * 2 + [True] * 5


def test_windows_of_windows_are_read_where_they_are_written_out() -> None:
    """out[p] = max over w of x[2 p + w] * (sum over v of x[2 p + w + v])"""
    p, w, v = Axis("p", 7), Axis("w", 3), Axis("v", 2)
    at = Affine.of(("p", 2), ("w", 1))
    total = Stage("s", (p, w), Access("x", (at + axis_index("v"),)), Reduction("sum", (v,)))
    product = ex.mul(Access("x", (at,)), Access("s", (axis_index("p"), axis_index("w"))))
    out = Stage("out", (p,), product, Reduction("max", (w,)))
    workload = Workload("windows", (Tensor("x", (16,), "float32"),), (total, out))
    for target in (H200, CPU):
        schedule = build(workload, target).restricted("pointwise").sample(np.random.default_rng(0))
        check_interpreted(workload, schedule, random_inputs(workload, 3))


def test_what_follows_a_window_is_in_its_kernel() -> None:
    workload = block(depthwise("two images"), fill=0.0)
    for target, check in ((H200, check_interpreted), (CPU, check_run)):
        for schedule in drawn(build(workload, target), 3):
            check(workload, schedule, random_inputs(workload, 3))


def restricted(workload: Workload, **knobs: KnobValue) -> Schedule:
    space = build(workload, H200).restricted("pointwise", **{name: (value,) for name, value in knobs.items()})
    return space.sample(np.random.default_rng(0))


def test_each_element_is_loaded_once_for_all_unrolled_points() -> None:
    schedule = restricted(depthwise("two images"), flat=256, unrolled_planes=2, unrolled_rows=4)
    loads = [s for s in schedule.program.kernels[0].body if isinstance(s, Load)]
    # Of the image 4 rows of 6, and 9 weights.
    assert len(loads) == 4 * 6 + 9
    assert len([s for s in schedule.program.kernels[0].body if isinstance(s, Store)]) == 2 * 4


def test_all_axes_as_one_leave_no_position_of_a_tile_unused_but_the_last() -> None:
    schedule = restricted(depthwise("two images"), flat=256, unrolled_planes=2, unrolled_rows=4, grid="tiles")
    # 2 images of 4 groups of rows of 2 groups of columns of 24 channels.
    assert schedule.program.kernels[0].grid.programs == -(-2 * 4 * 2 * 24 // 256)


def test_a_large_window_is_a_loop_over_its_rows() -> None:
    schedule = restricted(depthwise("large"), flat=256, unrolled_planes=1, unrolled_rows=4)
    (loop,) = (s for s in statements(schedule.program.kernels[0].body) if isinstance(s, For))
    assert loop.extent == 9
    # A row of 12 elements, and 9 weights.
    assert sum(isinstance(s, Load) for s in loop.body) == 12 + 9


def test_too_many_reads_are_not_written_out() -> None:
    space = build(convolution((14, 14), (5, 5), 8, 8, padding=2, groups=8), H200)
    with pytest.raises(EmptySearchSpaceError):
        space.restricted("pointwise", unrolled_planes=(8,), unrolled_rows=(8,)).sample(np.random.default_rng(0))


def test_a_thread_has_no_more_points_than_compilers_take_seconds_for() -> None:
    space = build(convolution((64, 64), (3, 3), 64, 64, padding=1, groups=64), H200)

    def sampled(warps: int) -> Schedule:
        narrowed = space.restricted("pointwise", flat=(2048,), unrolled_planes=(2,), unrolled_rows=(4,), warps=(warps,))
        return narrowed.sample(np.random.default_rng(0))

    # 8 points of 64 positions of a thread, of 9 weights and 9 elements each; then of 8.
    with pytest.raises(EmptySearchSpaceError):
        sampled(1)
    assert dict(sampled(8).values)["warps"] == 8


def test_a_window_of_many_taps_is_a_loop_on_a_gpu_and_written_out_on_a_cpu() -> None:
    seven = convolution((14, 14), (7, 7), 8, 8, padding=3, groups=8)
    for target, loops in ((H200, 1), (CPU, 0)):
        (schedule, *_) = (s for s in build(seven, target).seeds() if s.sketch == "pointwise")
        assert sum(isinstance(s, For) for s in schedule.program.kernels[0].body) == loops


def test_only_edges_of_an_image_are_guarded_on_a_cpu() -> None:
    workload = depthwise("two images")
    space = build(workload, CPU).restricted("pointwise", unrolled_rows=(2,), vectors=(1,), streaming=(False,))
    schedule = space.sample(np.random.default_rng(0))
    text = backends.named(schedule.backend).render(schedule.program, "", CPU)
    inside, rest = text.split("inside.not:", 1)
    assert "inside:" in inside
    assert "icmp ult" not in inside.split("inside:", 1)[1]
    assert "icmp ult" in rest
