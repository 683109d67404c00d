"""Strides: the places of a tensor's elements in memory, in elements from one index to the next per dimension."""

from __future__ import annotations

import functools
import math

from search_spaces.errors import InputError


def check_strides(name: str, shape: tuple[int, ...], strides: tuple[int, ...], shared: bool = True) -> None:
    """Raise InputError unless there is a stride per dimension, and no two elements share a place.

    `shared`: a stride of 0 is allowed, and makes all indices of its dimension the same elements.
    """
    if len(strides) != len(shape):
        raise InputError(f"{name}: {len(strides)} strides for {len(shape)} dimensions")
    for stride in strides:
        if isinstance(stride, bool) or not isinstance(stride, int) or stride < 0:
            raise InputError(f"{name}: stride {stride!r} is not allowed; expected a non-negative integer")
    if why := _why_overlapping(tuple(shape), tuple(strides), shared):
        raise InputError(f"{name}: {why}")


@functools.lru_cache(4096)  # The workloads that are made of one another have mostly the same tensors.
def _why_overlapping(shape: tuple[int, ...], strides: tuple[int, ...], shared: bool) -> str | None:
    inner, within = 1, ""
    for stride, size in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1 and (s or not shared)):
        if stride < inner:
            return (
                f"stride {stride} of a dimension of size {size} is not allowed; expected at least {inner}, "
                f"since the elements {within or 'of the tensor'} span so many"
            )
        inner, within = inner + stride * (size - 1), f"of the dimensions within, up to stride {stride},"
    return None


def declared_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides, or None where a dense row-major tensor has the same; dimensions of size 1 have none to compare."""
    return None if same_places(shape, strides, dense_strides(shape)) else strides


def same_places(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """True if both strides give elements the same places; dimensions of size 1 have none to compare."""
    return all(size == 1 or one == other for size, one, other in zip(shape, a, b, strict=True))


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """True if elements fill their memory, each in a place of its own, in any order of the dimensions."""
    inner = 1
    for stride, size in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride != inner:
            return False
        inner *= size
    return True


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a dense row-major tensor."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def memory_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int] | None:
    """The dimensions from the outermost in memory to the innermost, if elements are dense; else None."""
    order = sorted(range(len(shape)), key=lambda d: (-strides[d], d))
    # Strides of dimensions of size 1 are arbitrary.
    several = iter([d for d in order if shape[d] > 1])
    order = [next(several) if size > 1 else d for d, size in enumerate(shape)]
    inner = 1
    for d in reversed(order):
        if shape[d] > 1 and strides[d] != inner:
            return None
        inner *= shape[d]
    return order if inner else None


def span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements of memory from the first element to the last, both included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def distinct_elements(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Number of elements in places of their own: dimensions of stride 0 count once."""
    return math.prod(size for size, stride in zip(shape, strides, strict=True) if stride)
