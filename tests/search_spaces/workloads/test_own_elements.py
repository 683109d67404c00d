"""Proofs that outputs may be stored where an input lies."""

from __future__ import annotations

import pytest

from search_spaces import Axis, Stage, Tensor, Workload
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Gather, Integer, Literal, Position
from search_spaces.workloads.own_elements import uses_only_own_elements

H, P = axis_index("h"), axis_index("p")
OLD = Access("old", (H, P))
# The second row, as a tensor of its own.
SECOND = Access("second", (P,))
NEW = Access("new", (P,))


def row(number: float) -> Expression:
    return ex.call("eq", Position(H), Literal(number))


def is_proved(expression: Expression, begins: dict[str, int] | None = None, dtype: str = "float32") -> bool:
    inputs = (
        Tensor("old", (2, 8), "float32"),
        Tensor("second", (8,), "float32"),
        Tensor("new", (8,), "float32"),
        Tensor("at", (), "int64"),
    )
    out = Stage("out", (Axis("h", 2), Axis("p", 8)), expression, dtype=dtype)
    return uses_only_own_elements(Workload("test", inputs, (out,)), "out", begins or {"old": 0, "second": 8})


@pytest.mark.parametrize(
    "expression",
    [
        ex.call("exp", OLD),
        ex.call("where", ex.call("eq", Position(P), Access("at", ())), NEW, OLD),
        ex.call("where", row(1), ex.add(SECOND, NEW), OLD),
        ex.call("where", ex.call("eq", Integer(1), ex.call("to_integer", Position(H))), SECOND, OLD),
        ex.call("where", ex.mul(ex.call("lt", Position(P), Literal(3.0)), row(1)), SECOND, OLD),
        ex.call("where", row(0), ex.call("where", row(1), Access("old", (Affine(), P)), OLD), NEW),
        ex.call("where", ex.call("eq", Literal(1.0), Literal(0.0)), SECOND, NEW),
        Gather("new", (ex.call("to_integer", Access("at", ())),)),
    ],
)
def test_elements_that_are_used_where_they_are_stored_are_recognised(expression: Expression) -> None:
    assert is_proved(expression)


@pytest.mark.parametrize(
    "expression",
    [
        ex.add(SECOND, OLD),
        ex.call("where", row(0), SECOND, OLD),
        ex.call("where", row(1), NEW, SECOND),
        ex.call("where", ex.call("eq", SECOND, Literal(0.0)), NEW, OLD),
        ex.call("where", row(1), SECOND, Access("old", (H, Affine(offset=3)))),
        ex.call("where", ex.add(row(0), row(1)), SECOND, OLD),
        Gather("old", (H, ex.call("to_integer", Access("at", ())))),
    ],
)
def test_elements_that_are_used_elsewhere_are_not(expression: Expression) -> None:
    assert not is_proved(expression)


def test_the_memory_of_an_input_is_known_by_its_first_element_and_type() -> None:
    expression = ex.call("where", row(1), SECOND, OLD)
    assert not is_proved(expression, {"old": 0, "second": 0})
    assert is_proved(expression, {"old": 0})
    assert not is_proved(OLD, dtype="float16")


@pytest.mark.parametrize(
    ("expression", "other", "proved"),
    [
        # Every element may be computed once for each index of the other output's third axis.
        (ex.add(OLD, NEW), Access("new", (P,)), False),
        (ex.call("where", ex.call("eq", Position(P), Access("at", ())), NEW, OLD), Access("new", (P,)), True),
        (ex.call("where", ex.call("lt", OLD, Literal(0.0)), NEW, OLD), Access("new", (P,)), False),
        # The other output's elements may be read after this one is stored.
        (ex.call("where", row(1), NEW, OLD), Access("out", (H, Affine(offset=0))), False),
        (ex.call("where", row(1), NEW, OLD), OLD, False),
    ],
)
def test_other_outputs_may_neither_read_them_nor_repeat_them(
    expression: Expression, other: Expression, proved: bool
) -> None:
    inputs = (Tensor("old", (2, 8), "float32"), Tensor("new", (8,), "float32"), Tensor("at", (), "int64"))
    axes = (Axis("h", 2), Axis("p", 8))
    stages = (Stage("out", axes, expression), Stage("more", (*axes, Axis("r", 4)), other))
    workload = Workload("test", inputs, stages, output_names=("out", "more"))
    assert uses_only_own_elements(workload, "out", {"old": 0}) is proved


def test_a_stage_between_may_read_them() -> None:
    inputs = (Tensor("old", (2, 8), "float32"), Tensor("new", (8,), "float32"))
    axes = (Axis("h", 2), Axis("p", 8))
    for read, proved in ((Access("s", (H, P)), True), (Access("s", (H, Affine(offset=2))), False)):
        stages = (Stage("s", axes, ex.mul(OLD, NEW)), Stage("out", axes, ex.add(read, NEW)))
        assert uses_only_own_elements(Workload("test", inputs, stages), "out", {"old": 0}) is proved
