"""Convolutions of every kind by direct register tiles, as LLVM compiles them, against float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import best_spaces
from autosched import backends
from autosched.backends.build import build
from autosched.backends.llvm.bodies.merged_rows import with_merged_rows
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import TrialData
from convolutions import block, convolution, normed, weights_gradient
from pairwise import pairwise
from schedule_checks import HERE, fault
from scheduled_tensors import interpreted
from search_spaces import Axis, Reduction, Schedule, SearchSpace, Stage, Tensor, Workload, ops
from search_spaces.programs.statements import Load, statements
from search_spaces.programs.tile_program import Buffer, Grid, Kernel
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access

# Ranks by number of dimensions: sizes, and taps of each.
RANKS: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {
    1: ((23,), (5,)),
    2: ((9, 7), (3, 3)),
    3: ((4, 5, 6), (3, 2, 3)),
}


def conv(size: tuple[int, ...], kernel: tuple[int, ...], **given: Any) -> Workload:
    return convolution(size, kernel, **{"dtype": "float32", **given})


def as_constant(plain: Workload) -> Workload:
    image, weights = plain.inputs
    return replace(plain, inputs=(image, replace(weights, constant=True)))


def as_pytorch(plain: Workload, constant: bool = False) -> Workload:
    """A convolution of channels last with its weights as PyTorch lays them out: filters first."""
    image, weights = plain.inputs
    *taps, channels, filters = weights.shape
    assert filters == plain.outputs[0].shape[-1]
    along = [channels * math.prod(taps[n + 1 :]) for n in range(len(taps))]
    strides = (*along, 1, channels * math.prod(taps))
    return replace(plain, inputs=(image, replace(weights, strides=strides, constant=constant)))


KINDS = {
    "rank": tuple(RANKS),
    "layout": ("nhwc", "nchw"),
    "stride": (1, 2),
    "dilation": (1, 2),
    "padding": (0, 2),
    "groups": (1, 2),
}


def is_defined(kind: Mapping[str, Any]) -> bool:
    """True where the taps fit into the image."""
    return bool(kind["padding"] or kind["dilation"] == 1 or kind["rank"] < 3)


# Every two values together.
EVERY = {
    " ".join(f"{name} {value}" for name, value in kind.items()): conv(
        *RANKS[kind["rank"]], channels=8, filters=12, **{name: v for name, v in kind.items() if name != "rank"}
    )
    for kind in pairwise(KINDS, is_defined)
}


def shifted(index: Affine, filters: int, constant: bool = False, fill: float | None = 0.0) -> Workload:
    """out[p, f] = sum over r, c of x[p + r, c] * w[index of f, r, c], of 40 filters in memory."""
    x = Access("x", (Affine.of(("p", 1), ("r", 1)), axis_index("c")))
    w = Access("w", (index, axis_index("r"), axis_index("c")), fill)
    axes, summed = (Axis("p", 11), Axis("f", filters)), (Axis("r", 3), Axis("c", 16))
    stage = Stage("out", axes, ex.mul(x, w), Reduction("sum", summed), "float32")
    inputs = Tensor("x", (13, 16), "float32"), Tensor("w", (40, 3, 16), "float32", constant=constant)
    return Workload("shifted", inputs, (stage,))


SPECIAL = {
    "odd channels": conv((9, 7), (3, 3), channels=19, filters=33, padding=1),
    "odd channels, first": conv((9, 7), (3, 3), channels=19, filters=33, padding=1, layout="nchw"),
    "stem": conv((17, 19), (7, 7), channels=3, filters=32, stride=2, padding=3),
    "one channel": conv((17, 19), (3, 3), channels=1, filters=20, padding=1),
    "kernel larger than the image": conv((2, 3), (5, 5), padding=2),
    "one pixel": conv((1, 1), (3, 3), padding=1, batch=2),
    "several images": conv((5, 5), (3, 3), padding=1, batch=3),
    "strided, one tap": conv((9, 8), (1, 1), channels=24, filters=40, stride=2),
    "strided, one tap, weights of pytorch": as_pytorch(conv((9, 8), (1, 1), channels=24, filters=40, stride=2)),
    "patches": conv((12, 8), (4, 4), channels=4, stride=4),
    "patches of few channels": as_pytorch(conv((16, 20), (4, 4), channels=3, filters=40, stride=4)),
    "weights of pytorch": as_pytorch(conv((9, 7), (3, 3), channels=19, filters=33, padding=1)),
    "constant weights": as_pytorch(conv((9, 7), (3, 3), channels=19, filters=33, padding=1), constant=True),
    "constant weights, first": as_constant(conv((9, 7), (3, 3), channels=19, filters=33, padding=1, layout="nchw")),
    "float16": convolution((9, 7), (3, 3), padding=1),
    "bfloat16": convolution((9, 7), (3, 3), padding=1, dtype="bfloat16", layout="nchw"),
    "block": block(conv((9, 7), (3, 3), channels=20, filters=20, padding=1)),
    "block, channels first": block(conv((9, 7), (3, 3), channels=20, filters=20, padding=1, layout="nchw")),
    "block of activated": block(conv((9, 7), (3, 3), padding=1), activated=True),
    "block of filled": block(conv((9, 7), (3, 3), padding=1), fill=2.0),
    "of what is normed": normed(conv((9, 7), (3, 3), channels=20, padding=1)),
    "weights": weights_gradient(2, 9, 24, 40),
    # The image has the columns.
    "padded, one tap": ops.conv(2, 17, (13, 13), 4, 1, stride=2, padding=2, weight_layout="contiguous"),
    "columns before the first": shifted(Affine.of(("f", 1), offset=-3), 43),
    "columns around all": shifted(Affine.of(("f", 1), offset=-3), 46),
    "constant columns around all": shifted(Affine.of(("f", 1), offset=-3), 46, constant=True),
    "every other column, and more": shifted(Affine.of(("f", 2)), 25),
    "columns in reverse": shifted(Affine.of(("f", -1), offset=39), 40, fill=None),
}


def direct(workload: Workload) -> SearchSpace:
    return best_spaces.build(workload, HERE).restricted("direct_contraction")


def drawn(space: SearchSpace, count: int) -> list[Schedule]:
    rng = np.random.default_rng(0)
    return list(dict.fromkeys([*itertools.islice(space.seeds(), 2), *(space.sample(rng) for _ in range(count))]))


@pytest.mark.parametrize("name", [*EVERY, *SPECIAL])
def test_kernels_compute_convolutions(name: str) -> None:
    workload = {**EVERY, **SPECIAL}[name]
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    for schedule in drawn(direct(workload), 2):
        assert not fault(schedule, data)


@pytest.mark.parametrize("name", SPECIAL)
def test_programs_compute_convolutions(name: str) -> None:
    workload = SPECIAL[name]
    inputs = random_inputs(workload, seed=3)
    for schedule in drawn(direct(workload), 1):
        result = interpreted(workload, schedule.program, [x.double() for x in inputs])
        for value, expected in zip(result, expect(workload, inputs), strict=True):
            assert error_ratio(torch.from_numpy(value), expected) <= 1, str(schedule)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_what_padding_multiplies_is_0_next_to_infinities_and_nan(layout: str) -> None:
    """Of elements at the edges of an image, only those that a window has count."""
    workload = conv((6, 7), (3, 3), channels=16, filters=18, padding=1, layout=layout)
    image, weights = random_inputs(workload, seed=1)
    first = image if layout == "nchw" else image.permute(0, 3, 1, 2)
    first[0, 0, 0, 0], first[0, 3, -1, -1], first[0, 5, 0, -1] = torch.inf, torch.nan, -torch.inf
    filters = weights if layout == "nchw" else weights.permute(3, 2, 0, 1)
    wanted = torch.nn.functional.conv2d(first.double(), filters.double(), padding=1)
    for schedule in drawn(direct(workload), 3):
        made = launched(workload, schedule, [image, weights])
        got = made.flatten(1, 2) if layout == "nchw" else made.flatten(-2).permute(0, 3, 1, 2)
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-4, equal_nan=True)


def launched(workload: Workload, schedule: Schedule, inputs: list[torch.Tensor]) -> torch.Tensor:
    """The output of a schedule's kernel."""
    backend = backends.named("llvm")
    launcher = backend.load(build(schedule.program, "", HERE, backend), schedule.program)
    places = [
        next(n for n, t in enumerate(inputs) if t.numel() == math.prod(b.shape)) for b in schedule.program.buffers[:2]
    ]
    out = torch.empty(workload.outputs[0].shape)
    launcher([*(inputs[n] for n in places), out])
    launcher.unload()
    return out


def test_no_guard_is_in_a_main_loop() -> None:
    """Padding is copied once; a loop around a dot reads what exists."""
    for name in ("odd channels", "stem", "block of activated"):
        for schedule in drawn(direct(SPECIAL[name]), 2):
            *copies, main = schedule.program.kernels
            assert all(kernel.auxiliary for kernel in copies)
            assert not any(s.guarded for s in statements(main.body) if isinstance(s, Load))


def test_panels_of_weights_as_pytorch_lays_them_out_are_transposed_in_registers() -> None:
    workload = as_pytorch(conv((9, 7), (3, 3), channels=32, filters=48, padding=1))
    schedule = next(iter(direct(workload).seeds()))
    text = backends.named("llvm").render(schedule.program, "", HERE)
    assert "transposed" in text
    assert not fault(schedule, TrialData.drawn(workload, 0, torch.device("cpu")))


def test_panels_of_a_packed_product_are_prepared_from_weights_as_pytorch_lays_them_out() -> None:
    """Their copies move along one axis, and take single positions of the others, the last one among them."""
    workload = as_pytorch(conv((16, 20), (4, 4), channels=3, filters=40, stride=4), constant=True)
    space = best_spaces.build(workload, HERE).restricted("contraction", pack_b=["prepared"])
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    assert not fault(space.sample(np.random.default_rng(0)), data)


def test_copies_along_no_axis_of_the_last_dimension_are_no_rows() -> None:
    slices = (Slice(Affine(), 4, "r"), Slice(Affine(offset=1)))
    copied = Load(Tile.along(slices, "t"), "x", slices)
    kernel = Kernel("copy", Grid(()), (copied,), auxiliary=True)
    buffers = {"x": Buffer("x", (4, 3), "float32", "input")}
    assert with_merged_rows(kernel, buffers) == (kernel, buffers)
