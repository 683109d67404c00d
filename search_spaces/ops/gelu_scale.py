"""gelu(x) times a constant, on a vector."""

from __future__ import annotations

from search_spaces.workloads.activations import apply_chain, place_of
from search_spaces.workloads.dtypes import check_float
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.workload import Axis, Stage, Tensor, Workload


def gelu_scale(elements: int, dtype: str = "float32", scale: float = 2.0) -> Workload:
    """out[i] = gelu(x[i]) * scale, the exact (erf) gelu; input x of shape (elements,)."""
    check_float(dtype)
    axes = (Axis("i", elements),)
    out, _ = apply_chain(Access("x", (axis_index("i"),)), "gelu_scale", place_of(axes), dtype, scale)
    arguments = (("elements", elements), ("dtype", dtype), ("scale", scale))
    inputs = (Tensor("x", (elements,), dtype),)
    return Workload("gelu_scale", inputs, (Stage("out", axes, out, dtype=dtype),), arguments=arguments)
