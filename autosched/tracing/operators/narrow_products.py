"""ATen's products of narrow operands: weights of 8 and 4 bits under wider activations, and scaled 8-bit floats.

    _weight_int8pack_mm            sum over k of x[m, k] * q[n, k], times scale[n]
    _weight_int4pack_mm_for_cpu    sum over k of x[m, k] * ((q[n, k] - 8) * scale[k / group, n] + zero[k / group, n])
    _scaled_mm, _scaled_mm_v2      sum over k of (a[m, k] * scale_a[m / r, k / g]) * (b[k, n] * scale_b[k / g, n / c])

Scales that do not depend on k leave the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from autosched.tracing.operators.int4_layout import int4_layout
from autosched.tracing.operators.product_rules import matrices, product
from autosched.tracing.operators.rules import Result, UnsupportedError, arange, converted, copyable, reshape
from autosched.tracing.operators.view_translation import permute, piece
from autosched.tracing.values.values import Product, Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal

# `torch.nn.functional.ScalingType`: what shares a scale.
_TENSOR, _ROW, _ROW_EXPONENTS, _ROW_BLOCK, _SQUARE = 0, 1, 3, 4, 5
_BLOCK = 128
# Consecutive k of one exponent (OCP Microscaling Formats Specification 1.0, section 5.2).
_EXPONENTS_BLOCK = 32
# `torch.nn.functional.SwizzleType`, and the rows and exponents along k of a block of swizzled ones.
_AS_THEY_ARE, _SWIZZLED = 0, 1
_SWIZZLED_BLOCK = (128, 4)


def _int_mm(result: Result, a: Value, b: Value) -> Value:
    """Sums of products of int8 in int32."""
    name = f"{result.name}_sums"
    return result.of(Product, name=name, a=copyable(a), b=copyable(b), a_loops=(0, 2), b_loops=(2, 1))


def _int8_weights(result: Result, x: Value, weight: Value, scales: Value) -> Value:
    m, n = x.shape[0], weight.shape[0]
    sums = product(result, x, converted(weight, x.dtype), (m, n), (0, 2), (1, 2))
    return result.pointwise(ex.mul, sums, scales)


def _int4_weights(result: Result, x: Value, packed: Value, group: int, scales_and_zeros: Value) -> Value:
    """Dequantised in float32, and not rounded, as PyTorch's kernels for CPUs do."""
    (m, k), n, layout = x.shape, packed.shape[0], int4_layout()
    if layout is None:
        raise UnsupportedError("int4 as PyTorch packs it here, which is not known")
    if n % layout.block:
        raise UnsupportedError(f"{n} rows of int4 as PyTorch packs them here; expected blocks of {layout.block} rows")
    blocks, groups, half = n // layout.block, k // group, layout.block // 2
    # Where the two of a byte stand among the rows of a block.
    nibble = 0 if layout.halves else 1
    rows, bytes_ = [half, half], [half, half]
    rows[nibble], bytes_[nibble] = 2, 1
    number = result.part("numbers", (blocks, groups, group, *rows), "float32").elementwise(
        _bits, reshape(packed, (blocks, groups, group, *bytes_)), arange(2, 5, 3 + nibble, f"{result.name}_nibble")
    )

    def along_groups(place: int) -> Value:
        """Scales, or zeros, in the order of the numbers."""
        own = reshape(piece(scales_and_zeros, 2, place, 1), (groups, blocks, *rows))
        part = result.part(f"along_{place}", (blocks, groups, *rows), own.dtype)
        return reshape(permute(part, own, (1, 0, 2, 3)), (blocks, groups, 1, *rows))

    weights = result.part("weights", number.shape, "float32").elementwise(
        lambda q, scale, zero: ex.add(ex.mul(ex.sub(q, Literal(8.0)), scale), zero),
        number,
        along_groups(0),
        along_groups(1),
    )
    wide = reshape(converted(x, "float32"), (m, groups, group))
    exact = replace(result, precision="ieee")
    sums = product(exact, wide, weights, (m, blocks, *rows), (0, 4, 5), (1, 4, 5, 2, 3))
    return _rounded(result, reshape(sums, (m, n)))


def _bits(byte: Expression, nibble: Expression) -> Expression:
    shifted = ex.call("shift_right", byte, ex.mul(nibble, Integer(4)))
    return ex.call("to_float", ex.call("bitwise_and", shifted, Integer(15)))


def _rounded(result: Result, sums: Value) -> Value:
    return result.pointwise(lambda x: x, sums) if result.dtype != sums.dtype else sums


def _scaled_mm(
    result: Result,
    a: Value,
    b: Value,
    scale_a: Value,
    scale_b: Value,
    *,
    bias: Value | None = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Value:
    """Scaled 8-bit floats; the shapes of the scales say which elements share one: (rows, k) of a, (k, columns) of b.

    No other scales are as many as exponents, which are laid out for the tensor cores of NVIDIA's GPUs.
    """
    (m, k), n = a.shape, b.shape[1]
    if (scale_a.elements, scale_b.elements) == (_swizzled_elements(m, k), _swizzled_elements(n, k)):
        if torch.version.hip:
            raise UnsupportedError("exponents as PyTorch lays them out for AMD's GPUs")
        return _scaled(result, a, b, (_unswizzled(scale_a, m, k), _unswizzled(scale_b, n, k)), bias, use_fast_accum)
    of_a = reshape(scale_a, (1, 1)) if scale_a.elements == 1 else scale_a
    of_b = reshape(scale_b, (1, 1)) if scale_b.elements == 1 else _transposed(scale_b)
    return _scaled(result, a, b, (of_a, of_b), bias, use_fast_accum)


def _scaled_mm_v2(
    result: Result,
    a: Value,
    b: Value,
    scale_a: Sequence[Value],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Value],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Value | None,
    out_dtype: Any,
    *,
    use_fast_accum: bool = False,
) -> Value:
    of_a = _by_recipe(scale_a, recipe_a, swizzle_a, a.shape[0], a.shape[1])
    of_b = _by_recipe(scale_b, recipe_b, swizzle_b, b.shape[1], b.shape[0])
    return _scaled(result, a, b, (of_a, of_b), bias, use_fast_accum)


def _by_recipe(scales: Sequence[Value], recipe: Sequence[int], swizzle: Sequence[int], rows: int, k: int) -> Value:
    """The scales of an operand of that many rows, or columns, as (rows, k)."""
    match list(scales), list(recipe):
        case [scale], [kind] if kind == _ROW_EXPONENTS and list(swizzle) == [_SWIZZLED]:
            return _unswizzled(scale, rows, k)
        case _ if any(s != _AS_THEY_ARE for s in swizzle):
            raise UnsupportedError(f"scales by the recipe {list(recipe)}, swizzled")
        case [scale], [kind] if kind == _ROW_EXPONENTS:
            return reshape(scale, (rows, _groups(k)))
        case [scale], [kind] if kind == _TENSOR:
            return reshape(scale, (1, 1))
        case [scale], [kind] if kind == _ROW:
            return reshape(scale, (rows, 1))
        case [scale], [kind] if kind == _ROW_BLOCK:
            return scale
        case [scale], [kind] if kind == _SQUARE:
            # In memory their number along k is a multiple of four.
            return _transposed(piece(scale, 0, 0, k // _BLOCK))
        case _:
            raise UnsupportedError(f"scales by the recipe {list(recipe)}")


def _groups(k: int) -> int:
    """The number of exponents along k."""
    if k % _EXPONENTS_BLOCK:
        raise UnsupportedError(f"exponents of {_EXPONENTS_BLOCK} elements each along k={k}; expected a multiple of it")
    return k // _EXPONENTS_BLOCK


def _swizzled_elements(rows: int, k: int) -> int:
    """The number of exponents of an operand, swizzled: in whole blocks of 128 by 4."""
    return math.prod(n * size for n, size in zip(_swizzled_blocks(rows, k), _SWIZZLED_BLOCK, strict=True))


def _swizzled_blocks(rows: int, k: int) -> tuple[int, int]:
    along = (rows, -(-k // _EXPONENTS_BLOCK))
    first, second = (-(-n // size) for n, size in zip(along, _SWIZZLED_BLOCK, strict=True))
    return first, second


def _unswizzled(scales: Value, rows: int, k: int) -> Value:
    """Exponents as (rows, k), of blocks of 128 rows by 4: row 32 j + i is at [i, j] of 32 by 4 (by 4 along k).

    (NVIDIA, cuBLAS, "1D Block Scaling Factors Layout".)
    """
    down, across = _swizzled_blocks(rows, k)
    blocks = reshape(scales, (down, across, 32, 4, 4))
    in_order = Result(f"{scales.name}_in_order", (down, 4, 32, across, 4), scales.dtype, scales.line)
    whole = reshape(permute(in_order, blocks, (0, 3, 2, 1, 4)), (down * 128, across * 4))
    return piece(piece(whole, 0, 0, rows), 1, 0, _groups(k))


def _scaled(result: Result, a: Value, b: Value, scales: tuple[Value, Value], bias: Value | None, fast: bool) -> Value:
    of_a, of_b = scales
    m, n = a.shape[0], b.shape[1]
    if any(s.dtype != "float32" for s in scales):
        raise UnsupportedError(f"scales of {of_a.dtype} and {of_b.dtype}; expected float32")
    if a.dtype != b.dtype:
        # It holds the elements of both, which no dot multiplies as they are.
        a, b, fast = converted(a, "bfloat16"), converted(b, "bfloat16"), False
    if of_a.shape in ((m, 1), (1, 1)) and of_b.shape in ((n, 1), (1, 1)):
        sums = matrices(replace(result, precision="fast") if fast else result, a, b)
        given = [sums, of_a, _transposed(of_b), *([] if bias is None else [bias])]
        return result.pointwise(_finished, *given)
    groups = max(of_a.shape[1], of_b.shape[1])
    rows, columns = _dequantised(result, a, of_a, groups), _dequantised(result, _transposed(b), of_b, groups)
    shape = (*rows.shape[:2], *columns.shape[:2])
    exact = replace(result, precision="ieee")
    sums = reshape(product(exact, rows, columns, shape, (0, 1, 4, 5), (2, 3, 4, 5)), (m, n))
    return _rounded(result, sums) if bias is None else result.pointwise(ex.add, sums, bias)


def _finished(total: Expression, of_row: Expression, of_column: Expression, *bias: Expression) -> Expression:
    scaled = ex.mul(ex.mul(total, of_row), of_column)
    return ex.add(scaled, bias[0]) if bias else scaled


def _dequantised(result: Result, x: Value, scales: Value, groups: int) -> Value:
    """x[r, k] times its scales, in float32: of shape (blocks of rows, rows of one, groups of k, k of one)."""
    (rows, k), (blocks, own) = x.shape, scales.shape
    known = rows // blocks in (1, _BLOCK, rows) and k // groups in (_EXPONENTS_BLOCK, _BLOCK)
    if rows % blocks or k % groups or not known:
        raise UnsupportedError(f"scales of shape {scales.shape} for {rows} by {k} elements")
    part = result.part(f"of_{x.name}", (blocks, rows // blocks, groups, k // groups), "float32")
    return part.elementwise(ex.mul, reshape(x, part.shape), reshape(scales, (blocks, 1, own, 1)))


def _transposed(x: Value) -> Value:
    return permute(Result(f"{x.name}_transposed", x.shape[::-1], x.dtype, x.line), x, (1, 0))


RULES: Mapping[str, Callable[..., Any]] = {
    "_int_mm": _int_mm,
    "_weight_int8pack_mm": _int8_weights,
    "_weight_int4pack_mm_for_cpu": _int4_weights,
    "_scaled_mm": _scaled_mm,
    "_scaled_mm_v2": _scaled_mm_v2,
}
