"""Chains of pointwise operations on a matrix."""

from __future__ import annotations

from search_spaces.errors import InputError
from search_spaces.workloads.activations import apply_chain, place_of
from search_spaces.workloads.dtypes import check_float
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.workload import Axis, Stage, Tensor, Workload


def pointwise(rows: int, columns: int, chain: str, dtype: str = "float32", scale: float = 2.0) -> Workload:
    """out = chain(x): the links of `chain` ("bias_gelu_scale") applied in order to x of shape (rows, columns).

    Links as in `matmul`'s epilogue; inputs in order: x, then what the chain needs, in its order.

    Raises:
        InputError: the chain is empty or a link is unknown.
    """
    if not chain:
        raise InputError("empty chain; expected links joined by '_', such as 'bias_gelu_scale'")
    check_float(dtype)
    axes = (Axis("r", rows), Axis("c", columns))
    x = Access("x", (axis_index("r"), axis_index("c")))
    out, extra = apply_chain(x, chain, place_of(axes), dtype, scale)
    used = scale if "scale" in chain.split("_") else None
    arguments = (("rows", rows), ("columns", columns), ("chain", chain), ("dtype", dtype), ("scale", used))
    inputs = (Tensor("x", (rows, columns), dtype), *extra)
    return Workload("pointwise", inputs, (Stage("out", axes, out, dtype=dtype),), arguments=arguments)
