"""ATen's convolutions, and their gradients: sums of products over windows and channels.

    out[n, g, f, p, …] = sum over c, r, … of x[n, g, c, step*p + spacing*r - before, …] * w[g, f, c, r, …]

x is 0 outside. `g` are groups, `r` taps. A transposed convolution is an ordinary one for every residue of positions by
the stride, with the taps of that residue; the gradient to its input is one of the other kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autosched.tracing.operators.joining_rules import joined
from autosched.tracing.operators.product_rules import product
from autosched.tracing.operators.rules import Result, UnsupportedError, constant_number, converted, reshape
from autosched.tracing.operators.view_translation import permute, piece, view
from autosched.tracing.operators.windows.windows import Window, covered, of_dims, windowed
from autosched.tracing.values.values import Value
from autosched.tracing.values.views import Slicing
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
    geometry = _geometry(weight, stride, padding, dilation)
    if transposed:
        sums = _transposed(result, x, weight, geometry, groups)
    else:
        sums = _ordinary(result, x, weight, _windows(result.shape[2:], weight, geometry), groups)
    if bias is None:
        return _rounded(result, sums)
    channels = reshape(bias, (*bias.shape, *(1 for _ in weight.shape[2:])))
    return result.pointwise(ex.add, sums, channels)


def _rounded(result: Result, sums: Value) -> Value:
    return result.pointwise(lambda x: x, sums) if result.dtype != sums.dtype else sums


# Stride, padding and dilation, each along every dimension from the third on.
_Geometry = tuple[Sequence[int], Sequence[int], Sequence[int]]


def _geometry(weight: Value, *given: Sequence[int]) -> _Geometry:
    stride, padding, dilation = (of_dims(numbers, len(weight.shape) - 2) for numbers in given)
    return stride, padding, dilation


def _windows(positions: Sequence[int], weight: Value, geometry: _Geometry) -> list[Window]:
    """The windows that a convolution sums, along the dimensions from the third on, at so many positions."""
    dims = range(2, 2 + len(positions))
    return [Window(*each) for each in zip(dims, weight.shape[2:], *geometry, positions, strict=True)]


def _ordinary(result: Result, x: Value, weight: Value, windows: Sequence[Window], groups: int) -> Value:
    """The sums of a convolution with weights [filters, channels of a group, taps …]: [n, filters, positions …]."""
    count = len(windows)
    positions, taps = tuple(w.count for w in windows), tuple(w.size for w in windows)
    batch, filters = x.shape[0], weight.shape[0]
    image = covered(result, x, windows, 0.0)
    if constant_number(image) == 0:
        return _zeros(result, (batch, filters, *positions))
    image = windowed(result, image, windows)
    if groups == 1:
        first = 2 + count
        along = (0, first, *range(2, first), *range(first + 1, first + 1 + count))
        of_weight = (1, first, *range(first + 1, first + 1 + count))
        return product(result, image, weight, (batch, filters, *positions), along, of_weight)
    first, inner = 3 + count, x.shape[1] // groups
    image = reshape(image, (batch, groups, inner, *positions, *taps))
    weight = reshape(weight, (groups, filters // groups, inner, *taps))
    along = (0, 1, first, *range(3, first), *range(first + 1, first + 1 + count))
    of_weight = (1, 2, first, *range(first + 1, first + 1 + count))
    apart = replace(result, strides=_grouped_strides(result, groups))
    sums = product(apart, image, weight, (batch, groups, filters // groups, *positions), along, of_weight)
    return reshape(sums, (batch, filters, *positions))


def _zeros(result: Result, shape: tuple[int, ...]) -> Value:
    """The sums of windows that are wholly outside of the tensor."""
    return result.constant(0.0, name=f"{result.name}_sums", shape=shape, dtype="float32")


def _grouped_strides(result: Result, groups: int) -> tuple[int, ...] | None:
    """The strides of the result with its channels as groups and channels of a group."""
    if result.strides is None:
        return None
    batch, channel, *rest = result.strides
    return (batch, channel * (result.shape[1] // groups), channel, *rest)


def _transposed(result: Result, x: Value, weight: Value, geometry: _Geometry, groups: int) -> Value:
    """The sums of a transposed convolution with weights [channels, filters of a group, taps …].

    Position o of the result sums x[i] * w[r] with step*i = o + before - spacing*r: of every residue of o by the step an
    own set of taps, which are those of an ordinary convolution, in reverse.
    """
    turned = _exchanged(result, weight, groups)
    along = [
        list(_residues(size, *of)) for size, *of in zip(result.shape[2:], weight.shape[2:], *geometry, strict=True)
    ]
    parts = {
        chosen: _of_residue(result, x, turned, [r[n] for r, n in zip(along, chosen, strict=True)], groups)
        for chosen in itertools.product(*(range(len(r)) for r in along))
    }
    return _interleaved(result, parts, [len(r) for r in along])


def _exchanged(result: Result, weight: Value, groups: int) -> Value:
    """Weights [channels, filters of a group, …] as [filters, channels of a group, …]."""
    channels, filters, *taps = weight.shape
    inner = channels // groups
    apart = reshape(weight, (groups, inner, filters, *taps))
    order = (0, 2, 1, *range(3, 3 + len(taps)))
    moved = permute(result.part("weight", (groups, filters, inner, *taps), weight.dtype), apart, order)
    return reshape(moved, (groups * filters, inner, *taps))


# Taps of one residue as (first, step, number), and what these are in x: position of the last for result 0, spacing,
# number of results.
_Residue = tuple[range, int, int, int]


def _residues(size: int, taps: int, step: int, before: int, spacing: int) -> Iterator[_Residue]:
    """For every residue along a dimension of the result: taps, place in x of result 0 by the last tap, their spacing
    in x, and the number of results.
    """
    apart = step // math.gcd(step, spacing)
    for residue in range(min(step, size)):
        first = next((r for r in range(min(apart, taps)) if (residue + before - spacing * r) % step == 0), None)
        own = range(0) if first is None else range(first, taps, apart)
        last = own[-1] if own else 0
        yield own, (residue + before - spacing * last) // step, apart * spacing // step, -(-size // step)


def _of_residue(result: Result, x: Value, weight: Value, along: Sequence[_Residue], groups: int) -> Value:
    """The sums at positions of one residue along every dimension; 0 where no tap is of that residue."""
    shape = (*result.shape[:2], *(count for *_, count in along))
    part = replace(result.part("part", shape, "float32"), strides=None)
    windows: list[Window] = []
    for dim, (taps, place, spacing, count) in enumerate(along, 2):
        if not taps:
            return part.constant(0.0)
        kept = (*weight.shape[:dim], len(taps), *weight.shape[dim + 1 :])
        backwards = Slicing(dim, taps[-1], -taps.step, len(taps))
        weight = view(result.part(f"taps_{dim}_{taps.start}", kept, weight.dtype), weight, backwards)
        windows.append(Window(dim, len(taps), 1, -place, spacing, count))
    named = replace(part, name=f"{part.name}_{'_'.join(str(taps.start) for taps, *_ in along)}")
    return _ordinary(named, x, weight, windows, groups)


def _interleaved(result: Result, parts: Mapping[tuple[int, ...], Value], residues: Sequence[int]) -> Value:
    """The parts of all residues as one, dimension by dimension from the last, cropped to the result's positions."""
    for axis, count in reversed(list(enumerate(residues))):
        dim, found = axis + 2, {}
        for rest in dict.fromkeys(chosen[:axis] for chosen in parts):
            own = [parts[*rest, n] for n in range(count)]
            found[rest] = own[0] if count == 1 else _alternating(result, own, dim)
        parts = found
    return parts[()]


def _alternating(result: Result, parts: Sequence[Value], dim: int) -> Value:
    """Elements of the parts in turn along a dimension, as many as the result has."""
    shape, size = parts[0].shape, result.shape[dim]
    if all(constant_number(p) == 0 for p in parts):
        return result.constant(
            0.0,
            name=f"{result.name}_residues_{dim}",
            shape=(*shape[:dim], size, *shape[dim + 1 :]),
            dtype=parts[0].dtype,
        )
    apart = [reshape(p, (*shape[: dim + 1], 1, *shape[dim + 1 :])) for p in parts]
    beside = (*shape[: dim + 1], len(parts), *shape[dim + 1 :])
    together = joined(result.part(f"residues_{dim}", beside, parts[0].dtype), apart, dim + 1)
    whole = (*shape[:dim], shape[dim] * len(parts), *shape[dim + 1 :])
    return piece(reshape(together, whole), dim, 0, size)


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
    name, geometry = result.name.rpartition("_")[0], _geometry(weight, stride, padding, dilation)
    made: list[Value | None] = [None, None, None]
    if output_mask[0]:
        of_input = Result(f"{name}_0", x.shape, x.dtype, result.line, result.on_cpu, result.strides)
        if transposed:
            windows = _windows(x.shape[2:], weight, geometry)
            made[0] = _rounded(of_input, _ordinary(of_input, gradient, weight, windows, groups))
        else:
            made[0] = _rounded(of_input, _transposed(of_input, gradient, weight, geometry, groups))
    if output_mask[1]:
        of_weight = Result(f"{name}_1", weight.shape, weight.dtype, result.line, result.on_cpu)
        factors = (x, gradient) if transposed else (gradient, x)
        made[1] = _rounded(of_weight, _weight_gradient(of_weight, *factors, geometry, groups))
    if output_mask[2]:
        of_bias = Result(f"{name}_2", (gradient.shape[1],), gradient.dtype, result.line, result.on_cpu)
        over = [d for d in range(len(gradient.shape)) if d != 1]
        made[2] = of_bias.pointwise(lambda t: t, of_bias.reduced("sum", converted(gradient, "float32"), over))
    return tuple(made)


def _weight_gradient(
    result: Result,
    small: Value,
    image: Value,
    geometry: _Geometry,
    groups: int,
) -> Value:
    """The sums over images and positions of small[n, f, p] * image[n, c, step*p + spacing*r - before]: [f, c, r]."""
    windows = _windows(small.shape[2:], result.of(Value), geometry)
    image = covered(result, image, windows, 0.0)
    if constant_number(image) == 0:
        return _zeros(result, result.shape)
    image = windowed(result, image, windows)
    count, taps = len(windows), result.shape[2:]
    filters, inner = result.shape[:2]
    small = reshape(small, (small.shape[0], groups, filters // groups, *small.shape[2:]))
    image = reshape(image, (image.shape[0], groups, inner, *image.shape[2:]))
    first = 3 + count
    positions = range(first + 1, first + 1 + count)
    shape = (groups, filters // groups, inner, *taps)
    sums = product(result, small, image, shape, (first, 0, 1, *positions), (first, 0, 2, *positions, *range(3, first)))
    return reshape(sums, result.shape)


RULES: Mapping[str, Callable[..., Any]] = {"convolution": _convolution, "convolution_backward": _backward}
