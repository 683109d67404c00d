"""ATen's gradients of pooling, and of padding with the elements at the ends.

An element's gradient is a sum over the windows that contain it: no store has an index that is data. An element at p,
counted from the start of the first window, is in the window p // step and in some before that one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from autosched.tracing.operators.joining_rules import padded, sides_of
from autosched.tracing.operators.rules import Result, UnsupportedError, arange, converted
from autosched.tracing.operators.view_translation import piece
from autosched.tracing.operators.windows.adaptive import (
    AdaptiveWindows,
    adaptive_windows,
    at_places,
    over_sizes,
    sum_of,
)
from autosched.tracing.operators.windows.pooling import count_of, equal_sizes
from autosched.tracing.operators.windows.windows import Window, windows_of
from autosched.tracing.values.values import Gathered, Value
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal
from search_spaces.workloads.strides import dense_strides

# Summands of an element, and windows that contain one: compilers take a second for a few hundred.
_MOST_SUMMED = 256


@dataclass(frozen=True)
class _Covering:
    """The windows along a dimension that may contain an element, by their distances before the last one that starts."""

    window: Window
    extent: int

    @property
    def back(self) -> range:
        return range((self.window.size - 1) * self.window.spacing // self.window.step + 1)

    @property
    def last(self) -> int:
        """The last window that starts before the end of the dimension, existing or not."""
        return (self.extent - 1 + self.window.before) // self.window.step

    def begun(self, i: Expression) -> Expression:
        """The last window that starts at this element or before it."""
        along = ex.add(i, Integer(self.window.before))
        return along if self.window.step == 1 else ex.call("quotient", along, Integer(self.window.step))

    def conditions(self, i: Expression, back: int) -> list[Expression]:
        """Conditions for the window `back` before the last to contain position i: none where it always does."""
        w = self.window
        if w.step == 1:
            return [] if back % w.spacing == 0 else [Literal(0.0)]
        started = ex.mul(ex.sub(self.begun(i), Integer(back)), Integer(w.step))
        within = ex.sub(ex.add(i, Integer(w.before)), started)
        found: list[Expression] = []
        if (back + 1) * w.step > (w.size - 1) * w.spacing + 1:
            found.append(ex.call("le", within, Integer((w.size - 1) * w.spacing)))
        if w.spacing > 1:
            whole = ex.mul(ex.call("quotient", within, Integer(w.spacing)), Integer(w.spacing))
            found.append(ex.call("eq", within, whole))
        return found


@dataclass(frozen=True)
class _Coverings:
    """The windows that contain an element of the result: `places` are combinations of one along every dimension."""

    result: Result
    along: tuple[_Covering, ...]

    @property
    def places(self) -> list[tuple[int, ...]]:
        return list(itertools.product(*(h.back for h in self.along)))

    def positions(self) -> list[Value]:
        """Positions of an element along every dimension with windows."""
        rank = len(self.result.shape)
        return [arange(h.extent, rank, h.window.dim, f"{self.result.name}_at_{h.window.dim}") for h in self.along]

    def of_each(self, given: Value, outside: float) -> list[Value]:
        """For every place, the given value of the window there; `outside` where there is none."""
        shape, before = list(given.shape), [0] * len(given.shape)
        for h in self.along:
            before[h.window.dim] = h.back[-1]
            shape[h.window.dim] = h.back[-1] + max(h.window.count, h.last + 1)
        whole = padded(self.result.part(f"{given.name}_around", shape, given.dtype), given, before, outside)
        return [self._at(whole, place) for place in self.places]

    def _at(self, whole: Value, place: tuple[int, ...]) -> Value:
        index: list[Value | int] = list(range(len(self.result.shape)))
        for h, back, at in zip(self.along, place, self.positions(), strict=True):
            name = f"{at.name}_back_{back}"
            index[h.window.dim] = Result(name, at.shape, "int64", self.result.line).elementwise(
                lambda i, h=h, back=back: ex.add(h.begun(i), Integer(h.back[-1] - back)), at
            )
        name = f"{whole.name}_{'_'.join(map(str, place))}"
        return self.result.of(Gathered, name=name, dtype=whole.dtype, table=whole, index=tuple(index))


def _coverings(result: Result, gradient: Value, x: Value, *windows: Any) -> _Coverings:
    found = windows_of(replace(result, shape=gradient.shape), x, *windows)
    coverings = _Coverings(result, tuple(_Covering(w, x.shape[w.dim]) for w in found))
    if len(coverings.places) > _MOST_SUMMED:
        raise UnsupportedError(f"elements that are in {len(coverings.places)} windows; at most {_MOST_SUMMED}")
    return coverings


def _total(summands: Sequence[Expression]) -> Expression:
    return reduce(ex.add, summands) if summands else Literal(0.0)


def _max_pool(
    result: Result,
    gradient: Value,
    x: Value,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    places: Value,
) -> Value:
    """Max pooling's gradient: an element sums the gradients of the windows whose maximum it is.

    `ceil_mode` is in the shape of the gradient.
    """
    covering = _coverings(result, gradient, x, kernel_size, stride, padding, dilation)
    steps = dense_strides(tuple(h.extent for h in covering.along))
    at, count = covering.positions(), len(covering.places)

    def total(*elements: Expression) -> Expression:
        own, rest = elements[: len(at)], elements[len(at) :]
        here = reduce(ex.add, (ex.mul(i, Integer(step)) for i, step in zip(own, steps, strict=True)))
        summands = zip(rest[:count], rest[count:], strict=True)
        return _total([ex.call("where", ex.call("eq", p, here), g, Literal(0.0)) for g, p in summands])

    return result.pointwise(total, *at, *covering.of_each(gradient, 0.0), *covering.of_each(places, -1))


def _avg_pool(
    result: Result,
    gradient: Value,
    x: Value,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    """Average pooling's gradient: an element sums its shares of the gradients of windows that contain it.

    `ceil_mode` is in the gradient's shape.
    """
    if not is_float(x.dtype):
        raise UnsupportedError(f"means of {x.dtype}")
    covering = _coverings(result, gradient, x, kernel_size, stride, padding, 1)
    windows, extents = [h.window for h in covering.along], [h.extent for h in covering.along]
    beyond = [w.before if count_include_pad else 0 for w in windows]
    counts = [w.elements(n, b) for w, n, b in zip(windows, extents, beyond, strict=True)]
    count: float | None = divisor_override
    if count is None and all(len(set(c)) == 1 for c in counts):
        count = math.prod(c[0] for c in counts)
    if count is None:
        along = [arange(w.count, len(x.shape), w.dim, f"{result.name}_window_{w.dim}") for w in windows]
        gradient = result.elementwise(
            lambda g, *at: ex.div(g, ex.call("to_float", count_of(at, windows, extents, beyond))),
            *(gradient, *along),
            name=f"{result.name}_part",
            shape=gradient.shape,
            dtype="float32",
        )
    at = covering.positions()

    def total(*elements: Expression) -> Expression:
        summands = []
        for place, g in zip(covering.places, elements[len(at) :], strict=True):
            inside = [c for h, i, b in zip(covering.along, elements, place, strict=False) for c in h.conditions(i, b)]
            summands.append(ex.call("where", reduce(ex.mul, inside), g, Literal(0.0)) if inside else g)
        return _total(summands) if count is None else ex.div(_total(summands), Literal(float(count)))

    return result.pointwise(total, *at, *covering.of_each(gradient, 0.0))


def _adaptive_avg_pool(rank: int) -> Callable[..., Value]:
    """A rule for windows along the last dimensions, as many as `rank`."""

    def rule(result: Result, gradient: Value, x: Value) -> Value:
        if (sizes := equal_sizes(x.shape, gradient.shape, rank)) is not None:
            return _avg_pool(result, gradient, x, sizes, (), 0, False, True, None)
        windows = adaptive_windows(x.shape, gradient.shape, rank)
        share = over_sizes(result.part("share", gradient.shape, "float32"), gradient, windows)
        return converted(sum_of(result, share, adaptive_windows(gradient.shape, x.shape, rank)), result.dtype)

    return rule


def _adaptive_max_pool(rank: int) -> Callable[..., Value]:
    """A rule for windows along the last dimensions, as many as `rank`."""

    def rule(result: Result, gradient: Value, x: Value, places: Value) -> Value:
        if (sizes := equal_sizes(x.shape, gradient.shape, rank)) is not None:
            return _max_pool(result, gradient, x, sizes, (), 0, 1, False, places)
        return _of_maxima(result, gradient, places, adaptive_windows(gradient.shape, x.shape, rank))

    return rule


def _of_maxima(result: Result, gradient: Value, places: Value, around: Sequence[AdaptiveWindows]) -> Value:
    """The sum, for every element, of the gradients of the windows around it whose maximum it is."""
    if math.prod(w.longest for w in around) > _MOST_SUMMED:
        raise UnsupportedError(f"elements that are in over {_MOST_SUMMED} windows")
    slopes, found = at_places(result, gradient, around), at_places(result, places, around)
    at = [arange(w.count, len(result.shape), w.dim, f"{result.name}_own_{w.dim}") for w in around]
    steps = dense_strides(tuple(w.count for w in around))

    def total(*elements: Expression) -> Expression:
        own, rest = elements[: len(at)], elements[len(at) :]
        here = reduce(ex.add, (ex.mul(i, Integer(step)) for i, step in zip(own, steps, strict=True)))
        summands = []
        for place, g, p in zip(slopes, rest[: len(slopes)], rest[len(slopes) :], strict=True):
            # Where there are fewer windows, the last one is there again.
            more = [ex.call("lt", Integer(j), w.size(i)) for w, i, j in zip(around, own, place, strict=True) if j]
            condition = reduce(ex.mul, [ex.call("eq", p, here), *more])
            summands.append(ex.call("where", condition, g, Literal(0.0)))
        return _total(summands)

    return result.pointwise(total, *at, *slopes.values(), *found.values())


def _replication_pad(result: Result, gradient: Value, x: Value, padding: Sequence[int]) -> Value:
    """Replication padding's gradient: end elements also sum the gradients of their copies, one dimension after the
    other.
    """
    around = sides_of(padding, len(x.shape))
    if math.prod(max(1, b + a) for b, a in around) > _MOST_SUMMED:
        raise UnsupportedError(f"elements that are repeated over {_MOST_SUMMED} times")
    for d, (before, after) in enumerate(around):
        if before or after:
            gradient = _folded_back(result, gradient, d, x.shape[d], before)
    return result.elementwise(lambda g: g, gradient) if gradient.dtype == result.dtype else _rounded(result, gradient)


def _rounded(result: Result, gradient: Value) -> Value:
    return result.pointwise(lambda g: g, gradient)


def _folded_back(result: Result, gradient: Value, dim: int, size: int, before: int) -> Value:
    """The gradient without the padding around `size` elements of a dimension, which is added to the nearest of them."""
    total = gradient.shape[dim]
    shape = (*gradient.shape[:dim], size, *gradient.shape[dim + 1 :])
    at = arange(size, len(shape), dim, f"{result.name}_at_{dim}")
    first, last = max(-before, 0), min(total - before, size)
    own = piece(gradient, dim, max(before, 0), last - first)
    if (first, last) != (0, size):
        start = [first if d == dim else 0 for d in range(len(shape))]
        own = padded(result.part(f"own_{dim}", shape, gradient.dtype), own, start, 0.0)
    low = [piece(gradient, dim, k, 1) for k in range(min(before, total))]
    high = [piece(gradient, dim, k, 1) for k in range(max(size + before, 0), total)]

    def combine(i: Expression, g: Expression, *edges: Expression) -> Expression:
        for end, given in ((0, edges[: len(low)]), (size - 1, edges[len(low) :])):
            if given:
                g = ex.add(g, ex.call("where", ex.call("eq", i, Integer(end)), _total(given), Literal(0.0)))
        return g

    name = f"{result.name}_along_{dim}"
    return result.elementwise(combine, at, own, *low, *high, name=name, shape=shape, dtype="float32")


RULES: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys([f"max_pool{n}d_with_indices_backward" for n in (2, 3)], _max_pool),
    **dict.fromkeys([f"avg_pool{n}d_backward" for n in (2, 3)], _avg_pool),
    **{f"_adaptive_avg_pool{n}d_backward": _adaptive_avg_pool(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d_backward": _adaptive_max_pool(n) for n in (2, 3)},
    **dict.fromkeys([f"replication_pad{n}d_backward" for n in (1, 2, 3)], _replication_pad),
}

# Operators that take the positions of maxima on trust: their last argument. Of others PyTorch writes beyond the result.
ON_TRUST = frozenset(name for name in RULES if "max_pool" in name)
