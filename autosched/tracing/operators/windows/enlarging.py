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
    found = _places(result, x, scale_factors)
    repeated = (
        p.size % x.shape[d] == 0 and (p == np.arange(p.size) // (p.size // x.shape[d])).all() for d, p, _ in found
    )
    if not all(repeated):
        return _nearest_gathered(result, x, found)
    times = [n // m for n, m in zip(result.shape, x.shape, strict=True)]
    apart = reshape(x, tuple(n for size in x.shape for n in (size, 1)))
    shape = tuple(n for pair in zip(x.shape, times, strict=True) for n in pair)
    return reshape(expand(result.part("apart", shape, x.dtype), apart, shape), result.shape, result.name)


# A dimension, the position in it that each of the result's has, and how far these are apart.
_Places = tuple[int, npt.NDArray[np.int64], float]


def _places(result: Result, x: Value, scale_factors: Sequence[float] | None) -> list[_Places]:
    """The positions along the dimensions that are enlarged, computed in float32, as in PyTorch."""
    rank = len(x.shape)
    first = rank - len(scale_factors or result.shape[2:])
    made = []
    for d in range(first, rank):
        scale = 1.0 / scale_factors[d - first] if scale_factors else x.shape[d] / result.shape[d]
        found = np.floor(np.arange(result.shape[d], dtype=np.float32) * np.float32(scale)).astype(np.int64)
        made.append((d, np.minimum(found, x.shape[d] - 1), scale))
    return made


def _nearest_gathered(result: Result, x: Value, places: Sequence[_Places]) -> Value:
    """Enlargement whose positions are not each repeated equally often."""
    rank = len(x.shape)
    index: list[Value | int] = list(range(rank))
    for d, found, scale in places:
        factor, start = _line_through(found, scale)
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
