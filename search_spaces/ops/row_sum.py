"""The sum of every row."""

from __future__ import annotations

from search_spaces.workloads.dtypes import check_float
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.workload import Axis, Reduction, Stage, Tensor, Workload


def row_sum(rows: int, columns: int, dtype: str = "float32") -> Workload:
    """out[r] = sum over c of x[r, c], accumulated in float32; input x of shape (rows, columns)."""
    check_float(dtype)
    r, c = Axis("r", rows), Axis("c", columns)
    x = Access("x", (axis_index("r"), axis_index("c")))
    stages = (Stage("out", (r,), x, Reduction("sum", (c,)), dtype=dtype),)
    arguments = (("rows", rows), ("columns", columns), ("dtype", dtype))
    return Workload("row_sum", (Tensor("x", (rows, columns), dtype),), stages, arguments=arguments)
