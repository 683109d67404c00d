"""Segments as expressions: equal keys, what is refused, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from search_spaces import Axis, InputError, Stage, Tensor, Workload
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Integer,
    Literal,
    Position,
    Segment,
    add,
    call,
)
from search_spaces.workloads.expressions.walking import flops, reindexed, rewritten
from segmented_workloads import SEGMENTED, jagged_fold, jagged_scale, ragged_product


def numbered(expression: Expression, *inputs: Tensor) -> Workload:
    return Workload("numbered", inputs, (Stage("out", (Axis("i", 9),), expression, None, "int64"),))


@pytest.mark.parametrize("made", SEGMENTED)
def test_a_workload_of_segments_is_the_same_from_json_and_as_scheduled(made: Callable[[], Workload]) -> None:
    workload = made()
    assert Workload.from_json(workload.to_json()) == workload
    assert workload.scheduled.key == workload.key
    # It has dimensions of its own: names are those of the form.
    assert workload.scheduled.inputs[0].name == "in0"


def test_names_and_order_do_not_matter_to_the_key() -> None:
    workload = jagged_scale()

    def renamed(e: Expression) -> Expression | None:
        return Segment("cuts", e.position, e.size) if isinstance(e, Segment) else None

    (stage,) = workload.stages
    other = replace(
        workload,
        inputs=tuple(replace(t, name="cuts") if t.name == "ends" else t for t in reversed(workload.inputs)),
        stages=(replace(stage, expression=rewritten(stage.expression, renamed)),),
    )
    assert other.key == workload.key
    assert jagged_scale(dtype="int64").key != workload.key


def test_positions_tell_segments_apart() -> None:
    ends = Tensor("ends", (5,), "int32")
    here, behind = (numbered(Segment("ends", Affine.of(("i", 1), offset=n), 5), ends) for n in (0, 1))
    assert here.key != behind.key
    moved = reindexed(here.stages[0].expression, lambda form: form + Affine(offset=1))
    assert moved == behind.stages[0].expression


def test_a_position_that_is_counted_is_an_affine_form() -> None:
    i = axis_index("i")
    assert Segment("ends", call("to_integer", Position(i)), 5) == Segment("ends", i, 5)
    assert Segment("ends", Integer(3), 5) == Segment("ends", Affine(offset=3), 5)


@pytest.mark.parametrize(
    ("ends", "position"),
    [
        (Tensor("ends", (4,), "int32"), axis_index("i")),
        (Tensor("ends", (5, 1), "int32"), axis_index("i")),
        (Tensor("ends", (5,), "float32"), axis_index("i")),
        (Tensor("ends", (5,), "int32", (2,)), axis_index("i")),
        (Tensor("others", (5,), "int32"), axis_index("i")),
        (Tensor("ends", (5,), "int32"), axis_index("j")),
        (Tensor("ends", (5,), "int32"), Access("ends", (Affine(),))),
    ],
)
def test_ends_are_a_dense_input_of_integers_and_positions_integers(ends: Tensor, position: Affine | Expression) -> None:
    with pytest.raises(InputError):
        numbered(Segment("ends", position, 5), ends)


def test_of_a_cut_axis_each_position_counts_once() -> None:
    products, folds = ragged_product(70, 32, 24, 3), jagged_fold(70, 24, 6)
    per_element = folds.stages[0].flops // (70 * 24)
    assert products.flops < 3 * 2 * 70 * 32 * 24
    assert products.flops >= 2 * 70 * 32 * 24
    assert folds.flops == per_element * 70 * 24
    assert jagged_fold(70, 24, 60).flops == folds.flops
    # Without an end, every segment may have all positions.
    (stage,) = folds.stages
    begun = rewritten(stage.expression, lambda e: Literal(1.0) if isinstance(e, Apply) and e.operator == "lt" else None)
    assert replace(stage, expression=begun).flops > 3 * folds.flops


def test_windows_cut_no_axis() -> None:
    (stage,) = jagged_fold(70, 24, 6).stages

    def around(change: Callable[[Access], Expression]) -> Stage:
        def bound(e: Expression) -> Expression | None:
            return change(e) if isinstance(e, Access) and e.tensor == "offsets" else None

        return replace(stage, expression=rewritten(stage.expression, bound))

    def last(e: Access) -> Affine:
        return e.index[0]

    begin = Access("offsets", (axis_index("g"),))
    windows = (
        around(lambda e: Literal(3.0)),
        around(lambda e: Position(last(e))),
        around(lambda e: begin if last(e) == axis_index("g") else add(begin, Literal(9.0))),
        around(lambda e: begin if last(e) == axis_index("g") else Access("others", e.index)),
    )
    every = [s.points * (flops(s.expression) + 1) for s in (stage, *windows)]
    assert [s.flops for s in windows] == every[1:]
    assert stage.flops < every[0]


def test_all_ends_are_read() -> None:
    workload = numbered(Segment("ends", axis_index("i"), 5000), Tensor("ends", (5000,), "int32"))
    assert workload.min_bytes == 5000 * 4 + 9 * 8
