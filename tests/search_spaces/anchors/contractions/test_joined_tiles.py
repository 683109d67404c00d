"""Tiles at all taps of a row, joined along few channels to the operands of one dot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import best_spaces
from autosched import backends
from autosched.backends.backend import CompileError
from autosched.backends.build import build
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from convolutions import block, convolution, correlation, weights_gradient
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Workload, target_named
from search_spaces.programs.statements import Dot, Interleave, statements

H200, A100 = target_named("h200"), target_named("a100")
FEW = {
    "eight channels a group": convolution((9, 7), (3, 3), channels=48, filters=48, padding=1, groups=6, batch=2),
    "four channels a group": convolution((9, 9), (3, 3), channels=16, filters=32, stride=2, padding=1, groups=4),
    "sixteen": convolution((9, 7), (3, 3), filters=24, padding=1, dilation=2, dtype="bfloat16"),
    "twelve, channels first": convolution((9, 7), (3, 3), channels=12, padding=1, layout="nchw"),
    "one row": convolution((40,), (5,), channels=8, filters=32, padding=2, dtype="float32", precision="tf32"),
    "volumes": convolution((4, 5, 6), (3, 3, 3), channels=5, padding=1),
    "integers": convolution((9, 7), (3, 3), channels=8, padding=1, dtype="int8"),
    "activated before": block(convolution((9, 7), (3, 3), channels=8, padding=1), activated=True),
}


def space_of(workload: Workload, **allowed: Any) -> SearchSpace:
    """The schedules of the sketch with dots, with joined tiles."""
    return best_spaces.build(workload, H200).restricted("contraction", k_axes=["joined"], **allowed)


def drawn(workload: Workload, count: int, **allowed: Any) -> list[Schedule]:
    space = space_of(workload, **allowed)
    return [space.sample(np.random.default_rng(n)) for n in range(count)]


def ratio(workload: Workload, inputs: list[torch.Tensor], schedule: Schedule) -> float:
    (result,) = interpreted(workload, schedule.program, [x.double() for x in inputs])
    return error_ratio(torch.from_numpy(np.ascontiguousarray(result)), expect(workload, inputs)[0])


@pytest.mark.parametrize("workload", FEW.values(), ids=FEW)
def test_joined_tiles_give_the_same_result(workload: Workload) -> None:
    inputs = random_inputs(workload, seed=3)
    for schedule in drawn(workload, 4):
        assert ratio(workload, inputs, schedule) <= 1, schedule.one_line


@pytest.mark.parametrize(
    ("name", "joined"), [("eight channels a group", {(8, 32)}), ("four channels a group", {(4, 16), (8, 32)})]
)
def test_one_dot_has_all_taps_of_a_row(name: str, joined: set[tuple[int, int]]) -> None:
    """Three taps, and zeros up to a power of two; four channels also as rows of 16 bytes, which are loaded at once."""
    found = set()
    for schedule in drawn(FEW[name], 6, split=[1]):
        body = [s for k in schedule.program.kernels for s in statements(k.body)]
        both = [(len(s.src), s.run, s.dst.extent("k")) for s in body if isinstance(s, Interleave)]
        assert len(both) == 2
        assert len([s for s in body if isinstance(s, Dot)]) == 1
        found |= {(run, depth) for parts, run, depth in both if parts == 4}
    assert found == joined


def test_what_lies_beyond_the_taps_counts_nothing() -> None:
    """A tile of four has a tap more than the window: what follows the window in the image is not multiplied."""
    workload = convolution((9, 16), (3, 3), channels=8, padding=1)
    inputs = random_inputs(workload, seed=3)
    inputs[0][:, :, 10] = torch.inf
    for schedule in drawn(workload, 3):
        (result,) = interpreted(workload, schedule.program, [x.double() for x in inputs])
        columns = np.isfinite(result).reshape(9, 16, -1).all(axis=(0, 2))
        assert [at for at, finite in enumerate(columns) if not finite] == [9, 10, 11]


@pytest.mark.parametrize("name", ["eight channels a group", "one row"])
def test_triton_kernels_of_joined_tiles_are_right(triton_interpreter: Any, name: str) -> None:
    workload, triton = FEW[name], backends.named("triton")
    inputs = random_inputs(workload, seed=3)
    (schedule,) = drawn(workload, 1, partials=["workspace"], split=[1])
    text = triton.render(schedule.program, schedule.one_line, H200)
    (result,) = triton_interpreter.computed(text, workload, schedule.program, inputs)
    assert error_ratio(torch.from_numpy(np.ascontiguousarray(result)), expect(workload, inputs)[0]) <= 1


@pytest.mark.parametrize("target", [H200, A100], ids=str)
def test_triton_compiles_joined_tiles(target: Any) -> None:
    workload = FEW["eight channels a group"]
    (schedule,) = drawn(workload, 1, batch=[(1, 8)], m=[(1, 64)], warps=[4], split=[1])
    assert build(schedule.program, schedule.one_line, target, backends.named("triton")).binaries


def test_cuda_refuses_runs() -> None:
    (schedule,) = drawn(FEW["sixteen"], 1)
    with pytest.raises(CompileError, match="runs of 16"):
        backends.named("cuda").render(schedule.program, "", H200)


@pytest.mark.parametrize(
    "workload",
    [convolution((9, 7), (3, 3), channels=64, padding=1), weights_gradient(2, 9, 24, 40), correlation(20, 18, 50)],
    ids=["long channels", "long taps", "one axis"],
)
def test_other_reductions_are_not_joined(workload: Workload) -> None:
    knobs = best_spaces.build(workload, H200).restricted("contraction").sketches[0].knobs
    assert "joined" not in {value for k in knobs if k.name == "k_axes" for value in k.values}
