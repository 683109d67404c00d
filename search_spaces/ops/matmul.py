"""Matrix products, batched or not, in any layout, with an epilogue."""

from __future__ import annotations

from search_spaces import expression as ex
from search_spaces.activations import apply_chain
from search_spaces.dtypes import DTYPES
from search_spaces.errors import InputError, unknown_name
from search_spaces.expression import Access, axis_index
from search_spaces.workload import Axis, Reduction, Stage, Tensor, Workload


def matmul(
    m: int,
    n: int,
    k: int,
    dtype: str = "float32",
    layout: str = "nn",
    batch: int | None = None,
    epilogue: str = "",
    scale: float = 2.0,
) -> Workload:
    """out[m, n] = epilogue(A[m, k] @ B[k, n]), accumulated in float32 and rounded once.

    `dtype`: of operands and output; "tf32" is float32 with dots in tf32. `layout`: how A and B are stored, "n" as
    written above, "t" transposed: "nt" takes B as [n, k], which is torch.nn.functional.linear. `batch`: a leading
    dimension of A, B and out. `epilogue`: links joined by "_", of bias, relu, gelu, gelutanh, silu, residual, gate,
    scale, applied in that order. Inputs in order: a, b, then what the epilogue needs, in its order.

    Raises:
        InputError: a size, dtype, layout or epilogue is not allowed.
    """
    if layout not in ("nn", "nt", "tn", "tt"):
        raise InputError(f"unknown layout {layout!r} (allowed: nn, nt, tn, tt)")
    if dtype not in (*DTYPES, "tf32"):
        raise unknown_name("dtype", str(dtype), (*DTYPES, "tf32"))
    element = "float32" if dtype == "tf32" else dtype
    outer = () if batch is None else (Axis("b", batch),)
    axis_m, axis_n, axis_k = Axis("m", m), Axis("n", n), Axis("k", k)
    a_axes = (*outer, axis_k, axis_m) if layout[0] == "t" else (*outer, axis_m, axis_k)
    b_axes = (*outer, axis_n, axis_k) if layout[1] == "t" else (*outer, axis_k, axis_n)
    a, b = _tensor("a", a_axes, element), _tensor("b", b_axes, element)
    product = ex.mul(_access("a", a_axes), _access("b", b_axes))
    axes = (*outer, axis_m, axis_n)
    out, extra = apply_chain(_access("acc", axes), epilogue, axes, element, scale)
    reduction = Reduction("sum", (axis_k,))
    stages: tuple[Stage, ...]
    if epilogue:
        stages = (Stage("acc", axes, product, reduction), Stage("out", axes, out, dtype=element))
    else:
        stages = (Stage("out", axes, product, reduction, dtype=element),)
    return Workload(
        name="matmul",
        inputs=(a, b, *extra),
        stages=stages,
        precision="tf32" if dtype == "tf32" else "ieee",
        arguments=(
            ("m", m),
            ("n", n),
            ("k", k),
            ("dtype", dtype),
            ("layout", layout),
            ("batch", batch),
            ("epilogue", epilogue),
            ("scale", scale if "scale" in epilogue.split("_") else None),
        ),
    )


def _tensor(name: str, axes: tuple[Axis, ...], dtype: str) -> Tensor:
    return Tensor(name, tuple(a.extent for a in axes), dtype)


def _access(name: str, axes: tuple[Axis, ...]) -> Access:
    return Access(name, tuple(axis_index(a.name) for a in axes))
