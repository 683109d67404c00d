"""Which workloads the sketch rules match: what they could not print is refused before anything is tried."""

from __future__ import annotations

import pytest

from autosched.backends import spaces
from search_spaces import Axis, EmptySearchSpaceError, Reduction, Stage, Target, Tensor, Workload
from search_spaces.devices.target import GPUS, cpu
from search_spaces.workloads import expression as ex
from search_spaces.workloads.expression import Access, axis_index

TARGETS = (
    cpu("Imaginary CPU", lanes=8, threads=1, l1_bytes=32 * 1024, l2_bytes=2**20, fp32_flops=1e11),
    GPUS["h200"],
)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_reductions_over_different_axes_are_refused_with_the_rules_tried(target: Target) -> None:
    r, c = Axis("r", 64), Axis("c", 50)
    x = Access("x", (axis_index("r"), axis_index("c")))
    both = (
        Stage("rows", (r,), x, Reduction("sum", (c,))),
        Stage("out", (c,), ex.mul(x, Access("rows", (axis_index("r"),))), Reduction("sum", (r,))),
    )
    workload = Workload("both_sums", (Tensor("x", (64, 50), "float32"),), both)
    with pytest.raises(EmptySearchSpaceError, match=r"no sketch rule matches both_sums .*row_whole"):
        spaces.build(workload, target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_rows_may_be_indexed_in_any_order_as_long_as_columns_come_last(target: Target) -> None:
    a, b, c = Axis("a", 4), Axis("b", 6), Axis("c", 50)
    x = Access("x", (axis_index("b"), axis_index("a"), axis_index("c")))
    row_sum = Workload(
        "row_sum_of_swapped", (Tensor("x", (6, 4, 50), "float32"),), (Stage("out", (a, b), x, Reduction("sum", (c,))),)
    )
    assert spaces.build(row_sum, target).size > 0
