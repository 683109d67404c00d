"""ATen's products of scaled 8-bit floats.

    sum over k of (a[m, k] * scale_a[m / r, k / g]) * (b[k, n] * scale_b[k / g, n / c])

Scales are float32, or powers of two; those that do not depend on k leave the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from autosched.tracing.operators.grouped_rules import grouped
from autosched.tracing.operators.narrow_products import rounded
from autosched.tracing.operators.product_rules import matrices, product
from autosched.tracing.operators.rules import Result, UnsupportedError, converted, reshape
from autosched.tracing.operators.view_translation import permute, piece, transposed
from autosched.tracing.values.values import Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression

# `torch.nn.functional.ScalingType`: what shares a scale.
_TENSOR, _ROW, _ROW_EXPONENTS, _ROW_BLOCK, _SQUARE = 0, 1, 3, 4, 5
_BLOCK = 128
# Consecutive k of one exponent (OCP Microscaling Formats Specification 1.0, section 5.2).
_EXPONENTS_BLOCK = 32
# `torch.nn.functional.SwizzleType`, and the rows and exponents along k of a block of swizzled ones.
_AS_THEY_ARE, _SWIZZLED = 0, 1
_SWIZZLED_BLOCK = (128, 4)


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
    of_b = reshape(scale_b, (1, 1)) if scale_b.elements == 1 else transposed(scale_b)
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
            return transposed(piece(scale, 0, 0, k // _BLOCK))
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
        given = [sums, of_a, transposed(of_b), *([] if bias is None else [bias])]
        return result.pointwise(_finished, *given)
    groups = max(of_a.shape[1], of_b.shape[1])
    rows, columns = _dequantised(result, a, of_a, groups), _dequantised(result, transposed(b), of_b, groups)
    shape = (*rows.shape[:2], *columns.shape[:2])
    exact = replace(result, precision="ieee")
    sums = reshape(product(exact, rows, columns, shape, (0, 1, 4, 5), (2, 3, 4, 5)), (m, n))
    return rounded(result, sums) if bias is None else result.pointwise(ex.add, sums, bias)


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


def _scaled_grouped_mm(
    result: Result,
    a: Value,
    b: Value,
    scale_a: Value,
    scale_b: Value,
    *,
    offs: Value | None = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Value:
    """Grouped products of 8-bit floats with a scale for each row of a and each column of b."""
    # Where k is cut, a row has one for each segment, and those of a segment come after another.
    each = offs.elements if offs is not None and len(a.shape) == len(b.shape) == 2 else 1
    wanted = [(*x.shape[:-2], each * x.shape[dim]) for x, dim in ((a, -2), (b, -1))]
    if [scale_a.shape, scale_b.shape] != wanted:
        given = f"{list(scale_a.shape)} and {list(scale_b.shape)}"
        raise UnsupportedError(f"scales of shape {given} of a grouped product; expected one for each row and column")
    own = replace(result, precision="fast") if use_fast_accum else result
    return grouped(own, a, b, offs, (scale_a, scale_b))


RULES: Mapping[str, Callable[..., Any]] = {
    "_scaled_mm": _scaled_mm,
    "_scaled_mm_v2": _scaled_mm_v2,
    "_scaled_grouped_mm": _scaled_grouped_mm,
}
