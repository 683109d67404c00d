"""ATen's scatters into a copy of a tensor.

Every element of the result tests whether it is replaced, and gathers its replacement: no store has an index that is
data. Each element compares its position with all positions that are data, so their number is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from autosched.tracing.operators.gather_rules import from_the_end
from autosched.tracing.operators.joining_rules import joined, padded
from autosched.tracing.operators.known_positions import sums_near
from autosched.tracing.operators.own_segments import of_segments
from autosched.tracing.operators.rules import Result, UnsupportedError, arange, constant_number, converted, reshape
from autosched.tracing.operators.segments import MOST_COMPARED, bounds_of_ends, ends_of, inside_alone
from autosched.tracing.operators.view_translation import expand, first_of, permute, piece
from autosched.tracing.values.conversions import wrapped
from autosched.tracing.values.values import Gathered, Value
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer, Literal


def _copy(result: Result, x: Value, source: Value) -> Value:
    """All of x replaced by the source, in the element type and the shape of x."""
    return expand(result, converted(source, result.dtype), result.shape)


def _slice_scatter(
    result: Result, x: Value, source: Value, *, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    d, extent = dim % len(x.shape), x.shape[dim]
    begin = first_of(start, extent)
    count = source.shape[d]
    if (count, step) == (extent, 1):
        return _copy(result, x, source)
    if step == 1:
        return _between(result, x, converted(source, result.dtype), d, begin)
    at = arange(extent, len(x.shape), d, f"{result.name}_at")

    def place(p: Expression) -> Expression:
        """The position in the source: the nearest one, where there is none."""
        steps = ex.call("quotient", ex.sub(p, Integer(begin)), Integer(step))
        return ex.call("maximum", Integer(0), ex.call("minimum", steps, Integer(count - 1)))

    def chosen(p: Expression, new: Expression, old: Expression) -> Expression:
        here = ex.add(ex.mul(place(p), Integer(step)), Integer(begin))
        return ex.call("where", ex.call("eq", here, p), new, old)

    index = _integers(result, "place", at, place)
    gathered = result.of(
        Gathered,
        name=f"{result.name}_new",
        table=converted(source, result.dtype),
        index=tuple(index if i == d else i for i in range(len(x.shape))),
    )
    return result.elementwise(chosen, at, gathered, x)


def _between(result: Result, x: Value, source: Value, dim: int, begin: int) -> Value:
    """x with as many elements from `begin` on replaced by the source."""
    number, end = constant_number(x), begin + source.shape[dim]
    if number is not None:
        return padded(result, source, [begin if d == dim else 0 for d in range(len(x.shape))], number)
    return joined(result, (piece(x, dim, 0, begin), source, piece(x, dim, end, x.shape[dim] - end)), dim)


def _select_scatter(result: Result, x: Value, source: Value, dim: int, index: int) -> Value:
    d = dim % len(x.shape)
    at = arange(x.shape[d], len(x.shape), d, f"{result.name}_at")
    new = reshape(converted(source, result.dtype), (*x.shape[:d], 1, *x.shape[d + 1 :]))
    return _replaced(result, x, at, Integer(index % x.shape[d]), new)


def _diagonal_scatter(
    result: Result, x: Value, source: Value, *, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    rank = len(x.shape)
    first, second = dim1 % rank, dim2 % rank
    row = arange(x.shape[first], rank, first, f"{result.name}_row")
    column = arange(x.shape[second], rank, second, f"{result.name}_column")
    top, left = max(-offset, 0), max(offset, 0)

    def nearest(p: Expression) -> Expression:
        below = ex.call("minimum", ex.sub(p, Integer(top)), Integer(source.shape[-1] - 1))
        return ex.call("maximum", Integer(0), below)

    place = _integers(result, "place", row, nearest)
    others = [d for d in range(rank) if d not in (first, second)]
    table = converted(source, result.dtype)
    new = result.of(Gathered, name=f"{result.name}_new", table=table, index=(*others, place))

    def chosen(r: Expression, c: Expression, new: Expression, old: Expression) -> Expression:
        here = ex.call("eq", ex.sub(c, Integer(left)), ex.sub(r, Integer(top)))
        inside = ex.call("le", Integer(top), r)
        return ex.call("where", ex.mul(here, inside), new, old)

    return result.elementwise(chosen, row, column, new, x)


def _replaced(result: Result, x: Value, at: Value, place: Expression, new: Value) -> Value:
    return result.elementwise(lambda p, n, old: ex.call("where", ex.call("eq", p, place), n, old), at, new, x)


def _index_put(
    result: Result, x: Value, indices: Sequence[Value | None], values: Value, *, accumulate: bool = False
) -> Value:
    """x with x[indices] = values, or += values."""
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == "bool":
        return _masked(result, x, indices[0], values, accumulate)
    given = [d for d, i in enumerate(indices) if i is not None]
    tensors = [i for i in indices if i is not None]
    if any(i.dtype == "bool" for i in tensors):
        raise UnsupportedError("putting elements by several index tensors, of which some are masks")
    if len(given) > 1:
        return _put_along_each(result, x, given, tensors, values, accumulate)
    d, index = given[0], tensors[0]
    whole = (*x.shape[:d], *index.shape, *x.shape[d + 1 :])
    spread = expand(result.part("values", whole, values.dtype), values, whole)
    values = reshape(spread, (*x.shape[:d], index.elements, *x.shape[d + 1 :]))
    values = converted(values, result.dtype)
    return _put(result, x, d, index, values, accumulate)


def _put_along_each(
    result: Result, x: Value, dims: Sequence[int], indices: Sequence[Value], values: Value, accumulate: bool
) -> Value:
    """x[…, i, j, …] += values, for index tensors that are alike along each other's dimensions: one after the other.

    Before:  y[i[o], j[q]] += v[o, q]
    After:   s[o, r] = sum over q with j[q] == r of v[o, q];  y[p, r] += sum over o with i[o] == p of s[o, r]
    """
    shape = torch.broadcast_shapes(*(i.shape for i in indices))
    apart = [n for i in indices for n in i.shape if n > 1] == [n for n in shape if n > 1]
    together = list(dims) == list(range(dims[0], dims[0] + len(dims)))
    if not (accumulate and apart and together):
        raise UnsupportedError("putting elements by several index tensors")
    first, after = dims[0], x.shape[dims[-1] + 1 :]
    whole = (*x.shape[:first], *shape, *after)
    sums = expand(result.part("values", whole, values.dtype), values, whole)
    sums = converted(sums, result.dtype)
    sums = reshape(sums, (*x.shape[:first], *(i.elements for i in indices), *after))
    for d, index in list(zip(dims, indices, strict=True))[::-1]:
        part = replace(result, name=f"{result.name}_{d}")
        sums = _sums_along(part, sums, d, index, x.shape[d], written_out=False)
    return _added(result, x, sums)


def _masked(result: Result, x: Value, mask: Value, values: Value, accumulate: bool) -> Value:
    if values.elements != 1:
        raise UnsupportedError("putting several elements where a mask is set, whose number depends on data")
    shape = (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape)))
    new = reshape(converted(values, result.dtype), ())

    def chosen(m: Expression, n: Expression, old: Expression) -> Expression:
        return ex.call("where", m, n, old)

    if accumulate:
        new = _added(result.part("added", x.shape, x.dtype), x, new)
    return result.elementwise(chosen, reshape(mask, shape), new, x)


def _put(result: Result, x: Value, d: int, index: Value, values: Value, accumulate: bool) -> Value:
    """`values`, of the shape of x but along d of the number of positions, put at these positions, in order."""
    count, rank = index.elements, len(x.shape)
    if accumulate and count > 1:
        return _added(result, x, _sums_along(result, values, d, index, x.shape[d]))
    _check_compared(count)
    index = from_the_end(reshape(index, (count,)), x.shape[d])
    if count == 1:
        return _once(result, x, arange(x.shape[d], rank, d, f"{result.name}_at"), index, values, accumulate)
    at = arange(x.shape[d], rank + 1, d, f"{result.name}_at")
    return _last(result, x, d, at, reshape(index, (*(1,) * rank, count)), values)


def _check_compared(count: int) -> None:
    if count > MOST_COMPARED:
        raise UnsupportedError(f"putting elements at {count} positions; at most {MOST_COMPARED} are compared")


def _sums_along(result: Result, values: Value, d: int, index: Value, size: int, written_out: bool = True) -> Value:
    """The sums of the values along d by their positions, of which there are `size`: an element adds those whose
    position is its own.
    """
    near = sums_near(result, values, d, index, size, written_out)
    if near is not None:
        return near
    ends = ends_of(index, 0) if len(index.shape) == 1 else None
    if ends is not None and size <= ends.elements:
        whole = size == ends.elements
        return _sums_of_segments(result, values, d, ends if whole else piece(ends, 0, 0, size))
    _check_compared(index.elements)
    rank = len(values.shape)
    at = arange(size, rank + 1, d, f"{result.name}_at")
    places = reshape(from_the_end(reshape(index, (index.elements,)), size), (*(1,) * rank, index.elements))
    shape = (*values.shape[:d], size, *values.shape[d + 1 :])
    return _sums(result, shape, at, places, _values_last(result, values, d))


def _sums_of_segments(result: Result, values: Value, d: int, ends: Value) -> Value:
    """The sums of the values along d within each segment, which are next to each other."""
    terms = inside_alone(result, values, bounds_of_ends(ends), d, place=d, own=of_segments(values, ends, d))
    dtype = "int64" if is_integer(values.dtype) else "float32"
    return result.reduced("sum", terms, (d + 1,), name=f"{result.name}_sums", dtype=dtype)


def _sums(result: Result, shape: Sequence[int], at: Value, places: Value, values: Value) -> Value:
    """For every element the sum over the last dimension of the values for its position."""
    whole = is_integer(result.dtype)
    nothing = Integer(0) if whole else Literal(0.0)
    terms = result.elementwise(
        lambda p, i, v: ex.call("where", ex.call("eq", p, i), v, nothing),
        *(at, places, values),
        name=f"{result.name}_terms",
        shape=(*shape, values.shape[-1]),
        dtype="int64" if whole else "float32",
    )
    return result.reduced("sum", terms, (len(shape),), name=f"{result.name}_sums", dtype=terms.dtype)


def _added(result: Result, *terms: Value) -> Value:
    """The sum, which wraps around in the result's type if that is one of integers."""
    if result.dtype == "bool":
        raise UnsupportedError("sums of booleans that are put somewhere")
    if is_integer(result.dtype):
        return result.elementwise(lambda a, b: wrapped(ex.add(a, b), result.dtype), *terms)
    return result.pointwise(ex.add, *terms)


def _values_last(result: Result, values: Value, d: int) -> Value:
    """The values with the dimension of the positions last, and of size 1 where it was."""
    rank = len(values.shape)
    order = [*(i for i in range(rank) if i != d), d]
    shape = tuple(values.shape[i] for i in order)
    permuted = permute(result.part("permuted", shape, values.dtype), values, order)
    return reshape(permuted, (*shape[:d], 1, *shape[d:]))


def _integers(result: Result, name: str, argument: Value, combine: Callable[[Expression], Expression]) -> Value:
    return result.elementwise(combine, argument, name=f"{result.name}_{name}", shape=argument.shape, dtype="int64")


def _once(result: Result, x: Value, at: Value, index: Value, values: Value, accumulate: bool) -> Value:
    place = reshape(index, (1,) * len(x.shape))

    def chosen(p: Expression, i: Expression, new: Expression, old: Expression) -> Expression:
        return ex.call("where", ex.call("eq", p, i), new, old)

    if accumulate:
        values = _added(result.part("added", x.shape, x.dtype), x, values)
    return result.elementwise(chosen, at, place, values, x)


def _last(result: Result, x: Value, d: int, at: Value, places: Value, values: Value) -> Value:
    """The last of several values with one position is put there, as PyTorch does on a CPU."""
    count, rank = places.elements, len(x.shape)
    line = tuple(n if i == d else 1 for i, n in enumerate(x.shape))
    numbers = arange(count, rank + 1, rank, f"{result.name}_numbers")
    found = result.elementwise(
        lambda p, i, n: ex.call("where", ex.call("eq", p, i), n, Integer(-1)),
        *(at, places, numbers),
        name=f"{result.name}_found",
        shape=(*line, count),
        dtype="int64",
    )
    # Integers, so that random data for the second kernel are positions.
    last = result.reduced("max", found, (rank,), name=f"{result.name}_last", dtype="int64")
    place = _integers(result, "place", last, lambda n: ex.call("maximum", n, Integer(0)))
    new = result.of(
        Gathered,
        name=f"{result.name}_new",
        table=values,
        index=tuple(place if i == d else i for i in range(rank)),
    )
    return result.elementwise(lambda n, v, old: ex.call("where", ex.call("lt", n, Integer(0)), old, v), *(last, new, x))


def _scatter_add(result: Result, x: Value, dim: int, index: Value, source: Value) -> Value:
    """x with the source added along `dim` at the index's positions: one for every element of the source."""
    if not x.shape:
        return _added(result, x, reshape(source, ()))
    d, rank = dim % len(x.shape), len(x.shape)
    whole = all(a == b for i, (a, b) in enumerate(zip(index.shape, x.shape, strict=True)) if i != d)
    if not whole or source.shape != index.shape:
        raise UnsupportedError("scattering into a part of the other dimensions")
    ends = ends_of(index, d)
    if ends is not None and x.shape[d] <= ends.elements:
        return _added(result, x, _sums_of_segments(result, source, d, piece(ends, 0, 0, x.shape[d])))
    count = index.shape[d]
    if count > MOST_COMPARED:
        raise UnsupportedError(f"scattering {count} elements along a dimension; at most {MOST_COMPARED} are compared")
    at = arange(x.shape[d], rank + 1, d, f"{result.name}_at")
    sums = _sums(result, x.shape, at, _values_last(result, index, d), _values_last(result, source, d))
    return _added(result, x, sums)


RULES: Mapping[str, Callable[..., Any]] = {
    "copy": _copy,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "diagonal_scatter": _diagonal_scatter,
    "index_put": _index_put,
    "scatter_add": _scatter_add,
}
