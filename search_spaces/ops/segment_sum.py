"""Sums of the rows of each segment: of a jagged tensor, or of sorted rows by key."""

from __future__ import annotations

from search_spaces.ops.grouped_matmul import check_bounds
from search_spaces.workloads.dtypes import check_float
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.segments import where_in_segment
from search_spaces.workloads.workload import Axis, Reduction, Stage, Tensor, Workload


def segment_sum(
    rows: int,
    columns: int,
    segments: int,
    dtype: str = "float32",
    index_dtype: str = "int64",
    histogram: str = "",
) -> Workload:
    """out[g, c] = sum over t of x[t, c] with offsets[g] <= t < offsets[g + 1], in float32.

    Inputs x of shape (rows, columns) and offsets of shape (segments + 1,), which are sorted; rows of no segment are
    left out. `histogram`: as of `grouped_matmul` that cuts k.

    Raises:
        InputError: a size or type is not allowed.
    """
    check_float(dtype)
    check_bounds("segments", segments, index_dtype)
    g, t, c = Axis("g", segments), Axis("t", rows), Axis("c", columns)
    x = where_in_segment("offsets", "g", "t", Access("x", (axis_index("t"), axis_index("c"))))
    return Workload(
        name="segment_sum",
        inputs=(
            Tensor("x", (rows, columns), dtype),
            Tensor("offsets", (segments + 1,), index_dtype, histogram=histogram),
        ),
        stages=(Stage("out", (g, c), x, Reduction("sum", (t,)), dtype=dtype),),
        arguments=(
            ("rows", rows),
            ("columns", columns),
            ("segments", segments),
            ("dtype", dtype),
            ("index_dtype", index_dtype),
            ("histogram", histogram),
        ),
    )
