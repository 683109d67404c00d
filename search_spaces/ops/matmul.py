"""Matrix products, batched or not, in any layout, with an epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_spaces.errors import InputError, unknown_name
from search_spaces.workloads.activations import Place, apply_chain
from search_spaces.workloads.dtypes import FLOAT8, FLOATS, accumulator_of, is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access
from search_spaces.workloads.narrow_operands import (
    STORED,
    Columns,
    Dimensions,
    Groups,
    Operand,
    check_narrow,
    narrow_weights,
)
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
    b_dtype: str | None = None,
    group: int | None = None,
    zero_points: bool = False,
    block: int | None = None,
    scale_dtype: str | None = None,
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

    `b_dtype`: B in another type than A, "int8", "int4" or an 8-bit float: its values (b - zero) * scale are rounded to
    the type of A, which scales have, too. `group`: consecutive k that share a scale, by default all. After b follow,
    with `zero_points`, integers of b's type, and scales, both of shape (k / group, n), transposed as b is, or (n). int4
    are two in a byte (uint8), neighbours along k, the first in the lower bits; without `zero_points` 8 is their zero.

    `group` of 8-bit floats without `b_dtype`: both operands have float32 scales, which follow each in the inputs, of
    shape (m, k / group) and (k / group, n / block), transposed as it is. With a `block` above 1 out is of shape
    (m, n / block, block).

    `scale_dtype`: "float8_e8m0fnu" for scales that are powers of two, 2^(e - 127) as bytes (uint8) e, 255 being no
    number. MXFP8 has them, in groups of 32.

    Raises:
        InputError: a size, type, layout, stride or epilogue is not allowed; or a group does not divide k, a block n.
    """
    _check({"m": m, "n": n, "k": k} | ({} if batch is None else {"batch": batch}), dtype, layout, fast_accum)
    if constant not in CONSTANTS:
        raise InputError(f"unknown constant operand {constant!r} (allowed: {', '.join(filter(None, CONSTANTS))})")
    element = "float32" if dtype == "tf32" else dtype
    made = output_dtype(element, out_dtype, epilogue)
    check_narrow(dtype, b_dtype, group, zero_points, block, scale_dtype, fast_accum)
    groups, columns = Groups(k, group, 2 if b_dtype == "int4" else 1), Columns(n, block or 1)
    outer: Dimensions = () if batch is None else ((axis_index("b"), batch),)
    rows = (axis_index("m"), m)

    def stored(operand: int, pair: Dimensions) -> Dimensions:
        return (*outer, *pair[:: -1 if layout[operand] == "t" else 1])

    of_a, of_b = stored(0, (rows, (groups.elements, k))), stored(1, (groups.stored, (columns.index, n)))
    a = _operand(Tensor("a", _shape(of_a), element, _strides("a", of_a, lda, stride_a), constant == "a"), of_a)
    held = STORED[b_dtype] if b_dtype else element
    b = _operand(Tensor("b", _shape(of_b), held, _strides("b", of_b, ldb, stride_b), constant == "b"), of_b)
    scales = stored(1, (*groups.along_scales, columns.along_scales))
    if b_dtype:
        b = narrow_weights(b, b_dtype, element, zero_points, scales, scale_dtype or element)
    elif group:
        a = a.combined("mul", "a_scale", scale_dtype or "float32", stored(0, (rows, *groups.along_scales)))
        b = b.combined("mul", "b_scale", scale_dtype or "float32", scales)
    batched = () if batch is None else (Axis("b", batch),)
    axes = (*batched, Axis("m", m), *columns.axes)
    of_out = (*outer, rows, (columns.index, n))
    place = Place(tuple(i for i, _ in of_out), _shape(of_out), row=-2)
    acc = Access("acc", tuple(axis_index(x.name) for x in axes))
    out, extra = apply_chain(acc, epilogue, place, "bfloat16" if made in FLOAT8 else made, scale)
    summed = Stage("out", axes, ex.mul(a.element, b.element), Reduction("sum", groups.axes), dtype=made)
    accumulated = replace(summed, name="acc", dtype=accumulator_of(element))
    strides = _strides("c", of_out, ldc, stride_c)
    if strides and len(columns.axes) > 1:
        strides = (*strides[:-1], columns.block, 1)
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
        ("b_dtype", b_dtype),
        ("group", group),
        ("zero_points", zero_points or None),
        ("block", block),
        ("scale_dtype", scale_dtype),
    )
    return Workload(
        name="matmul",
        inputs=(*a.tensors, *b.tensors, *extra),
        stages=(accumulated, Stage("out", axes, out, dtype=made)) if epilogue else (summed,),
        precision="tf32" if dtype == "tf32" else "fast" if fast_accum else "ieee",
        output_strides=(strides,),
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


def _strides(name: str, stored: Dimensions, leading: int | None, batch: int | None) -> tuple[int, ...] | None:
    """The strides of a matrix of these dimensions, or of a batch of them; None when dense."""
    if leading is None and batch is None:
        return None
    rows, columns = _shape(stored)[-2:]
    between_rows = columns if leading is None else leading
    if isinstance(between_rows, bool) or not isinstance(between_rows, int) or between_rows < columns:
        raise InputError(f"ld{name}={between_rows!r}; expected at least {columns}, the length of a stored row")
    if len(stored) == 2:
        if batch is not None:
            raise InputError(f"stride_{name}={batch!r} without batch; it is the distance of the matrices of a batch")
        return between_rows, 1
    return rows * between_rows if batch is None else batch, between_rows, 1


def _shape(dimensions: Dimensions) -> tuple[int, ...]:
    return tuple(size for _, size in dimensions)


def _operand(tensor: Tensor, dimensions: Dimensions) -> Operand:
    return Operand((tensor,), Access(tensor.name, tuple(index for index, _ in dimensions)))
