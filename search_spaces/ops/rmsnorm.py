"""Root-mean-square normalisation over the last axis, with weight."""

from __future__ import annotations

from search_spaces.workloads.dtypes import check_float
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Literal
from search_spaces.workloads.workload import Axis, Reduction, Stage, Tensor, Workload


def rmsnorm(rows: int, columns: int, dtype: str = "float32", eps: float = 1e-6) -> Workload:
    """out = x / sqrt(mean of squares + eps) * weight (Zhang and Sennrich, 2019).

    Inputs: x (rows, columns), weight (columns,).
    """
    check_float(dtype)
    inputs = (Tensor("x", (rows, columns), dtype), Tensor("weight", (columns,), dtype))
    r, c = Axis("r", rows), Axis("c", columns)
    at, row, column = (axis_index("r"), axis_index("c")), (axis_index("r"),), (axis_index("c"),)
    x = Access("x", at)
    mean = ex.mul(Access("squares", row), Literal(1.0 / columns))
    stages = (
        Stage("squares", (r,), ex.mul(x, x), Reduction("sum", (c,))),
        Stage("inverse", (r,), ex.call("rsqrt", ex.add(mean, Literal(eps)))),
        Stage("out", (r, c), ex.mul(ex.mul(x, Access("inverse", row)), Access("weight", column)), dtype=dtype),
    )
    arguments = (("rows", rows), ("columns", columns), ("dtype", dtype), ("eps", eps))
    return Workload("rmsnorm", inputs, stages, arguments=arguments)
