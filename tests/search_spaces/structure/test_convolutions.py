"""Convolutions of any kind are contractions with dots, and every backend's schedules compute them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import best_spaces
from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.cuda.backend import CudaBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import TrialData
from convolutions import block, convolution, correlation, normed, part_of_rows, weights_gradient
from cost_models.program_counts import count
from cuda_on_cpu import EmulatedProgram
from schedule_checks import HERE, fault
from scheduled_tensors import interpreted
from search_spaces import Axis, Reduction, Schedule, SearchSpace, Stage, Target, Tensor, Workload, ops, target_named
from search_spaces.programs.statements import Dot, For, Gather, statements
from search_spaces.structure.contraction import contraction
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access

# So few units that persistent programs have several tiles each.
SMALL = replace(target_named("h200"), num_sms=4)

CONVOLUTIONS = {
    "3x3": convolution((9, 7), (3, 3), padding=1, batch=2),
    "channels first": convolution((9, 7), (3, 3), padding=1, layout="nchw"),
    "valid": convolution((9, 8), (3, 3), channels=32, batch=2),
    "strided": convolution((9, 7), (3, 3), stride=2, padding=1, filters=40),
    "dilated": convolution((11, 9), (3, 3), dilation=2, padding=2, dtype="float32", precision="tf32"),
    "odd channels": convolution((7, 6), (3, 3), padding=1, channels=19, filters=33, dtype="float32"),
    "few channels": convolution((17, 16), (7, 7), channels=3, filters=32, stride=2, padding=3),
    "grouped": convolution((8, 8), (3, 3), channels=32, filters=64, padding=1, groups=2, dtype="bfloat16"),
    "grouped, channels first": convolution((7, 7), (3, 3), channels=32, filters=64, padding=1, groups=2, layout="nchw"),
    "many small images": convolution((5, 5), (3, 3), padding=1, batch=18, layout="nchw"),
    "one row": convolution((40,), (5,), padding=2, batch=2),
    "one row, strided": convolution((41,), (3,), stride=2, padding=1, layout="nchw", filters=17),
    "volumes": convolution((4, 5, 6), (3, 3, 3), padding=1),
    "patches": convolution((12, 8), (4, 4), channels=4, stride=4),
    "integers": convolution((9, 7), (3, 3), padding=1, dtype="int8"),
    "block": block(convolution((9, 7), (3, 3), padding=1)),
    "block of activated": block(convolution((9, 7), (3, 3), padding=1, channels=20), activated=True),
    "block of filled": block(convolution((9, 7), (3, 3), padding=1), fill=2.0),
    "of what is normed": normed(convolution((9, 7), (3, 3), padding=1, channels=20, dtype="float32")),
    "weights": weights_gradient(2, 9, 24, 40),
    "weights, strided": weights_gradient(4, 7, 32, 24, stride=2),
}
every = pytest.mark.parametrize("name", CONVOLUTIONS)


@lru_cache
def space_of(workload: Workload, target: Target = SMALL) -> SearchSpace:
    """The schedules of the sketch with dots."""
    return best_spaces.build(workload, target).restricted("contraction")


def drawn(space: SearchSpace, count: int, seed: int = 0) -> Iterator[Schedule]:
    """A starting point and so many others."""
    rng = np.random.default_rng(seed)
    return iter(dict.fromkeys([*itertools.islice(space.seeds(), 1), *(space.sample(rng) for _ in range(count))]))


def dots(schedule: Schedule) -> list[Dot]:
    return [s for k in schedule.program.kernels for s in statements(k.body) if isinstance(s, Dot)]


def assert_close(workload: Workload, results: tuple[np.ndarray, ...], inputs: Any, schedule: Schedule) -> None:
    for value, expected in zip(results, expect(workload, inputs), strict=True):
        assert error_ratio(torch.from_numpy(value), expected) <= 1, str(schedule)


@every
def test_schedules_with_dots_compute_convolutions(name: str) -> None:
    workload = CONVOLUTIONS[name]
    inputs = random_inputs(workload, seed=3)
    for schedule in drawn(space_of(workload), 1):
        assert dots(schedule)
        result = interpreted(workload, schedule.program, [x.double() for x in inputs])
        assert_close(workload, result, inputs, schedule)


def test_axes_are_classed_by_image_filter_and_tap() -> None:
    form = contraction(convolution((9, 7), (3, 3), padding=1, batch=2).scheduled)
    assert form is not None
    extents = [[x.extent for x in axes] for axes in (form.rows, form.columns, form.reduced)]
    assert extents == [[2, 9, 7], [24], [3, 3, 16]]
    assert (form.m.extent, form.n.extent, form.k.extent) == (9, 24, 16)


def test_what_has_more_dimensions_than_descriptors_is_read_by_pointers() -> None:
    """Weights of three dimensions, in two groups, have six."""
    workload = convolution((5, 6, 5), (3, 3, 3), channels=128, filters=128, padding=1, groups=2)
    space = spaces.build(workload, SMALL).restricted("contraction")
    (loads,) = (k for k in space.sketches[0].knobs if k.name == "b_load")
    assert {*loads.values} == {"pointer", "halo"}


def test_groups_are_a_batch() -> None:
    form = contraction(convolution((9, 7), (3, 3), padding=1, groups=2, filters=16).scheduled)
    assert form is not None
    assert {x.extent for x in form.outer} >= {2}
    assert [math.prod(x.extent for x in axes) for axes in (form.rows, form.columns, form.reduced)] == [63, 8, 72]


def test_a_convolution_of_one_tap_is_the_product() -> None:
    product = ops.matmul(2 * 9 * 7, 24, 16, dtype="float16")
    assert convolution((9, 7), (1, 1), batch=2).key == product.key
    taps = convolution((18, 14), (2, 2), stride=2, channels=8, batch=2, filters=24)
    form = contraction(taps.scheduled)
    assert form is not None
    assert all(map(form.is_plain, form.tensors))


def test_what_is_multiplied_channel_by_channel_has_no_dot() -> None:
    depthwise = convolution((9, 7), (3, 3), padding=1, channels=16, filters=16, groups=16)
    assert contraction(depthwise.scheduled) is None
    assert all("dot" not in s.name for s in best_spaces.build(depthwise, SMALL).sketches)


def test_windows_that_are_kept_are_no_taps() -> None:
    """The window is an output, next to its product with a matrix."""
    window = Access("x", (Affine.of(("q", 32), ("k", 1)),))
    product = ex.mul(window, Access("w", (axis_index("k"), axis_index("f"))))
    q, k, f = Axis("q", 7), Axis("k", 96), Axis("f", 24)
    stages = (Stage("kept", (q, k), window), Stage("out", (q, f), product, Reduction("sum", (k,))))
    inputs = (Tensor("x", (288,), "float32"), Tensor("w", (96, 24), "float32"))
    assert contraction(Workload("kept", inputs, stages, output_names=("kept", "out"))) is None


def test_integers_are_summed_as_integers() -> None:
    for schedule in drawn(space_of(CONVOLUTIONS["integers"]), 2):
        assert {d.dst.dtype for d in dots(schedule)} == {"int32"}


def test_what_follows_the_end_of_a_reduction_in_memory_is_no_part_of_it() -> None:
    """Also where it is no number: the other factor is 0 there."""
    workload = part_of_rows(40, 30, 50, first=1, whole=64)
    inputs = random_inputs(workload, seed=3)
    inputs[0][:, 51:], inputs[0][:, 0] = torch.inf, torch.nan
    for schedule in drawn(space_of(workload), 6):
        result = interpreted(workload, schedule.program, [x.double() for x in inputs])
        assert_close(workload, result, inputs, schedule)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_elements_are_gathered_where_an_index_moves_along_two_axes_of_a_tile(dtype: str) -> None:
    workload = correlation(20, 18, 50) if dtype == "float32" else convolution((40,), (5,), channels=1, dtype=dtype)
    inputs = random_inputs(workload, seed=3)
    for schedule in drawn(space_of(workload), 4):
        assert any(isinstance(s, Gather) for k in schedule.program.kernels for s in statements(k.body))
        result = interpreted(workload, schedule.program, [x.double() for x in inputs])
        assert_close(workload, result, inputs, schedule)


@pytest.mark.parametrize(("name", "axes"), [("3x3", "m_axes"), ("channels first", "n_axes")])
def test_tiles_may_be_ranges_of_several_axes(name: str, axes: str) -> None:
    """Then all positions but the last ones are of use, and what a program reads depends on its tile as in a box."""
    space, form = space_of(CONVOLUTIONS[name]), contraction(CONVOLUTIONS[name].scheduled)
    assert form is not None
    positions = math.prod(x.extent for x in (form.rows if axes == "m_axes" else form.columns))
    schedule = space.restricted("contraction", **{axes: ["range"]}).sample(np.random.default_rng(0))
    kernel, variable = schedule.program.kernels[0], f"{axes[0]}.0"
    assert [x.extent for x in kernel.grid.axes if x.variable == variable] == [
        -(-positions // schedule.knobs.tile(axes[0]))
    ]
    image = form.tensors[axes == "n_axes"].tensor
    read = [t for t in count(schedule.program)[0].loads if t.place == image]
    assert read
    assert all(variable in t.variables for t in read)


@pytest.mark.parametrize(
    ("kind", "knobs"),
    [
        ("range", {"grid": ["stream_k"]}),
        ("range", {"tail": ["peeled"]}),
        ("range", {"split": [2]}),
        ("fused", {"grid": ["stream_k"]}),
        ("fused", {"split": [2]}),
    ],
    ids=str,
)
def test_several_reduced_axes_may_be_one_loop(kind: str, knobs: dict[str, Any]) -> None:
    workload = weights_gradient(4, 9, 24, 40) if kind == "range" else convolution((9, 7), (3, 3), channels=72)
    inputs = random_inputs(workload, seed=3)
    part = space_of(workload).restricted("contraction", k_axes=[kind], **knobs)
    for n in range(2):
        schedule = part.sample(np.random.default_rng(n))
        assert len([s for s in statements(schedule.program.kernels[0].body) if isinstance(s, For)]) == 1
        result = interpreted(workload, schedule.program, [x.double() for x in inputs])
        assert_close(workload, result, inputs, schedule)


@pytest.mark.parametrize("name", ["3x3", "weights"])
def test_triton_kernels_compute_convolutions(triton_interpreter: Any, name: str) -> None:
    workload = CONVOLUTIONS[name]
    inputs, backend = random_inputs(workload, seed=3), backends.named("triton")
    space = space_of(workload).restricted("contraction", specialize=["none"], partials=["workspace"])
    schedule = space.sample(np.random.default_rng(1))
    text = backend.render(schedule.program, schedule.one_line, SMALL)
    result = triton_interpreter.computed(text, workload, schedule.program, inputs)
    assert_close(workload, result, inputs, schedule)


@pytest.mark.parametrize("name", ["channels first", "block of filled"])
def test_cuda_kernels_compute_convolutions(name: str, tmp_path: Path) -> None:
    workload, target = CONVOLUTIONS[name], target_named("a100")
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    schedule = spaces.build(workload, target, [CudaBackend()]).sample(np.random.default_rng(0))
    assert dots(schedule)
    data.poison()
    EmulatedProgram(schedule.program, target, tmp_path)(data.operands)
    data.judge()


@pytest.mark.parametrize(
    ("name", "target", "backend"),
    [
        ("3x3", "h200", "triton"),
        ("integers", "h200", "triton"),
        ("3x3", "a100", "cuda"),
        ("channels first", "h200", "cuda"),
    ],
    ids=str,
)
def test_kernels_of_convolutions_compile(name: str, target: str, backend: str) -> None:
    device, maker = target_named(target), backends.named(backend)
    schedule = spaces.build(CONVOLUTIONS[name], device, [maker]).sample(np.random.default_rng(0))
    assert dots(schedule)
    build(schedule.program, schedule.one_line, device, maker)


@pytest.mark.parametrize("name", [x for x in CONVOLUTIONS if x != "integers"])
def test_register_tiles_of_a_cpu_compute_convolutions(name: str) -> None:
    workload = CONVOLUTIONS[name]
    schedule = best_spaces.build(workload, HERE).restricted("direct_contraction").sample(np.random.default_rng(0))
    assert dots(schedule)
    assert not fault(schedule, TrialData.drawn(workload, 0, torch.device("cpu")))


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_fills_that_are_multiplied_are_no_zeros_beyond_the_end(dtype: str) -> None:
    """out[m, n] = sum over k of (x[m, k - 1] else 2) * (y[k - 1, n] else 3)."""
    m, n, k, before = Axis("m", 40), Axis("n", 30), Axis("k", 50), Affine.of(("k", 1), offset=-1)
    product = ex.mul(Access("x", (axis_index("m"), before), 2), Access("y", (before, axis_index("n")), 3))
    stage = Stage("out", (m, n), product, Reduction("sum", (k,)), "int32" if dtype == "int8" else "float32")
    workload = Workload("filled", (Tensor("x", (40, 48), dtype), Tensor("y", (48, 30), dtype)), (stage,))
    inputs = random_inputs(workload, seed=3)
    for schedule in drawn(space_of(workload), 3):
        result = interpreted(workload, schedule.program, [x.double() for x in inputs])
        assert_close(workload, result, inputs, schedule)


@pytest.mark.parametrize(
    "workload",
    [
        ops.conv(32, 3, (224, 224), 64, 7, stride=2, padding=3, dtype="float16"),
        ops.conv(32, 28, (28, 28), 28, 3, padding=1, dtype="float16"),
        ops.conv(32, 256, (14, 14), 256, 3, padding=1, dtype="bfloat16", layout="contiguous"),
        ops.conv(1, 3, (64, 64), 96, 7, stride=4, padding=3, dtype="float16", layout="contiguous"),
    ],
    ids=lambda workload: workload.label,
)
def test_convolutions_of_few_or_scattered_channels_have_starts(workload: Workload) -> None:
    """A class that is shorter than the usual tile, that cannot be a range, or whose copies have short rows."""
    assert len(best_spaces.build(workload, target_named("h200")).seeds()) >= 4
