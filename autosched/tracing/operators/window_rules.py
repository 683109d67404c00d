"""ATen's operators on windows: pooling, and enlarging by integer factors.

Windows along a dimension add a dimension, of the positions in a window, which is reduced.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.tracing.operators.joining_rules import padded
from autosched.tracing.operators.rules import Result, UnsupportedError, arange, converted, reshape
from autosched.tracing.operators.view_translation import expand, piece, view
from autosched.tracing.values.values import Gathered, Value
from autosched.tracing.values.views import Windows
from search_spaces.workloads.dtypes import is_float, range_of
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal
from search_spaces.workloads.strides import dense_strides

# Fractional bits of fixed-point positions: the integer part and a factor fit in the rest of 64.
_SHIFT = 30
# Windows of up to this many elements find the position of their maximum by comparing each.
_MOST_PLACES = 64


@dataclass(frozen=True)
class Window:
    """The windows along a dimension: size, step between windows, and spacing of elements (dilation)."""

    dim: int
    size: int
    step: int
    before: int
    spacing: int
    count: int

    @property
    def reach(self) -> int:
        """Elements covered by all windows, including those before the tensor's first."""
        return (self.count - 1) * self.step + (self.size - 1) * self.spacing + 1

    def elements(self, extent: int, padding: int) -> list[int]:
        """Number of the tensor's elements in each window, with `padding` more at both ends counted."""
        starts = [n * self.step - self.before for n in range(self.count)]
        return [min(s + self.size, extent + padding) - max(s, -padding) for s in starts]


def windows_of(result: Result, x: Value, size: Any, step: Any, padding: Any, spacing: Any) -> list[Window]:
    """The windows along the last dimensions; a single number serves all of them."""
    count = len(size) if len(size) > 1 else len(x.shape) - 1 if len(x.shape) < 3 else None
    rank = count or (2 if len(x.shape) < 5 else 3)
    sizes, steps, before, apart = (_all(v, rank) for v in (size, step or size, padding, spacing))
    first = len(x.shape) - rank
    found = zip(range(first, len(x.shape)), sizes, steps, before, apart, result.shape[first:], strict=True)
    return [Window(*each) for each in found]


def _all(given: Any, rank: int) -> list[int]:
    values = [given] if isinstance(given, int) else list(given)
    return values * rank if len(values) == 1 else values


def _covered(result: Result, x: Value, windows: Sequence[Window], outside: float) -> Value:
    """The elements that the windows cover, with `outside` beyond the ends of the tensor."""
    shape, before = list(x.shape), [0] * len(x.shape)
    for w in windows:
        shape[w.dim], before[w.dim] = w.reach, w.before
    for d, (size, start) in enumerate(zip(shape, before, strict=True)):
        x = piece(x, d, 0, min(x.shape[d], size - start))
    return x if x.shape == tuple(shape) else padded(result.part("padded", shape, x.dtype), x, before, outside)


def _folded(result: Result, operator: str, x: Value, windows: Sequence[Window], dtype: str) -> Value:
    """The reduction of every window."""
    shape = list(x.shape)
    for w in windows:
        shape[w.dim] = w.count
        shape.append(w.size)
        x = view(result.part(f"windows_{w.dim}", shape, x.dtype), x, Windows(w.dim, w.size, w.step, w.spacing))
    along = range(len(shape) - len(windows), len(shape))
    return result.reduced(operator, x, along, name=f"{result.name}_folded", dtype=dtype)


def _places_of(result: Result, x: Value, extents: Sequence[int], windows: Sequence[Window], top: Value) -> Value:
    """The position in the tensor of every window's maximum: the first one, or the last NaN.

    `x`: the elements that the windows cover; `extents`: of the tensor, along the dimensions that have windows.
    """
    places = list(itertools.product(*(range(w.size) for w in windows)))
    elements = [_at_place(x, windows, place) for place in places]
    along = [arange(w.count, len(x.shape), w.dim, f"{result.name}_at_{w.dim}") for w in windows]

    steps = dense_strides(tuple(extents))
    # Offset of each position from the first one of its window.
    further = [sum(n * w.spacing * s for n, w, s in zip(p, windows, steps, strict=True)) for p in places]

    def chosen(t: Expression, *rest: Expression) -> Expression:
        at, given = rest[: len(windows)], rest[len(windows) :]
        made: Expression = Integer(further[-1])
        for e, place, number in list(zip(given, places, further, strict=True))[-2::-1]:
            inside = _inside(at, extents, windows, place)
            made = ex.call("where", functools.reduce(ex.mul, inside, ex.call("eq", e, t)), Integer(number), made)
        for e, number in zip(given, further, strict=True) if is_float(x.dtype) else ():
            made = ex.call("where", ex.call("eq", e, e), made, Integer(number))
        for i, w, step in zip(at, windows, steps, strict=True):
            made = ex.add(made, ex.mul(ex.sub(ex.mul(i, Integer(w.step)), Integer(w.before)), Integer(step)))
        return made

    name = f"{result.name}_places"
    return result.elementwise(chosen, top, *along, *elements, name=name, shape=top.shape, dtype="int64")


def _at_place(x: Value, windows: Sequence[Window], place: Sequence[int]) -> Value:
    """The element of every window at this position in it."""
    for w, at in zip(windows, place, strict=True):
        x = piece(x, w.dim, at * w.spacing, w.count, w.step)
    return x


def _inside(
    at: Sequence[Expression], extents: Sequence[int], windows: Sequence[Window], place: Sequence[int]
) -> list[Expression]:
    """The conditions for a position in a window to be inside the tensor, if it is not always."""
    found: list[Expression] = []
    for i, extent, w, n in zip(at, extents, windows, place, strict=True):
        first = n * w.spacing - w.before
        here = ex.add(ex.mul(i, Integer(w.step)), Integer(first))
        found += [ex.call("le", Integer(0), here)] if first < 0 else []
        found += [ex.call("lt", here, Integer(extent))] if (w.count - 1) * w.step + first >= extent else []
    return found


def _max_pool(
    result: Result,
    x: Value,
    kernel_size: Any,
    *,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Value, ...]:
    """Maximum of every window, and its position. `ceil_mode` is in the shape of the result."""
    windows = windows_of(result, x, kernel_size, stride, padding, dilation)
    least = -math.inf if is_float(x.dtype) else range_of(x.dtype)[0]
    covered = _covered(result, x, windows, least)
    top = _folded(result, "max", covered, windows, x.dtype)
    if math.prod(w.size for w in windows) > _MOST_PLACES:
        return (top,)
    return top, _places_of(result, covered, [x.shape[w.dim] for w in windows], windows, top)


def _avg_pool(
    result: Result,
    x: Value,
    kernel_size: Any,
    *,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """Mean of every window, by its number of elements. `ceil_mode` is in the shape of the result."""
    if not is_float(x.dtype):
        raise UnsupportedError(f"means of {x.dtype}")
    windows = windows_of(result, x, kernel_size, stride, padding, 1)
    total = _folded(result, "sum", converted(_covered(result, x, windows, 0.0), "float32"), windows, "float32")
    if divisor_override is not None:
        return _over(result, total, float(divisor_override))
    extents, beyond = [x.shape[w.dim] for w in windows], [w.before if count_include_pad else 0 for w in windows]
    counts = [w.elements(n, b) for w, n, b in zip(windows, extents, beyond, strict=True)]
    if all(len(set(c)) == 1 for c in counts):
        return _over(result, total, float(math.prod(c[0] for c in counts)))
    along = [arange(w.count, len(x.shape), w.dim, f"{result.name}_at_{w.dim}") for w in windows]

    def mean(t: Expression, *at: Expression) -> Expression:
        return ex.div(t, ex.call("to_float", count_of(at, windows, extents, beyond)))

    return result.pointwise(mean, total, *along)


def count_of(
    at: Sequence[Expression], windows: Sequence[Window], extents: Sequence[int], beyond: Sequence[int]
) -> Expression:
    """Number of elements in the windows at these positions, with `beyond` more past the ends of the tensor counted."""
    found: Expression = Integer(1)
    for i, w, extent, further in zip(at, windows, extents, beyond, strict=True):
        start = ex.sub(ex.mul(i, Integer(w.step)), Integer(w.before))
        end = ex.call("minimum", ex.add(start, Integer(w.size)), Integer(extent + further))
        found = ex.mul(found, ex.sub(end, ex.call("maximum", start, Integer(-further))))
    return found


def _over(result: Result, total: Value, count: float) -> Value:
    return result.pointwise(lambda t: ex.div(t, Literal(count)), total)


def _adaptive_avg_pool(result: Result, x: Value, output_size: Any) -> Value:
    return _avg_pool(result, x, _adapted(result, x, len(output_size)))


def _adaptive_max_pool(result: Result, x: Value, output_size: Any) -> tuple[Value, ...]:
    return _max_pool(result, x, _adapted(result, x, len(output_size)))


def _adapted(result: Result, x: Value, rank: int) -> list[int]:
    """Window sizes that divide each dimension into the result's number of equal windows."""
    pairs = list(zip(x.shape[-rank:], result.shape[-rank:], strict=True))
    if any(n % m for n, m in pairs):
        raise UnsupportedError(f"windows of several sizes, as {result.shape[-rank:]} of {x.shape[-rank:]} are")
    return [n // m for n, m in pairs]


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


RULES: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), _max_pool),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _avg_pool),
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _adaptive_avg_pool),
    **dict.fromkeys(("adaptive_max_pool2d", "adaptive_max_pool3d"), _adaptive_max_pool),
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"), _nearest),
}
