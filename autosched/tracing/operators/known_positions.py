"""Sums of what is put at positions known when a function is traced: each element adds what lies near its own place.

    y[i[k, o]] += v[k, o]       y[p] = sum over k, j of v[k, line(k, p) + j] where i[k, line(k, p) + j] == p

The index tensors of interpolation, and of windows as columns, are such: along their last dimension near a line.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
import torch

from autosched.tracing.operators.gather_rules import from_the_end
from autosched.tracing.operators.joining_rules import padded
from autosched.tracing.operators.rules import Result, arange, reshape
from autosched.tracing.operators.view_translation import piece
from autosched.tracing.values.values import Gathered, Leaf, Value
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal

# Summands of an element: more than that take compilers long, and all positions can be compared instead.
_MOST_SUMMED = 64
# Fractional bits of slopes: a position and a factor fit in the rest of 64.
SHIFT = 30


@dataclass(frozen=True)
class _Near:
    """The positions in a row of an index tensor that may have p: `count`, from (factor * p + start) >> SHIFT on."""

    factor: int
    start: int
    count: int
    size: int
    from_the_end: bool = False

    def first(self, p: int) -> int:
        return self.factor * p + self.start >> SHIFT

    def place(self, p: Expression, further: int) -> Expression:
        """Non-negative for every p below `size`, if `further` is at least `before`."""
        factor, rest = divmod(self.factor, 1 << SHIFT)
        if not rest:
            return ex.add(ex.mul(p, Integer(factor)), Integer((self.start >> SHIFT) + further))
        along = ex.add(ex.mul(p, Integer(self.factor)), Integer(self.start + (further << SHIFT)))
        return ex.call("shift_right", along, Integer(SHIFT))

    @property
    def before(self) -> int:
        """Positions before the row's first one that are among them."""
        return max(0, -self.first(0))

    def extent(self, given: int) -> int:
        """Positions of a row of so many that has all of them."""
        return self.before + max(given, self.first(self.size - 1) + self.count)


def sums_near(result: Result, values: Value, dim: int, index: Value, size: int, written_out: bool) -> Value | None:
    """The values' sums along `dim` by the position of each, of which there are `size`; None if these are not known or
    not near a line.
    """
    near = near_lines(index, size)
    if near is None:
        return None
    shape = tuple(size if d == dim else n for d, n in enumerate(values.shape))
    whole = is_integer(values.dtype)
    nothing, dtype = (Integer(0), "int64") if whole else (Literal(0.0), "float32")

    def chosen(p: Expression, i: Expression, v: Expression) -> Expression:
        return ex.call("where", ex.call("eq", i, p), v, nothing)

    name = f"{result.name}_sums"
    if not written_out and len(near) == 1:
        at = arange(size, len(shape) + 1, dim, f"{result.name}_at")
        held, given = _part(result, values, dim, index, (0, near[0]), None)
        of_terms = {"name": f"{result.name}_terms", "shape": (*shape, near[0].count), "dtype": dtype}
        terms = result.elementwise(chosen, at, held, given, **of_terms)
        return result.reduced("sum", terms, (len(shape),), name=name, dtype=dtype)
    at = arange(size, len(shape), dim, f"{result.name}_at")
    each = [(n, one, place) for n, one in enumerate(near) for place in range(one.count)]
    parts = [_part(result, values, dim, index, (n, one), place) for n, one, place in each]

    def total(p: Expression, *rest: Expression) -> Expression:
        return reduce(ex.add, (chosen(p, i, v) for i, v in zip(rest[::2], rest[1::2], strict=True)))

    return result.elementwise(total, at, *itertools.chain(*parts), name=name, shape=shape, dtype=dtype)


def near_lines(index: Value, size: int) -> list[_Near] | None:
    """For each row of an index tensor the line that its positions are near to; None if they are not, or not known."""
    if not isinstance(index, Leaf) or index.tensor is None or not index.folded or not index.shape:
        return None
    positions = index.tensor.to("cpu", torch.int64).numpy()
    rows = np.where(positions < 0, positions + size, positions).reshape(-1, positions.shape[-1])
    found = [replace(_near(row, size), from_the_end=bool((positions < 0).any())) for row in rows]
    return found if sum(near.count for near in found) <= _MOST_SUMMED else None


def _near(row: npt.NDArray[np.int64], size: int) -> _Near:
    """The narrowest range along a line that has the places of every position."""
    held = np.unique(row)
    order = np.argsort(row, kind="stable")
    first = order[np.searchsorted(row[order], held, "left")]
    last = order[np.searchsorted(row[order], held, "right") - 1]
    slopes = {len(row) / size, (len(row) - 1) / max(1, size - 1), round(len(row) / size)}
    lines = [_along(held, first, last, round(slope * 2**SHIFT), size) for slope in sorted(slopes)]
    # Along a whole number the places are affine, which is worth reading one more.
    return min(lines, key=lambda line: line.count + (line.factor % (1 << SHIFT) != 0))


def _along(
    held: npt.NDArray[np.int64], first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], factor: int, size: int
) -> _Near:
    start = int(np.min((first + 1 << SHIFT) - 1 - held * factor))
    begin = held * factor + start >> SHIFT
    return _Near(factor, start, int(np.max(last - begin)) + 1, size)


def _part(
    result: Result, values: Value, dim: int, index: Value, row: tuple[int, _Near], place: int | None
) -> tuple[Value, Value]:
    """At a place of those near an element's own in a row of the index, or at each along a last dimension: the position
    that the index has there, and the value.
    """
    number, near = row
    count, rank = index.shape[-1], len(values.shape)
    extent, first = near.extent(count), number * count
    of_row = piece(reshape(index, (index.elements,)), 0, first, count)
    if near.from_the_end:
        of_row = from_the_end(of_row, near.size)
    there = result.part(f"index_{number}", (extent,), index.dtype)
    held = padded(there, of_row, [near.before], -1)
    shape = tuple(extent if d == dim else n for d, n in enumerate(values.shape))
    table = padded(
        result.part(f"values_{number}", shape, values.dtype),
        piece(values, dim, first, count),
        [near.before if d == dim else 0 for d in range(rank)],
        0.0,
    )
    last = () if place is not None else (near.count,)
    at = arange(near.size, rank + len(last), dim, f"{result.name}_at")
    further = [] if place is not None else [arange(near.count, rank + 1, rank, f"{result.name}_further")]

    def where(p: Expression, *j: Expression) -> Expression:
        begin = near.place(p, near.before + (place or 0))
        return ex.add(begin, *j) if j else begin

    name = f"near_{number}_{'each' if place is None else place}"
    own = tuple(near.size if d == dim else 1 for d in range(rank))
    found = result.part(name, (*own, *last), "int64").elementwise(where, at, *further)
    around: Sequence[Value | int] = [found if d == dim else d for d in range(rank)]
    kept = tuple(near.size if d == dim else n for d, n in enumerate(shape))
    of_value = result.part(f"{name}_value", (*kept, *last), values.dtype)
    return (
        result.part(f"{name}_held", found.shape, "int64").of(Gathered, table=held, index=(found,)),
        of_value.of(Gathered, table=table, index=tuple(around)),
    )
