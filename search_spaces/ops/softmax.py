"""Softmax over the last axis, written as its parts."""

from __future__ import annotations

from search_spaces.workloads.dtypes import check_float
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.workload import Axis, Reduction, Stage, Tensor, Workload


def softmax(rows: int, columns: int, dtype: str = "float32") -> Workload:
    """out[r, c] = exp(x[r, c] - max over c) / sum over c of the same; input x of shape (rows, columns)."""
    check_float(dtype)
    r, c = Axis("r", rows), Axis("c", columns)
    at, row = (axis_index("r"), axis_index("c")), (axis_index("r"),)
    x = Access("x", at)
    over_columns = Reduction("sum", (c,))
    stages = (
        Stage("top", (r,), x, Reduction("max", (c,))),
        Stage("e", (r, c), ex.call("exp", ex.sub(x, Access("top", row)))),
        Stage("total", (r,), Access("e", at), over_columns),
        Stage("out", (r, c), ex.div(Access("e", at), Access("total", row)), dtype=dtype),
    )
    arguments = (("rows", rows), ("columns", columns), ("dtype", dtype))
    return Workload("softmax", (Tensor("x", (rows, columns), dtype),), stages, arguments=arguments)
