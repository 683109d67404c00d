"""Products whose reduced axis data cuts into segments: which workloads are some, and between which bounds they sum."""

from __future__ import annotations

from dataclasses import replace

from search_spaces import Workload, ops
from search_spaces.structure.segmented_sums import segmented_sum
from search_spaces.workloads.expressions.expression import Apply, Literal, mul
from search_spaces.workloads.expressions.walking import accesses
from segmented_workloads import ragged_product


def product() -> Workload:
    return ops.grouped_matmul(5, 16, 24, 70, ragged="k")


def test_operands_that_are_zero_outside_of_a_segment_are_multiplied_within_its_bounds() -> None:
    found = segmented_sum(product())
    assert found is not None
    assert found.form.cuts == ("k", 5)
    assert [a.tensor for a in found.form.tensors] == ["a", "b"]
    (begin,), (end,) = (list(accesses(e)) for e in (found.begin, found.end))
    assert (begin.index[0].offset, begin.fill, end.index[0].offset) == (-1, 0, 0)


def test_conditions_of_one_operand_leave_the_infinities_of_the_other() -> None:
    assert segmented_sum(ragged_product()) is None


def test_operands_that_are_something_else_outside_are_no_such_product() -> None:
    (stage,) = product().stages
    assert isinstance(stage.expression, Apply)
    a, b = stage.expression.arguments
    assert isinstance(a, Apply)
    other = mul(Apply("where", (*a.arguments[:2], Literal(1.0))), b)
    assert segmented_sum(replace(product(), stages=(replace(stage, expression=other),), arguments=())) is None
    assert segmented_sum(ops.matmul(16, 24, 70)) is None
