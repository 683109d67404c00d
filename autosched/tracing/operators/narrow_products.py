"""ATen's products of integers: of 8 bits, and weights of 8 and 4 bits under wider activations.

    _weight_int8pack_mm            sum over k of x[m, k] * q[n, k], times scale[n]
    _weight_int4pack_mm            sum over k of x[m, k] * ((q[n, k] - 8) * scale[k / group, n] + zero[k / group, n])
    _weight_int4pack_mm_for_cpu    the same, packed in another order

Packed numbers are read where they are: the orders are permutations of axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from autosched.tracing.operators.int4_layout import int4_layout
from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.rules import Result, UnsupportedError, arange, converted, copyable, reshape
from autosched.tracing.operators.view_translation import permute, piece, transposed
from autosched.tracing.values.values import Product, Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal


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
        _dequantised, number, along_groups(0), along_groups(1)
    )
    wide = reshape(converted(x, "float32"), (m, groups, group))
    exact = replace(result, precision="ieee")
    sums = product(exact, wide, weights, (m, blocks, *rows), (0, 4, 5), (1, 4, 5, 2, 3))
    return rounded(result, reshape(sums, (m, n)))


def _int4_tiles(result: Result, x: Value, packed: Value, group: int, scales_and_zeros: Value) -> Value:
    """Weights are rounded to the type of x, as PyTorch's kernels for CUDA do, and multiplied as such.

    int32 [n / 8, k / 32 w, 32, w]: of 32 w k of 8 rows, w words for each thread of a warp, its row and c of four. The
    bits 4 (4 odd + j) of word p are those of k = 32 p + 8 j + 2 c + odd. (PyTorch, aten/src/ATen/native/cuda/int4mm.cu,
    `matrix_to_m16n8k16_Bint4_layout`.)
    """
    if torch.version.hip:
        raise UnsupportedError("int4 as PyTorch packs it for AMD's GPUs")
    (m, k), (tiles, steps, _, words), n = x.shape, packed.shape, 8 * packed.shape[0]
    if packed.shape[2] != 32 or 32 * words * steps != k or k % group:
        raise UnsupportedError(f"int4 of shape {packed.shape} in groups of {group} for k={k}")
    of_threads = reshape(packed, (tiles, steps, 8, 4, words))
    by_rows = result.part("by_rows", (tiles, 8, steps, words, 4), packed.dtype)
    read = reshape(permute(by_rows, of_threads, (0, 2, 1, 4, 3)), (n, steps, words, 1, 4, 1))
    parts = (arange(size, 6, dim, f"{result.name}_{name}") for name, size, dim in (("part", 4, 3), ("odd", 2, 5)))
    number = result.part("numbers", (n, steps, words, 4, 4, 2), "float32").elementwise(
        lambda word, part, odd: _bits(word, ex.add(part, ex.mul(odd, Integer(4)))), read, *parts
    )
    groups = k // group
    scale, zero = (
        reshape(transposed(reshape(piece(scales_and_zeros, 2, place, 1), (groups, n))), (n, groups, 1))
        for place in range(2)
    )
    weights = result.part("weights", (n, groups, group), x.dtype)
    dequantised = weights.pointwise(_dequantised, reshape(number, weights.shape), scale, zero)
    sums = product(result, reshape(x, (m, groups, group)), dequantised, (m, n), (0, 2, 3), (1, 2, 3))
    return rounded(result, sums)


def _dequantised(q: Expression, scale: Expression, zero: Expression) -> Expression:
    return ex.add(ex.mul(ex.sub(q, Literal(8.0)), scale), zero)


def _bits(packed: Expression, nibble: Expression) -> Expression:
    shifted = ex.call("shift_right", packed, ex.mul(nibble, Integer(4)))
    return ex.call("to_float", ex.call("bitwise_and", shifted, Integer(15)))


def rounded(result: Result, sums: Value) -> Value:
    return result.pointwise(lambda x: x, sums) if result.dtype != sums.dtype else sums


RULES: Mapping[str, Callable[..., Any]] = {
    "_int_mm": _int_mm,
    "_weight_int8pack_mm": _int8_weights,
    "_weight_int4pack_mm": _int4_tiles,
    "_weight_int4pack_mm_for_cpu": _int4_weights,
}
