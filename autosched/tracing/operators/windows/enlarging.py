"""ATen's enlarging of tensors by repeating elements (nearest)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.tracing.operators.rules import Result, UnsupportedError, arange, reshape
from autosched.tracing.operators.view_translation import expand
from autosched.tracing.values.values import Gathered, Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer

# Fractional bits of fixed-point positions: the integer part and a factor fit in the rest of 64.
_SHIFT = 30


def _nearest(result: Result, x: Value, output_size: Any, scale_factors: Any = None, *further: Any) -> Value:
    """The element at every position divided by the enlargement, rounded down."""
    if any(n % m for n, m in zip(result.shape, x.shape, strict=True)):
        return _nearest_gathered(result, x, scale_factors)
    times = [n // m for n, m in zip(result.shape, x.shape, strict=True)]
    apart = reshape(x, tuple(n for size in x.shape for n in (size, 1)))
    shape = tuple(n for pair in zip(x.shape, times, strict=True) for n in pair)
    return reshape(expand(result.part("apart", shape, x.dtype), apart, shape), result.shape, result.name)


def _nearest_gathered(result: Result, x: Value, scale_factors: Sequence[float] | None) -> Value:
    """Enlargement to a size that is no multiple: positions computed in float32, as in PyTorch."""
    rank = len(x.shape)
    first = rank - len(scale_factors or result.shape[2:])
    index: list[Value | int] = list(range(rank))
    for d in range(first, rank):
        scale = 1.0 / scale_factors[d - first] if scale_factors else x.shape[d] / result.shape[d]
        found = np.floor(np.arange(result.shape[d], dtype=np.float32) * np.float32(scale)).astype(np.int64)
        factor, start = _line_through(np.minimum(found, x.shape[d] - 1), scale)
        at = arange(result.shape[d], rank, d, f"{result.name}_at_{d}")
        index[d] = result.elementwise(
            functools.partial(_on_line, factor=factor, start=start),
            at,
            name=f"{result.name}_from_{d}",
            shape=at.shape,
            dtype="int64",
        )
    return result.of(Gathered, table=x, index=tuple(index))


def _line_through(places: npt.NDArray[np.int64], scale: float) -> tuple[int, int]:
    """A factor and a start such that (factor * i + start) >> _SHIFT is the i-th position: the same on every device,
    unlike a float32 product that is almost an integer.
    """
    factor = round(scale * 2**_SHIFT)
    passed = np.arange(len(places)) * factor
    least, most = int(np.max((places << _SHIFT) - passed)), int(np.min((places + 1 << _SHIFT) - passed)) - 1
    if least > most:
        raise UnsupportedError(f"enlarging by {1 / scale:g}, whose positions are on no line")
    return factor, (least + most) // 2


def _on_line(at: Expression, factor: int, start: int) -> Expression:
    return ex.call("shift_right", ex.add(ex.mul(at, Integer(factor)), Integer(start)), Integer(_SHIFT))


RULES: Mapping[str, Callable[..., Any]] = dict.fromkeys([f"upsample_nearest{n}d" for n in (1, 2, 3)], _nearest)
