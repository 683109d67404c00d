"""Sums of what is put at positions known when a function is traced: each element adds what lies near its own place.

    y[i[k, o]] += v[k, o]       y[p] = sum over k, j of v[k, line(k, p) + j] where i[k, line(k, p) + j] == p

The index tensors of interpolation, and of windows as columns, are such: along their last dimension near a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from autosched.tracing.operators.joining_rules import padded
from autosched.tracing.operators.rules import Result, arange, reshape
from autosched.tracing.operators.view_translation import piece
from autosched.tracing.values.values import Gathered, Leaf, Value
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal

# Summands of an element: more than that take compilers long, and comparing all positions is an alternative.
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


def sums_near(result: Result, values: Value, dim: int, index: Value, size: int) -> Value | None:
    """The values' sums along `dim` by the position of each, of which there are `size`; None if these are not known or
    not near a line.
    """
    if not isinstance(index, Leaf) or index.tensor is None:
        return None
    positions = index.tensor.to("cpu").numpy()
    rows = np.where(positions < 0, positions + size, positions).reshape(-1, positions.shape[-1])
    found = [_near(row, size) for row in rows]
    near = [f for f in found if f is not None]
    if len(near) < len(found) or sum(f.count for f in near) > _MOST_SUMMED:
        return None
    parts = [part for number, f in enumerate(near) for part in _parts(result, values, dim, index, number, f)]
    shape = tuple(size if d == dim else n for d, n in enumerate(values.shape))
    whole = is_integer(values.dtype)
    nothing = Integer(0) if whole else Literal(0.0)

    def total(p: Expression, *rest: Expression) -> Expression:
        pairs = zip(rest[: len(parts)], rest[len(parts) :], strict=True)
        return reduce(ex.add, (ex.call("where", ex.call("eq", i, p), v, nothing) for i, v in pairs))

    at = arange(size, len(shape), dim, f"{result.name}_at")
    held, given = zip(*parts, strict=True)
    dtype = "int64" if whole else "float32"
    return result.elementwise(total, at, *held, *given, name=f"{result.name}_sums", shape=shape, dtype=dtype)


def _near(row: npt.NDArray[np.int64], size: int) -> _Near | None:
    """The narrowest range along a line that has the places of every position; None without any of them."""
    held = np.unique(row)
    order = np.argsort(row, kind="stable")
    first = order[np.searchsorted(row[order], held, "left")]
    last = order[np.searchsorted(row[order], held, "right") - 1]
    slopes = {len(row) / size, (len(row) - 1) / max(1, size - 1)}
    lines = [_along(held, first, last, round(slope * 2**SHIFT), size) for slope in sorted(slopes)]
    return min(lines, key=lambda line: line.count)


def _along(
    held: npt.NDArray[np.int64], first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], factor: int, size: int
) -> _Near:
    start = int(np.min((first + 1 << SHIFT) - 1 - held * factor))
    begin = held * factor + start >> SHIFT
    return _Near(factor, start, int(np.max(last - begin)) + 1, size)


def _parts(
    result: Result, values: Value, dim: int, index: Value, row: int, near: _Near
) -> Iterator[tuple[Value, Value]]:
    """Of every place near an element's own in a row of the index: the position held there, and the value."""
    count = index.shape[-1]
    of_row = reshape(index, (index.elements,))
    extent = near.extent(count)
    there = result.part(f"index_{row}", (extent,), index.dtype)
    whole = padded(there, piece(of_row, 0, row * count, count), [near.before], -1)
    shape = tuple(extent if d == dim else n for d, n in enumerate(values.shape))
    before = [near.before if d == dim else 0 for d in range(len(shape))]
    own = piece(values, dim, row * count, count)
    table = padded(result.part(f"values_{row}", shape, values.dtype), own, before, 0.0)
    at = arange(near.size, len(shape), dim, f"{result.name}_at")
    for j in range(near.count):
        name = f"near_{row}_{j}"
        place = result.part(name, at.shape, "int64").elementwise(lambda p, j=j: near.place(p, near.before + j), at)
        held = result.part(f"{name}_held", at.shape, "int64").of(Gathered, table=whole, index=(place,))
        around: Sequence[Value | int] = [place if d == dim else d for d in range(len(shape))]
        kept = tuple(near.size if d == dim else n for d, n in enumerate(shape))
        yield held, result.part(f"{name}_value", kept, values.dtype).of(Gathered, table=table, index=tuple(around))
