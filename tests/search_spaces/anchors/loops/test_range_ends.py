"""Loops over ranges whose ends are data: which iterations they leave out, for any comparison and any value."""

from __future__ import annotations

import numpy as np
import pytest

from best_spaces import build
from scheduled_tensors import interpreted
from search_spaces import Axis, Reduction, Schedule, Stage, Tensor, Workload, target_named
from search_spaces.programs.interpreting.interpreter import OneProgram
from search_spaces.programs.statements import For, Let, statements
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Expression, Literal, Position, Segment, call
from segmented_workloads import at, ragged_product, segmented_attention, whole

H200 = target_named("h200")
ROWS = 300
# The least and the largest integers, the first and the last positions, and those beside them.
EXTREMES = [-(2**63), -1, 0, 1, 64, 127, ROWS - 1, ROWS, ROWS + 1, 2**63 - 1]


def position() -> Expression:
    return whole(Position(axis_index("t")))


def folded(condition: Expression, inputs: tuple[Tensor, ...]) -> Workload:
    """out[g, d] = sum over t of x[t, d] where the condition holds."""
    taken = call("where", condition, at("x", "t", "d"), Literal(0.0))
    axes, over = (Axis("g", len(EXTREMES)), Axis("d", 16)), Axis("t", ROWS)
    tensors = (Tensor("x", (ROWS, 16), "float32"), *inputs)
    return Workload("folded", tensors, (Stage("out", axes, taken, Reduction("sum", (over,))),))


def streamed(workload: Workload, seed: int) -> Schedule:
    """A schedule with several iterations that its loop may leave out."""
    space, rng = build(workload, H200), np.random.default_rng(seed)
    return next(s for s in (space.sample(rng) for _ in range(200)) if any(x.useful for x in loops(s)))


def loops(schedule: Schedule) -> list[For]:
    return [s for k in schedule.program.kernels for s in statements(k.body) if isinstance(s, For)]


@pytest.mark.parametrize("operator", ["lt", "le", "eq"])
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("denied", [False, True])
def test_any_comparison_with_any_integer_is_exact(operator: str, flipped: bool, denied: bool) -> None:
    sides = (position(), whole(at("end", "g")))
    condition = call(operator, *(sides[::-1] if flipped else sides))
    condition = call("eq", condition, Literal(0.0)) if denied else condition
    workload = folded(condition, (Tensor("end", (len(EXTREMES),), "int64"),))
    x, end = np.arange(ROWS * 16, dtype=np.float32).reshape(ROWS, 16), np.array(EXTREMES)
    pair = (np.arange(ROWS)[None, :], end[:, None])
    compared = {"lt": np.less, "le": np.less_equal, "eq": np.equal}[operator](*(pair[::-1] if flipped else pair))
    expected = (compared != denied).astype(np.float32) @ x
    if operator == "eq" and denied:
        # All positions but one are no range.
        assert not any(isinstance(s, Let) for k in build(workload, H200).seeds()[0].program.kernels for s in k.body)
        return
    (got,) = interpreted(workload, streamed(workload, 0).program, [x, end])
    np.testing.assert_array_equal(got, expected)


def test_the_positions_of_a_segment_are_a_range_in_whatever_order_its_ends_are() -> None:
    count = len(EXTREMES)
    condition = call("eq", Segment("ends", axis_index("t"), 7), whole(at("number", "g")))
    workload = folded(condition, (Tensor("number", (count,), "int64"), Tensor("ends", (7,), "int64")))
    x, rng = rng_numbers(), np.random.default_rng(0)
    number = np.array([*range(8), -1, 9])
    for ends in (np.sort(rng.integers(0, ROWS, 7)), rng.integers(0, ROWS, 7)):
        (got,) = interpreted(workload, streamed(workload, 1).program, [x, number, ends])
        segment = np.array([bisected(ends, t) for t in range(ROWS)])
        np.testing.assert_array_equal(got, (number[:, None] == segment).astype(np.float32) @ x)


def rng_numbers() -> np.ndarray:
    return np.random.default_rng(1).integers(-8, 9, (ROWS, 16)).astype(np.float32)


def bisected(ends: np.ndarray, t: int) -> int:
    first, end = 0, len(ends)
    while first < end:
        middle = (first + end) // 2
        first, end = (middle + 1, end) if ends[middle] <= t else (first, middle)
    return first


@pytest.mark.parametrize("workload", [ragged_product(640, 32, 32, 4, "float16"), segmented_attention(1, 640, 16, 4)])
def test_iterations_outside_of_a_segment_are_not_made(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four segments of 160 positions: as many iterations as a segment has, and one more at most."""
    made: list[int] = []
    real = OneProgram.is_made

    def counted(self: OneProgram, loop: For, iteration: int) -> bool:
        found = real(self, loop, iteration)
        made.append(found and bool(loop.useful))
        return found

    space, rng = build(workload, H200), np.random.default_rng(0)
    tried = (s for s in (space.sample(rng) for _ in range(500)) if "split=1 " in s.one_line)
    schedule = next(s for s in tried if any(x.useful and x.extent >= 10 for x in loops(s)))
    monkeypatch.setattr(OneProgram, "is_made", counted)
    generator = np.random.default_rng(0)
    offsets = np.arange(5, dtype=np.int32) * 160
    held = {"float16": np.float16, "bfloat16": np.float32}
    given = [
        offsets[: t.elements] if t.dtype == "int32" else generator.standard_normal(t.shape).astype(held[t.dtype])
        for t in workload.inputs
    ]
    interpreted(workload, schedule.program, given)
    programs = sum(k.grid.programs for k in schedule.program.kernels)
    # A tile of rows may lie in two segments, and every end of a segment in a tile.
    widest = max(x.extent for x in loops(schedule) if x.useful)
    assert 0 < sum(made) <= programs * 2 * (widest // 4 + 2)
    assert sum(made) < len(made) * 0.6
