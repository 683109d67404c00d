"""ATen's pooling."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.tracing.operators.rules import Result, UnsupportedError, arange, converted
from autosched.tracing.operators.windows.adaptive import adaptive_windows, maximum_of, over_sizes, place_of, sum_of
from autosched.tracing.operators.windows.windows import Window, at_place, covered, folded, windows_of
from autosched.tracing.values.values import Value
from search_spaces.workloads.dtypes import is_float, range_of
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal
from search_spaces.workloads.strides import dense_strides

# Windows of up to this many elements find the position of their maximum by comparing each.
_MOST_PLACES = 64


def _places_of(result: Result, x: Value, extents: Sequence[int], windows: Sequence[Window], top: Value) -> Value:
    """The position in the tensor of every window's maximum: the first one, or the last NaN.

    `x`: the elements that the windows cover; `extents`: of the tensor, along the dimensions that have windows.
    """
    places = list(itertools.product(*(range(w.size) for w in windows)))
    elements = [at_place(x, windows, place) for place in places]
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
    inside = covered(result, x, windows, least)
    top = folded(result, "max", inside, windows, x.dtype)
    if math.prod(w.size for w in windows) > _MOST_PLACES:
        return (top,)
    return top, _places_of(result, inside, [x.shape[w.dim] for w in windows], windows, top)


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
    total = folded(result, "sum", converted(covered(result, x, windows, 0.0), "float32"), windows, "float32")
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
    sizes = equal_sizes(x.shape, result.shape, len(output_size))
    if sizes is not None:
        return _avg_pool(result, x, sizes)
    windows = adaptive_windows(x.shape, result.shape, len(output_size))
    return over_sizes(result, sum_of(result, x, windows), windows)


def _adaptive_max_pool(result: Result, x: Value, output_size: Any) -> tuple[Value, ...]:
    sizes = equal_sizes(x.shape, result.shape, len(output_size))
    if sizes is not None:
        return _max_pool(result, x, sizes)
    windows = adaptive_windows(x.shape, result.shape, len(output_size))
    top = maximum_of(result, x, windows)
    if math.prod(w.longest for w in windows) > _MOST_PLACES:
        return (top,)
    return top, place_of(result, x, windows, top)


def equal_sizes(shape: Sequence[int], counts: Sequence[int], rank: int) -> list[int] | None:
    """Window sizes that divide each of the last dimensions into as many equal windows; None if some do not."""
    pairs = list(zip(shape[-rank:], counts[-rank:], strict=True))
    return None if any(n % m for n, m in pairs) else [n // m for n, m in pairs]


RULES: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), _max_pool),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _avg_pool),
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _adaptive_avg_pool),
    **dict.fromkeys(("adaptive_max_pool2d", "adaptive_max_pool3d"), _adaptive_max_pool),
}
