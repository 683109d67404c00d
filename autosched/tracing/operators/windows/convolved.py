"""Sums of convolutions: products summed over windows and channels, before any rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.rules import Result, constant_number, reshape
from autosched.tracing.operators.windows.windows import Window, covered, of_dims, windowed
from autosched.tracing.values.values import Value

# Stride, padding and dilation, each along every dimension from the third on.
Geometry = tuple[Sequence[int], Sequence[int], Sequence[int]]


def geometry_of(weight: Value, *given: Sequence[int]) -> Geometry:
    stride, padding, dilation = (of_dims(numbers, len(weight.shape) - 2) for numbers in given)
    return stride, padding, dilation


def windows_along(positions: Sequence[int], weight: Value, geometry: Geometry) -> list[Window]:
    """The windows that a convolution sums, along the dimensions from the third on, at so many positions."""
    dims = range(2, 2 + len(positions))
    return [Window(*each) for each in zip(dims, weight.shape[2:], *geometry, positions, strict=True)]


def ordinary(result: Result, x: Value, weight: Value, windows: Sequence[Window], groups: int) -> Value:
    """The sums of a convolution with weights [filters, channels of a group, taps …]: [n, filters, positions …]."""
    count = len(windows)
    positions, taps = tuple(w.count for w in windows), tuple(w.size for w in windows)
    batch, filters = x.shape[0], weight.shape[0]
    image = covered(result, x, windows, 0.0)
    if constant_number(image) == 0:
        return zeros(result, (batch, filters, *positions))
    image = windowed(result, image, windows)
    if groups == 1:
        first = 2 + count
        along = (0, first, *range(2, first), *range(first + 1, first + 1 + count))
        of_weight = (1, first, *range(first + 1, first + 1 + count))
        return summed(result, image, weight, (batch, filters, *positions), along, of_weight)
    first, inner = 3 + count, x.shape[1] // groups
    image = reshape(image, (batch, groups, inner, *positions, *taps))
    weight = reshape(weight, (groups, filters // groups, inner, *taps))
    along = (0, 1, first, *range(3, first), *range(first + 1, first + 1 + count))
    of_weight = (1, 2, first, *range(first + 1, first + 1 + count))
    shape = (batch, groups, filters // groups, *positions)
    apart = replace(result, shape=shape, strides=_grouped_strides(result, groups))
    sums = summed(apart, image, weight, shape, along, of_weight)
    return reshape(sums, (batch, filters, *positions))


def summed(
    result: Result, a: Value, b: Value, shape: tuple[int, ...], a_loops: Sequence[int], b_loops: Sequence[int]
) -> Value:
    """Sums of products (`product`): in any precision where one factor has all loops of the other one, as in depthwise
    convolutions, which no dot computes.
    """
    of_a, of_b = (
        {n for n, size in zip(loops, x.shape, strict=True) if size > 1} for x, loops in ((a, a_loops), (b, b_loops))
    )
    has_dots = of_a - of_b and of_b - of_a
    return product(result if has_dots else replace(result, precision=""), a, b, shape, a_loops, b_loops)


def zeros(result: Result, shape: tuple[int, ...]) -> Value:
    """The sums of windows that are wholly outside of the tensor."""
    return result.constant(0.0, name=f"{result.name}_sums", shape=shape, dtype="float32")


def _grouped_strides(result: Result, groups: int) -> tuple[int, ...] | None:
    """The strides of the result with its channels as groups and channels of a group."""
    if result.strides is None:
        return None
    batch, channel, *rest = result.strides
    return (batch, channel * (result.shape[1] // groups), channel, *rest)
