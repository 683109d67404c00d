"""Matrix products, batched or not, in any layout, with an epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_spaces.errors import InputError, unknown_name
from search_spaces.workloads.activations import apply_chain, place_of
from search_spaces.workloads.dtypes import FLOAT8, FLOATS, accumulator_of, is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.workload import Axis, Reduction, Scalar, Stage, Tensor, Workload, check_shape

# Layouts of a and b: "n" as written, "t" transposed.
LAYOUTS = ("nn", "nt", "tn", "tt")
# Operands that may be said to have the same values at every call.
CONSTANTS = ("", "a", "b")
# The wider integers are for sums and indices: tensor cores multiply bytes.
OPERANDS = (*FLOATS, "int8", "tf32")


def matmul(
    m: int,
    n: int,
    k: int,
    dtype: str = "float32",
    layout: str = "nn",
    batch: int | None = None,
    epilogue: str = "",
    scale: float = 2.0,
    out_dtype: str | None = None,
    fast_accum: bool = False,
    lda: int | None = None,
    ldb: int | None = None,
    ldc: int | None = None,
    stride_a: int | None = None,
    stride_b: int | None = None,
    stride_c: int | None = None,
    constant: str = "",
) -> Workload:
    """out[m, n] = epilogue(A[m, k] @ B[k, n]), accumulated in float32 (int8 in int32) and rounded once.

    `dtype`: of the operands; "tf32" is float32 with dots in tf32. `out_dtype`: of the output, by default that of the
    operands, bfloat16 for 8-bit floats and int32 for int8; with an epilogue it must be given for int8. `layout`: how A
    and B are stored, "n" as written above, "t" transposed: "nt" takes B as [n, k], which is torch.nn.functional.linear.
    `batch`: a leading dimension of A, B and out.

    `epilogue`: links joined by "_", of bias, bn (a vector multiplied, another added), relu, gelu, gelutanh, silu,
    hardswish, residual, gate, scale, rowscale (a float32 vector along m) and colscale (one along n), applied in that
    order in float32. Inputs in order: a, b, then what the epilogue needs, in its order, of the output's type (bfloat16
    where that is an 8-bit float).

    `fast_accum`, for 8-bit floats: sums may stay in the tensor core's accumulator, which on Hopper keeps about 14 bits,
    as `torch._scaled_mm(use_fast_accum=True)` has it; otherwise they are added to float32 every 128 products at least.

    `lda`, `ldb`, `ldc`: elements from one stored row of A, B and out to the next; `stride_a`, `stride_b`, `stride_c`:
    from one matrix of a batch to the next, 0 for one operand shared by all (cublasGemmStridedBatchedEx, with rows for
    its columns). By default everything is dense.

    `constant`: "a" or "b", an operand whose values are the same at every call, as weights are: a kernel may store it in
    another layout once.

    Raises:
        InputError: a size, type, layout, stride or epilogue is not allowed.
    """
    _check({"m": m, "n": n, "k": k} | ({} if batch is None else {"batch": batch}), dtype, layout, fast_accum)
    if constant not in CONSTANTS:
        raise InputError(f"unknown constant operand {constant!r} (allowed: {', '.join(filter(None, CONSTANTS))})")
    element = "float32" if dtype == "tf32" else dtype
    made = output_dtype(element, out_dtype, epilogue)
    outer = () if batch is None else (Axis("b", batch),)
    axis_m, axis_n, axis_k = Axis("m", m), Axis("n", n), Axis("k", k)
    a_axes = (*outer, axis_k, axis_m) if layout[0] == "t" else (*outer, axis_m, axis_k)
    b_axes = (*outer, axis_n, axis_k) if layout[1] == "t" else (*outer, axis_k, axis_n)
    axes = (*outer, axis_m, axis_n)
    a = Tensor("a", _shape(a_axes), element, _strides("a", a_axes, lda, stride_a), constant == "a")
    b = Tensor("b", _shape(b_axes), element, _strides("b", b_axes, ldb, stride_b), constant == "b")
    product = ex.mul(_access("a", a_axes), _access("b", b_axes))
    out, extra = apply_chain(
        _access("acc", axes), epilogue, place_of(axes), "bfloat16" if made in FLOAT8 else made, scale
    )
    summed = Stage("out", axes, product, Reduction("sum", (axis_k,)), dtype=made)
    accumulated = replace(summed, name="acc", dtype=accumulator_of(element))
    added: tuple[tuple[str, Scalar], ...] = (
        ("out_dtype", out_dtype),
        ("fast_accum", fast_accum or None),
        ("lda", lda),
        ("ldb", ldb),
        ("ldc", ldc),
        ("stride_a", stride_a),
        ("stride_b", stride_b),
        ("stride_c", stride_c),
        ("constant", constant or None),
    )
    return Workload(
        name="matmul",
        inputs=(a, b, *extra),
        stages=(accumulated, Stage("out", axes, out, dtype=made)) if epilogue else (summed,),
        precision="tf32" if dtype == "tf32" else "fast" if fast_accum else "ieee",
        output_strides=(_strides("c", axes, ldc, stride_c),),
        arguments=(
            ("m", m),
            ("n", n),
            ("k", k),
            ("dtype", dtype),
            ("layout", layout),
            ("batch", batch),
            ("epilogue", epilogue),
            ("scale", scale if "scale" in epilogue.split("_") else None),
            # Only where given: the records of older versions do not have them.
            *((name, value) for name, value in added if value is not None),
        ),
    )


def _check(sizes: Mapping[str, int], dtype: str, layout: str, fast_accum: bool) -> None:
    """Raise InputError for a size, type or layout that is not allowed, or sums that the type does not have."""
    for name, size in sizes.items():
        check_shape(name, (size,))
    if layout not in LAYOUTS:
        raise InputError(f"unknown layout {layout!r} (allowed: {', '.join(LAYOUTS)})")
    check_operands(dtype, fast_accum)


def check_operands(dtype: str, fast_accum: bool) -> None:
    """Raise InputError for a type of operands that is not allowed, or sums that it does not have."""
    if dtype not in OPERANDS:
        raise unknown_name("dtype", str(dtype), OPERANDS)
    if fast_accum and dtype not in FLOAT8:
        raise InputError(f"fast_accum with dtype {dtype}; it is for {' and '.join(FLOAT8)} only")


def output_dtype(operand: str, wanted: str | None, epilogue: str) -> str:
    """The element type of the output, as asked for or by default. Raises InputError."""
    if is_integer(operand):
        allowed = tuple(f for f in FLOATS if f not in FLOAT8) + (() if epilogue else ("int32",))
        if epilogue and wanted is None:
            raise InputError(
                f"{operand} operands with an epilogue, and no out_dtype; expected one of {', '.join(allowed)}"
            )
        found = wanted or "int32"
    else:
        allowed = FLOATS
        found = wanted or ("bfloat16" if operand in FLOAT8 else operand)
    if found not in allowed:
        behind = " with an epilogue" if epilogue else ""
        raise InputError(f"out_dtype {found} of {operand} operands{behind} (allowed: {', '.join(allowed)})")
    return found


def _strides(name: str, axes: tuple[Axis, ...], leading: int | None, batch: int | None) -> tuple[int, ...] | None:
    """The strides of a matrix with these stored axes, or of a batch of them; None when dense."""
    if leading is None and batch is None:
        return None
    rows, columns = axes[-2].extent, axes[-1].extent
    between_rows = columns if leading is None else leading
    if isinstance(between_rows, bool) or not isinstance(between_rows, int) or between_rows < columns:
        raise InputError(f"ld{name}={between_rows!r}; expected at least {columns}, the length of a stored row")
    if len(axes) == 2:
        if batch is not None:
            raise InputError(f"stride_{name}={batch!r} without batch; it is the distance of the matrices of a batch")
        return between_rows, 1
    return rows * between_rows if batch is None else batch, between_rows, 1


def _shape(axes: tuple[Axis, ...]) -> tuple[int, ...]:
    return tuple(a.extent for a in axes)


def _access(name: str, axes: tuple[Axis, ...]) -> Access:
    return Access(name, tuple(axis_index(a.name) for a in axes))
