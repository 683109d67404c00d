"""Estimates of the time of contractions in bytes of memory traffic, to rank the orders in which they may be computed.

A roofline: the bytes that are read and written, or the operations at the rate of the device, whichever takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Set

# Operations in the time of moving one byte, on an H100 (989 TFLOP/s of 16 bits by tensor cores, 67 TFLOP/s of float32;
# 3.35 TB/s) and within a factor of two on every NVIDIA GPU since Volta: orders that matter differ by more than that.
_MATRIX_FLOPS_PER_BYTE = {"narrow": 295.0, "float32": 20.0}
_VECTOR_FLOPS_PER_BYTE = 20.0
# Another order has to promise this fraction of the time as written at most: estimates are no closer.
WORTHWHILE = 0.9


def contraction_cost(
    a: Set[int], b: Set[int], kept: Set[int], narrow: bool, extent: Callable[[Set[int]], int]
) -> float:
    """The cost of a product of two tensors with these loops, summed over all that are not `kept`."""
    whole = a | b
    width = 2 if narrow else 4
    if whole <= kept and (a <= b or b <= a):
        # A factor in the prologue or epilogue of its neighbour.
        return float(width * min(extent(a), extent(b)))
    traffic = float(width * (extent(a) + extent(b) + extent(whole & kept)))
    is_matrix = bool(a & kept - b) and bool(b & kept - a)
    rate = _MATRIX_FLOPS_PER_BYTE["narrow" if narrow else "float32"] if is_matrix else _VECTOR_FLOPS_PER_BYTE
    return max(traffic, 2 * extent(whole) / rate)


def sum_cost(read: int, written: int, narrow: bool) -> float:
    """The cost of a pointwise function or a reduction by the numbers of elements."""
    return float((2 if narrow else 4) * (read + written))
