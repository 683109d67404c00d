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
