"""Segments that data determines, on every backend: whatever the data is, what PyTorch computes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.backends.triton.backend import TritonBackend
from autosched.checking.random_segments import drawn
from autosched.checking.reference import evaluate
from best_spaces import build
from schedule_checks import faults
from scheduled_tensors import given_back, interpreted, taken_by_name
from search_spaces import Axis, Schedule, Stage, Tensor, Workload, target_named
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Segment, call
from segmented_workloads import (
    SEGMENTED,
    grouped_product,
    jagged_fold,
    jagged_scale,
    ragged_product,
    segmented_attention,
)

TRITON, H200 = TritonBackend(), target_named("h200")
# Products of float16 are exact in float32; sums of at most 70 differ in order only, and are rounded to float16 once.
TOLERANCE = 2e-3

# Cuts of 40 to 70 positions: in order or not, empty, with everything in one, beyond the end and below 0.
cuts = st.one_of(
    st.lists(st.integers(0, 75), min_size=8, max_size=8).map(sorted),
    st.lists(st.sampled_from([-(2**31), -3, 0, 17, 40, 71, 2**31 - 1]), min_size=8, max_size=8),
)


def with_cuts(workload: Workload, cuts: list[int], seed: int = 0) -> list[torch.Tensor]:
    """Inputs of a workload whose integers are the first of the cuts; other numbers are exact in float16."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.tensor(cuts[: t.elements], dtype=torch.int32)
        if t.dtype == "int32"
        else torch.randint(-8, 9, t.shape, generator=generator).to(getattr(torch, t.dtype)) / 8
        for t in workload.inputs
    ]


WORKLOADS = {
    "jagged_scale": jagged_scale(),
    "jagged_sum": jagged_fold(),
    "jagged_max": jagged_fold(operator="max"),
    "grouped_product": grouped_product(dtype="float16"),
    "ragged_product": ragged_product(dtype="float16"),
    "segmented_attention": segmented_attention(dtype="float16"),
}


def in_order(name: str, schedule: Schedule) -> bool:
    """True if a schedule relies on ends in order: tiles in one segment, and attention, which compares with its ends."""
    return schedule.sketch == "segmented_contraction" or name in ("segmented_attention", "jagged_scale")


@pytest.mark.parametrize("name", WORKLOADS)
@given(cuts=cuts, seed=st.integers(0, 2**20))
@settings(max_examples=5, deadline=None)
def test_every_schedule_computes_what_pytorch_does_whatever_the_cuts(name: str, cuts: list[int], seed: int) -> None:
    workload = WORKLOADS[name]
    schedule = build(workload, H200).sample(np.random.default_rng(seed))
    inputs = with_cuts(workload, sorted(cuts) if in_order(name, schedule) else cuts, seed)
    (expected,) = evaluate(workload, inputs)
    with np.errstate(invalid="ignore"):
        (got,) = interpreted(workload, schedule.program, [x.numpy() for x in inputs])
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore:invalid value")
def test_triton_computes_the_same(triton_interpreter, name: str, seed: int) -> None:
    workload = WORKLOADS[name]
    space, rng = build(workload, H200), np.random.default_rng(seed)
    # Triton's interpreter has no atomic operations by descriptor.
    schedule = next(s for s in (space.sample(rng) for _ in range(99)) if "partials=atomic" not in s.one_line)
    ordered = in_order(name, schedule) or not seed
    inputs = with_cuts(workload, [0, 9, 9, 30, 48, 60, 61, 70] if ordered else [-3, 0, 17, 17, 40, 90, 2, 2**31 - 1])
    (expected,) = evaluate(workload, inputs)
    program = schedule.program
    source, given = TRITON.render(program, "", H200), taken_by_name(workload, program, [x.numpy() for x in inputs])
    (got,) = given_back(workload, program, triton_interpreter.run_all(source, program, given))
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("made", SEGMENTED)
@pytest.mark.parametrize("seed", range(4))
def test_a_cpu_writes_nothing_else_for_any_histogram(made: Callable[[], Workload], seed: int) -> None:
    assert faults(made(), 1, seed) == []


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8"])
def test_positions_that_are_data_are_found_as_by_pytorch(dtype: str) -> None:
    position = call("to_integer", Access("at", (axis_index("i"),)))
    inputs = (Tensor("at", (70,), dtype), Tensor("ends", (13,), dtype))
    stage = Stage("out", (Axis("i", 70),), Segment("ends", position, 13), None, "int64")
    workload = Workload("found", inputs, (stage,))
    generator, info = torch.Generator().manual_seed(0), torch.iinfo(getattr(torch, dtype))
    ends = torch.randint(-20, 20, (13,), generator=generator).clamp(info.min, info.max).to(getattr(torch, dtype))
    at = torch.cat([torch.arange(68) - 30, torch.tensor([info.min, info.max])]).clamp(info.min, info.max).to(ends.dtype)
    for given_ends in (ends, ends.sort().values, torch.full_like(ends, info.max)):
        for schedule in build(workload, H200).seeds()[:1]:
            (got,) = interpreted(workload, schedule.program, [at.numpy(), given_ends.numpy()])
            expected = torch.bucketize(at, given_ends, right=True)
            assert got.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(8))
def test_random_cuts_divide_all_positions(seed: int) -> None:
    for count in (1, 2, 7):
        ends = drawn(count, 100, seed)
        assert len(ends) == count
        assert ends[-1] == 100
        assert (ends.diff() >= 0).all()
        assert ends[0] >= 0


def test_random_cuts_are_of_several_kinds() -> None:
    kinds = [drawn(8, 800, seed).diff(prepend=torch.tensor([0])) for seed in range(4)]
    assert (kinds[2] == 800).sum() == 1
    assert (kinds[3] == 100).all()
    assert kinds[1].max() > kinds[0].max()
