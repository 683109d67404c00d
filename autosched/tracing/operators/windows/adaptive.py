"""Adaptive windows: m of them cover a dimension of n elements, and have several sizes where m does not divide n.

Window i begins at floor(i n / m) and ends before ceil((i + 1) n / m). An element p is in the windows from
floor(p m / n) to before ceil((p + 1) m / n): the same with n and m exchanged, so that a gradient is a sum over adaptive
windows, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from autosched.tracing.operators.rules import Result, arange, converted
from autosched.tracing.values.values import Gathered, Value
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal
from search_spaces.workloads.strides import dense_strides


@dataclass(frozen=True)
class AdaptiveWindows:
    """`count` windows along dimension `dim` of `extent` elements."""

    dim: int
    extent: int
    count: int

    @property
    def longest(self) -> int:
        return max(-(-(i + 1) * self.extent // self.count) - i * self.extent // self.count for i in range(self.count))

    def start(self, i: Expression) -> Expression:
        return ex.call("quotient", ex.mul(i, Integer(self.extent)), Integer(self.count))

    def size(self, i: Expression) -> Expression:
        return ex.sub(self._end(i), self.start(i))

    def place(self, i: Expression, j: Expression) -> Expression:
        """The position of the j-th element of window i, or of its last one."""
        return ex.call("minimum", ex.add(self.start(i), j), ex.sub(self._end(i), Integer(1)))

    def _end(self, i: Expression) -> Expression:
        above = ex.add(ex.mul(ex.add(i, Integer(1)), Integer(self.extent)), Integer(self.count - 1))
        return ex.call("quotient", above, Integer(self.count))


def adaptive_windows(extents: Sequence[int], counts: Sequence[int], rank: int) -> list[AdaptiveWindows]:
    """The windows along the last dimensions of a tensor of this rank."""
    pairs = zip(extents[-rank:], counts[-rank:], strict=True)
    return [AdaptiveWindows(len(extents) - rank + d, n, m) for d, (n, m) in enumerate(pairs)]


def maximum_of(result: Result, x: Value, windows: Sequence[AdaptiveWindows]) -> Value:
    """The maximum of every window. What is read twice where a window is short changes nothing."""
    within = _within(result, x, windows)
    return result.reduced("max", within, range(len(x.shape), len(within.shape)), dtype=x.dtype)


def place_of(result: Result, x: Value, windows: Sequence[AdaptiveWindows], top: Value) -> Value:
    """The position in the tensor of every window's maximum: the first one, or the last NaN."""
    elements = at_places(result, x, windows)
    along = [arange(w.count, len(x.shape), w.dim, f"{result.name}_at_{w.dim}") for w in windows]
    steps = dense_strides(tuple(w.extent for w in windows))

    def chosen(t: Expression, *rest: Expression) -> Expression:
        at, given = rest[: len(windows)], rest[len(windows) :]
        places = [_position(windows, steps, at, place) for place in elements]
        made = places[-1]
        for e, place in list(zip(given, places, strict=True))[-2::-1]:
            made = ex.call("where", ex.call("eq", e, t), place, made)
        for e, place in zip(given, places, strict=True) if is_float(x.dtype) else ():
            made = ex.call("where", ex.call("eq", e, e), made, place)
        return made

    name = f"{result.name}_places"
    return result.elementwise(chosen, top, *along, *elements.values(), name=name, shape=top.shape, dtype="int64")


def at_places(result: Result, x: Value, windows: Sequence[AdaptiveWindows]) -> dict[tuple[int, ...], Value]:
    """By place in a window, the element there of every window, or its last one."""
    found: dict[tuple[int, ...], Value] = {}
    for place in itertools.product(*(range(w.longest) for w in windows)):
        index: list[Value | int] = list(range(len(x.shape)))
        shape = list(x.shape)
        for w, j in zip(windows, place, strict=True):
            at = arange(w.count, len(x.shape), w.dim, f"{result.name}_at_{w.dim}")
            part = result.part(f"{x.name}_from_{w.dim}_{j}", at.shape, "int64")
            index[w.dim] = part.elementwise(lambda i, w=w, j=j: w.place(i, Integer(j)), at)
            shape[w.dim] = w.count
        name = f"{x.name}_{'_'.join(map(str, place))}"
        found[place] = result.part(name, shape, x.dtype).of(Gathered, table=x, index=tuple(index))
    return found


def _position(
    windows: Sequence[AdaptiveWindows], steps: Sequence[int], at: Sequence[Expression], place: Sequence[int]
) -> Expression:
    """The position in the tensor, along the dimensions with windows, of a place in the windows at these positions."""
    along = zip(windows, steps, at, place, strict=True)
    return reduce(ex.add, (ex.mul(w.place(i, Integer(j)), Integer(step)) for w, step, i, j in along))


def sum_of(result: Result, x: Value, windows: Sequence[AdaptiveWindows]) -> Value:
    """The sum of every window, in float32."""
    within = _within(result, converted(x, "float32"), windows)
    rank, total = len(x.shape), len(within.shape)
    at = [arange(w.count, total, w.dim, f"{result.name}_at_{w.dim}") for w in windows]
    inside = [arange(w.longest, total, rank + n, f"{result.name}_in_{w.dim}") for n, w in enumerate(windows)]

    def counted(element: Expression, *places: Expression) -> Expression:
        pairs = zip(windows, places[: len(windows)], places[len(windows) :], strict=True)
        conditions = [ex.call("lt", j, w.size(i)) for w, i, j in pairs]
        return ex.call("where", reduce(ex.mul, conditions), element, Literal(0.0))

    name = f"{result.name}_counted"
    fields = {"name": name, "shape": within.shape, "dtype": "float32"}
    summed = result.elementwise(counted, within, *at, *inside, **fields)
    return result.reduced("sum", summed, range(rank, total), name=f"{result.name}_sum", dtype="float32")


def over_sizes(result: Result, total: Value, windows: Sequence[AdaptiveWindows]) -> Value:
    """Every element divided by the number of elements in its window."""
    at = [arange(w.count, len(total.shape), w.dim, f"{result.name}_window_{w.dim}") for w in windows]

    def mean(t: Expression, *places: Expression) -> Expression:
        count = reduce(ex.mul, (w.size(i) for w, i in zip(windows, places, strict=True)))
        return ex.div(t, ex.call("to_float", count))

    return result.pointwise(mean, total, *at)


def _within(result: Result, x: Value, windows: Sequence[AdaptiveWindows]) -> Value:
    """The elements of every window, with a dimension for each kind of windows at the end."""
    rank = len(x.shape)
    shape = list(x.shape)
    for w in windows:
        shape[w.dim] = w.count
        shape.append(w.longest)
    index: list[Value | int] = list(range(rank))
    for number, w in enumerate(windows):
        at = arange(w.count, len(shape), w.dim, f"{result.name}_at_{w.dim}")
        inside = arange(w.longest, len(shape), rank + number, f"{result.name}_in_{w.dim}")
        places = [w.count if d == w.dim else w.longest if d == rank + number else 1 for d in range(len(shape))]
        part = result.part(f"from_{w.dim}", places, "int64")
        index[w.dim] = part.elementwise(w.place, at, inside)
    return result.part("within", shape, x.dtype).of(Gathered, table=x, index=tuple(index))
