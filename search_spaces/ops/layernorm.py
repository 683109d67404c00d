"""Layer normalisation over the last axis, with weight and bias."""

from __future__ import annotations

from search_spaces.workloads.dtypes import check_float
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Literal
from search_spaces.workloads.workload import Axis, Reduction, Stage, Tensor, Workload


def layernorm(rows: int, columns: int, dtype: str = "float32", eps: float = 1e-5) -> Workload:
    """out = (x - mean) / sqrt(variance + eps) * weight + bias (Ba et al., 2016), two-pass variance.

    Inputs: x (rows, columns), weight (columns,), bias (columns,).
    """
    check_float(dtype)
    inputs = (
        Tensor("x", (rows, columns), dtype),
        Tensor("weight", (columns,), dtype),
        Tensor("bias", (columns,), dtype),
    )
    r, c = Axis("r", rows), Axis("c", columns)
    at, row, column = (axis_index("r"), axis_index("c")), (axis_index("r"),), (axis_index("c"),)
    over_columns = Reduction("sum", (c,))
    per_column = Literal(1.0 / columns)
    centred = Access("centred", at)
    variance = ex.mul(Access("squares", row), per_column)
    scaled = ex.mul(ex.mul(centred, Access("inverse", row)), Access("weight", column))
    stages = (
        Stage("total", (r,), Access("x", at), over_columns),
        Stage("mean", (r,), ex.mul(Access("total", row), per_column)),
        Stage("centred", (r, c), ex.sub(Access("x", at), Access("mean", row))),
        Stage("squares", (r,), ex.mul(centred, centred), over_columns),
        Stage("inverse", (r,), ex.call("rsqrt", ex.add(variance, Literal(eps)))),
        Stage("out", (r, c), ex.add(scaled, Access("bias", column)), dtype=dtype),
    )
    arguments = (("rows", rows), ("columns", columns), ("dtype", dtype), ("eps", eps))
    return Workload("layernorm", inputs, stages, arguments=arguments)
