"""Tiles with several products of a batch: groups of few channels, and batches of tiny matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import best_spaces
from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from convolutions import block, convolution
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Workload, ops, target_named
from search_spaces.programs.statements import Dot, statements

H200 = target_named("h200")
GROUPED = {
    "3x3": convolution((9, 7), (3, 3), channels=80, filters=80, padding=1, groups=5),
    "four channels": convolution((9, 7), (3, 3), channels=48, filters=48, padding=1, groups=12, dtype="bfloat16"),
    "strided": convolution((9, 9), (3, 3), channels=24, filters=48, stride=2, padding=1, groups=3, batch=2),
    "channels first": convolution((9, 7), (3, 3), channels=32, filters=64, padding=1, groups=4, layout="nchw"),
    "one row": convolution(
        (40,), (5,), channels=36, filters=48, padding=2, groups=3, dtype="float32", precision="tf32"
    ),
    "volumes": convolution((4, 5, 6), (3, 3, 3), channels=48, filters=24, dilation=2, padding=2, groups=3),
    "integers": convolution((9, 7), (3, 3), channels=64, filters=64, padding=1, groups=4, dtype="int8"),
    "block": block(convolution((9, 7), (3, 3), channels=64, filters=64, padding=1, groups=4)),
    "products": ops.matmul(16, 16, 16, batch=21, dtype="float16"),
}


def space_of(workload: Workload, **allowed: Any) -> SearchSpace:
    """The schedules of the sketch with dots, on a GPU."""
    return best_spaces.build(workload, H200).restricted("contraction", **allowed)


def together(workload: Workload, count: int) -> Iterator[Schedule]:
    """Schedules with several products in a tile: the first start, and random ones."""
    space, rng = space_of(workload), np.random.default_rng(0)
    (sizes,) = (k.values for k in space.sketches[0].knobs if k.name == "batch")
    part = space_of(workload, batch=[v for v in sizes if isinstance(v, tuple) and v[-1] > 1])
    yield part.seeds()[0]
    yield from (part.sample(rng) for _ in range(count))


def faults(workload: Workload, inputs: list[torch.Tensor], schedules: Iterator[Schedule]) -> list[str]:
    expected = expect(workload, inputs)
    found = []
    for schedule in schedules:
        results = interpreted(workload, schedule.program, [x.double() for x in inputs])
        wrong = (
            error_ratio(torch.from_numpy(np.ascontiguousarray(r)), e) > 1
            for r, e in zip(results, expected, strict=True)
        )
        found += [schedule.one_line] if any(wrong) else []
    return found


@pytest.mark.parametrize("workload", GROUPED.values(), ids=GROUPED)
def test_several_products_of_a_batch_share_a_tile(workload: Workload) -> None:
    schedules = list(together(workload, 3))
    ranks = {
        len(s.dst.axes) for x in schedules for k in x.program.kernels for s in statements(k.body) if isinstance(s, Dot)
    }
    assert ranks == {3}
    assert faults(workload, random_inputs(workload, seed=3), iter(schedules)) == []


@pytest.mark.parametrize(("name", "channels"), [("3x3", 16), ("four channels", 4)])
def test_an_infinity_in_one_group_is_none_in_the_others(name: str, channels: int) -> None:
    """Also where a dot is deeper than a group has channels."""
    workload = GROUPED[name]
    inputs = random_inputs(workload, seed=3)
    inputs[0][..., channels + 1] = torch.inf
    for schedule in together(workload, 3):
        (result,) = interpreted(workload, schedule.program, [x.double() for x in inputs])
        assert np.isfinite(np.delete(result, 1, axis=-2)).all()
        assert not np.isfinite(result[..., 1, :]).any()


@pytest.mark.parametrize(("name", "order"), [("3x3", [1, 0, 2]), ("channels first", [0, 2, 1])])
def test_what_is_stored_has_neighbours_last(name: str, order: list[int]) -> None:
    """Threads then write whole lines: of pixels, groups and filters, or of groups, filters and pixels."""
    schedule = next(together(GROUPED[name], 0))
    text = backends.named("triton").render(schedule.program, "", H200)
    assert f"tl.permute(acc.to(tl.float16), {order})" in text


@pytest.mark.parametrize("name", ["3x3", "four channels"])
def test_triton_kernels_of_several_products_compile_to_matrix_instructions(name: str) -> None:
    schedule = next(together(GROUPED[name], 0))
    artefact = build(schedule.program, schedule.one_line, H200, backends.named("triton"))
    assert artefact.binaries
    assert artefact.facts.spill_bytes == 0


def test_triton_kernels_of_several_products_are_right(triton_interpreter: Any) -> None:
    workload = GROUPED["3x3"]
    inputs, schedule = random_inputs(workload, seed=3), next(together(workload, 0))
    text = backends.named("triton").render(schedule.program, schedule.one_line, H200)
    (result,) = triton_interpreter.computed(text, workload, schedule.program, inputs)
    assert error_ratio(torch.from_numpy(result), expect(workload, inputs)[0]) <= 1


@pytest.mark.parametrize(
    "workload",
    [
        convolution((9, 7), (3, 3), channels=256, filters=256, padding=1, groups=4),
        convolution((9, 7), (3, 3), padding=1),
        ops.matmul(128, 128, 128, batch=4, dtype="float16"),
        convolution((9, 7), (3, 3), channels=80, filters=80, padding=1, groups=5, dtype="float32"),
    ],
    ids=["lines of one group", "no batch", "large products", "no matrix instructions"],
)
def test_other_products_have_a_tile_each(workload: Workload) -> None:
    assert "batch" not in {k.name for k in space_of(workload).sketches[0].knobs}


def test_backends_without_such_dots_have_one_product_in_a_tile() -> None:
    space = spaces.build(GROUPED["3x3"], H200, [backends.named("cuda")]).restricted("contraction")
    assert all(s.knobs["batch"] == (5, 1) for s in (space.sample(np.random.default_rng(n)) for n in range(3)))


def test_older_records_have_one_product_in_a_tile() -> None:
    space = space_of(GROUPED["3x3"], batch=[(5, 1)])
    schedule = space.sample(np.random.default_rng(0))
    older = Schedule(
        schedule.sketch, tuple((k, v) for k, v in schedule.values if k != "batch"), backend=schedule.backend
    )
    assert best_spaces.build(GROUPED["3x3"], H200).bind(older).program == schedule.program
