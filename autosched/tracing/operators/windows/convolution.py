"""ATen's convolutions, and their gradients: sums of products over windows and channels.

    out[n, g, f, p, …] = sum over c, r, … of x[n, g, c, step*p + spacing*r - before, …] * w[g, f, c, r, …]

x is 0 outside. `g` are groups, `r` taps. A transposed convolution is an ordinary one for every residue of positions by
the stride, with the taps of that residue; the gradient to its input is one of the other kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autosched.tracing.operators.rules import Result, UnsupportedError, constant_number, converted, reshape
from autosched.tracing.operators.windows.convolved import (
    Geometry,
    geometry_of,
    ordinary,
    summed,
    windows_along,
    zeros,
)
from autosched.tracing.operators.windows.transposed import transposed as transposed_sums
from autosched.tracing.operators.windows.windows import covered, windowed
from autosched.tracing.values.values import Value
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions import expression as ex


def _convolution(
    result: Result,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """Convolution or transposed convolution, rounded once; `output_padding` is in the shape of the result."""
    if not is_float(result.dtype):
        raise UnsupportedError(f"convolutions of {result.dtype}")
    geometry = geometry_of(weight, stride, padding, dilation)

    def finish(part: Result, sums: Value) -> Value:
        if bias is None:
            return _rounded(part, sums)
        return part.pointwise(ex.add, sums, reshape(bias, (*bias.shape, *(1 for _ in weight.shape[2:]))))

    if transposed:
        return transposed_sums(result, x, weight, geometry, groups, finish)
    windows = windows_along(result.shape[2:], weight, geometry)
    return finish(result, ordinary(result, x, weight, windows, groups))


def _rounded(result: Result, sums: Value) -> Value:
    if constant_number(sums) == 0:
        return result.constant(0.0)
    return result.pointwise(lambda x: x, sums) if result.dtype != sums.dtype else sums


def _backward(
    result: Result,
    gradient: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    """Gradients to the input, the weights and the bias, where `output_mask` asks for them."""
    if not is_float(result.dtype):
        raise UnsupportedError(f"convolutions of {result.dtype}")
    name, geometry = result.name.rpartition("_")[0], geometry_of(weight, stride, padding, dilation)
    made: list[Value | None] = [None, None, None]
    if output_mask[0]:
        of_input = replace(result, name=f"{name}_0", shape=x.shape, dtype=x.dtype)
        if transposed:
            windows = windows_along(x.shape[2:], weight, geometry)
            made[0] = _rounded(of_input, ordinary(of_input, gradient, weight, windows, groups))
        else:
            made[0] = transposed_sums(of_input, gradient, weight, geometry, groups, _rounded)
    if output_mask[1]:
        of_weight = replace(result, name=f"{name}_1", shape=weight.shape, dtype=weight.dtype, strides=None)
        factors = (x, gradient) if transposed else (gradient, x)
        made[1] = _rounded(of_weight, _weight_gradient(of_weight, *factors, geometry, groups))
    if output_mask[2]:
        of_bias = replace(result, name=f"{name}_2", shape=(gradient.shape[1],), dtype=gradient.dtype, strides=None)
        over = [d for d in range(len(gradient.shape)) if d != 1]
        made[2] = of_bias.pointwise(lambda t: t, of_bias.reduced("sum", converted(gradient, "float32"), over))
    return tuple(made)


def _weight_gradient(
    result: Result,
    small: Value,
    image: Value,
    geometry: Geometry,
    groups: int,
) -> Value:
    """The sums over images and positions of small[n, f, p] * image[n, c, step*p + spacing*r - before]: [f, c, r]."""
    windows = windows_along(small.shape[2:], result.of(Value), geometry)
    image = covered(result, image, windows, 0.0)
    if constant_number(image) == 0:
        return zeros(result, result.shape)
    image = windowed(result, image, windows)
    count, taps = len(windows), result.shape[2:]
    filters, inner = result.shape[:2]
    small = reshape(small, (small.shape[0], groups, filters // groups, *small.shape[2:]))
    image = reshape(image, (image.shape[0], groups, inner, *image.shape[2:]))
    first = 3 + count
    positions = range(first + 1, first + 1 + count)
    shape = (groups, filters // groups, inner, *taps)
    sums = summed(result, small, image, shape, (first, 0, 1, *positions), (first, 0, 2, *positions, *range(3, first)))
    return reshape(sums, result.shape)


RULES: Mapping[str, Callable[..., Any]] = {"convolution": _convolution, "convolution_backward": _backward}
