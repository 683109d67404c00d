"""ATen's views as values without computation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autosched.tracing.operators.rules import Result, dims_of, reshape
from autosched.tracing.values.values import Value, View, ViewKind
from autosched.tracing.values.views import Diagonal, Expansion, Permutation, Selection, Slicing, Strided, Windows
from search_spaces.workloads.strides import dense_strides


def view(result: Result, argument: Value, kind: ViewKind) -> Value:
    return result.of(View, argument=argument, kind=kind)


def permute(result: Result, x: Value, order: Sequence[int]) -> Value:
    return view(result, x, Permutation(tuple(d % len(x.shape) for d in order)))


def transposed(x: Value) -> Value:
    """A matrix with its dimensions exchanged."""
    return permute(Result(f"{x.name}_transposed", x.shape[::-1], x.dtype, x.line), x, (1, 0))


def _transpose(result: Result, x: Value, a: int, b: int) -> Value:
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return permute(result, x, order)


def _t(result: Result, x: Value) -> Value:
    return permute(result, x, list(range(len(x.shape)))[::-1])


def _reshape(result: Result, x: Value, size: Any = None) -> Value:
    """Any view that keeps the order of the elements. The result's shape is that of the graph, not `size`."""
    return reshape(x, result.shape, result.name)


def expand(result: Result, x: Value, size: Sequence[int]) -> Value:
    return view(result, x, Expansion(x.shape, result.shape))


def _slice(result: Result, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    d = dim % len(x.shape)
    return view(result, x, Slicing(d, first_of(start, x.shape[d]), step, result.shape[d]))


def first_of(start: int | None, extent: int) -> int:
    """The first position of a slice along a dimension: `start` counts from the end if negative."""
    return min(max(0 if start is None else start + extent * (start < 0), 0), extent)


def select(result: Result, x: Value, dim: int, index: int) -> Value:
    d = dim % len(x.shape)
    return view(result, x, Selection(d, index % x.shape[d]))


def _split(result: Result, x: Value, sizes: Any, dim: int = 0) -> tuple[Value, ...]:
    d = dim % len(x.shape)
    extent = x.shape[d]
    parts = (
        list(sizes) if isinstance(sizes, list | tuple) else [min(sizes, extent - i) for i in range(0, extent, sizes)]
    )
    found, begin = [], 0
    for number, size in enumerate(parts):
        part = result.part(str(number), (*x.shape[:d], size, *x.shape[d + 1 :]), x.dtype)
        found.append(_slice(part, x, d, begin, begin + size))
        begin += size
    return tuple(found)


def _diagonal(result: Result, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    return view(result, x, Diagonal(offset, dim1 % len(x.shape), dim2 % len(x.shape)))


def _as_strided(result: Result, x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0) -> Value:
    """Elements of a tensor that is dense in the order of its dimensions, at any strides and offset."""
    if not storage_offset and tuple(stride) == dense_strides(tuple(size)) and math.prod(size) == x.elements:
        # Dense strides, which PyTorch leaves behind.
        return reshape(x, result.shape, result.name)
    line = reshape(x, (x.elements,))
    return view(result, line, Strided(tuple(size), tuple(stride), storage_offset))


def _copy_strided(result: Result, x: Value, stride: Sequence[int]) -> Value:
    """A copy with these strides: every value's strides are decided elsewhere."""
    return x


def _repeat(result: Result, x: Value, times: Sequence[int]) -> Value:
    """Every dimension repeated that many times."""
    sizes = (*(1,) * (len(times) - len(x.shape)), *x.shape)
    apart = tuple(n for size in sizes for n in (1, size))
    whole = tuple(n for t, size in zip(times, sizes, strict=True) for n in (t, size))
    spread = result.part("apart", whole, x.dtype)
    return reshape(expand(spread, reshape(x, apart), whole), result.shape, result.name)


def _unfold(result: Result, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along a dimension, whose positions come last."""
    if not x.shape:
        return reshape(x, result.shape, result.name)
    return view(result, x, Windows(dim % len(x.shape), size, step))


def _unbind(result: Result, x: Value, dim: int = 0) -> tuple[Value, ...]:
    d = dim % len(x.shape)
    count = x.shape[d]
    parts = [replace(result, name=f"{result.name}_{i}") for i in range(count)]
    return tuple(select(part, x, d, i) for i, part in enumerate(parts))


def piece(x: Value, dim: int, start: int, count: int, step: int = 1) -> Value:
    """`count` elements along a dimension, from `start` on, every `step`-th."""
    if (start, count, step) == (0, x.shape[dim], 1):
        return x
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    kind = Slicing(dim, start, step, count)
    return View(name=f"{x.name}_from_{start}", shape=shape, dtype=x.dtype, line=x.line, argument=x, kind=kind)


def _flip(result: Result, x: Value, dims: Any) -> Value:
    for d in dims_of(dims, len(x.shape)) if dims else ():
        x = piece(x, d, x.shape[d] - 1, x.shape[d], -1)
    return x


_VIEWS: Mapping[str, Callable[..., Any]] = {
    "permute": permute,
    "transpose": _transpose,
    "t": _t,
    "numpy_T": _t,
    "expand": expand,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split,
    "diagonal": _diagonal,
    "as_strided": _as_strided,
    "repeat": _repeat,
    "flip": _flip,
    "unfold": _unfold,
    "unbind": _unbind,
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze"), _reshape),
}
# A copy of a view has the same elements; every value's memory is decided elsewhere.
_COPIES = {f"{name}_copy": rule for name, rule in {**_VIEWS, "select": select}.items()}
RULES: Mapping[str, Callable[..., Any]] = {**_VIEWS, **_COPIES, "prims.copy_strided.default": _copy_strided}
