"""ATen's operators that concatenate and pad tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.tracing.operators.rules import Result, as_constant, converted, dims_of, reshape
from autosched.tracing.operators.view_translation import expand, piece
from autosched.tracing.values.values import MOST_JOINED, Joined, Padded, Value


def joined(result: Result, parts: Sequence[Value], dim: int) -> Value:
    """The parts that have elements, concatenated along a dimension."""
    whole = [converted(p, result.dtype) for p in parts if 0 not in p.shape]
    if len(whole) > MOST_JOINED:
        # Groups as large as their number, all but the last one alike: equal ones are one kernel.
        size = math.isqrt(len(whole) - 1) + 1
        groups = [whole[n : n + size] for n in range(0, len(whole), size)]
        made = tuple(joined(_group(result, group, dim, n), group, dim) for n, group in enumerate(groups))
        return result.of(Joined, parts=made, dim=dim, in_groups=True)
    return whole[0] if len(whole) == 1 else result.of(Joined, parts=tuple(whole), dim=dim)


def _group(result: Result, parts: Sequence[Value], dim: int, number: int) -> Result:
    shape = list(result.shape)
    shape[dim] = sum(p.shape[dim] for p in parts)
    return result.part(f"group_{number}", shape, result.dtype)


def padded(result: Result, x: Value, before: Sequence[int], number: float) -> Value:
    """The number everywhere in the result's shape except where x is, after `before` elements.

    Before:  y = padded(x, (1, 0), 0); z = padded(y, (2, 1), 0)
    After:   z = padded(x, (3, 1), 0)
    """
    fill = as_constant(number, result.dtype)
    if isinstance(x, Padded) and x.fill == fill:
        before = [outer + inner for outer, inner in zip(before, x.before, strict=True)]
        x = x.argument
    return result.of(Padded, argument=x, before=tuple(before), fill=fill)


def _cat(result: Result, tensors: Sequence[Value], *, dim: int = 0) -> Value:
    return joined(result, tensors, dim % len(result.shape))


def sides_of(pad: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """The padding before and after, per dimension; the last dimension comes first in `pad`."""
    given = list(zip(pad[::2], pad[1::2], strict=True))
    return [(0, 0)] * (rank - len(given)) + given[::-1]


def _cropped(x: Value, sides: Sequence[tuple[int, int]]) -> Value:
    """x without the elements that negative padding removes."""
    for d, (before, after) in enumerate(sides):
        begin, end = max(-before, 0), x.shape[d] - max(-after, 0)
        x = piece(x, d, begin, max(end - begin, 0))
    return x


def _constant_pad(result: Result, x: Value, pad: Sequence[int], *, value: float = 0) -> Value:
    sides = sides_of(pad, len(x.shape))
    inner = _cropped(x, sides)
    if 0 in inner.shape:
        return result.constant(value)
    if inner.shape == result.shape:
        return inner
    return padded(result, inner, [max(before, 0) for before, _ in sides], value)


def _mirrored(x: Value, dim: int, places: range) -> Value:
    """Elements at positions below 0 or beyond the end, reflected at the first and the last element."""
    start = -places.start if places.start < 0 else 2 * (x.shape[dim] - 1) - places.start
    return piece(x, dim, start, len(places), -1)


def _repeated(x: Value, dim: int, places: range) -> Value:
    """The first or the last element for all positions below 0 or beyond the end."""
    edge = piece(x, dim, 0 if places.start < 0 else x.shape[dim] - 1, 1)
    shape = (*x.shape[:dim], len(places), *x.shape[dim + 1 :])
    return expand(Result(f"{x.name}_wide", shape, x.dtype, x.line), edge, shape)


def _from_the_other_end(x: Value, dim: int, places: range) -> Value:
    """Elements at positions below 0 or beyond the end, with the tensor repeated periodically."""
    start = places.start + x.shape[dim] if places.start < 0 else places.start - x.shape[dim]
    return piece(x, dim, start, len(places))


def _surrounded(around: Callable[[Value, int, range], Value]) -> Callable[..., Value]:
    """A rule for padding with elements of the tensor, one dimension after the other."""

    def rule(result: Result, x: Value, pad: Sequence[int]) -> Value:
        for d, (before, after) in enumerate(sides_of(pad, len(x.shape))):
            size, end = x.shape[d], x.shape[d] + after
            below, above = range(-before, min(end, 0)), range(max(-before, size), end)
            first, last = max(-before, 0), min(end, size)
            inner = [piece(x, d, first, last - first)] if first < last else []
            parts = [*([around(x, d, below)] if below else []), *inner, *([around(x, d, above)] if above else [])]
            shape = (*x.shape[:d], before + end, *x.shape[d + 1 :])
            x = joined(result.part(str(d), shape, x.dtype), parts, d)
        return x

    return rule


def _roll(result: Result, x: Value, shifts: Any, *, dims: Any = ()) -> Value:
    given = [shifts] if isinstance(shifts, int) else list(shifts)
    if not dims:
        line = result.part("line", (x.elements,), x.dtype)
        return reshape(_roll(line, reshape(x, (x.elements,)), given, dims=[0]), x.shape)
    for n, (shift, dim) in enumerate(zip(given, [dims] if isinstance(dims, int) else dims, strict=True)):
        (d,) = dims_of(dim, len(x.shape)) or (0,)
        size = x.shape[d] if x.shape else 1
        start = -shift % size
        if start:
            part = result.part(str(n), x.shape, x.dtype)
            x = joined(part, (piece(x, d, start, size - start), piece(x, d, 0, start)), d)
    return x


RULES: Mapping[str, Callable[..., Any]] = {
    "cat": _cat,
    "constant_pad_nd": _constant_pad,
    "roll": _roll,
    "_pad_circular": _surrounded(_from_the_other_end),
    **dict.fromkeys([f"reflection_pad{n}d" for n in (1, 2, 3)], _surrounded(_mirrored)),
    **dict.fromkeys([f"replication_pad{n}d" for n in (1, 2, 3)], _surrounded(_repeated)),
}
