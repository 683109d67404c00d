"""ATen's operators that put elements into a copy of a tensor.

Every element of the result asks whether something is put there, and looks that up: nothing is written to a place that
is data. Of positions that are data, each element of the result compares its own with all of them, so that there may
not be many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.tracing.lookup_rules import from_the_end
from autosched.tracing.rules import Result, UnsupportedError, converted, counted, reshape
from autosched.tracing.values import LookedUp, Pointwise, Value
from autosched.tracing.view_translation import expand, permute
from search_spaces import expression as ex
from search_spaces.expression import Expression, Literal

# So many comparisons for an element of the result take as long as reading it does, and a few times more.
_MOST_COMPARED = 1024


def _copy(result: Result, x: Value, source: Value) -> Value:
    """All of x replaced by the source, in the element type and the shape of x."""
    return expand(result, converted(source, result.dtype), result.shape)


def _slice_scatter(
    result: Result, x: Value, source: Value, *, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    d, extent = dim % len(x.shape), x.shape[dim]
    begin = min(max(0 if start is None else start + extent * (start < 0), 0), extent)
    count = source.shape[d]
    if (count, step) == (extent, 1):
        return _copy(result, x, source)
    at = counted(extent, len(x.shape), d, f"{result.name}_at")

    def place(p: Expression) -> Expression:
        """The position in the source, which may be none of it."""
        return ex.div(ex.sub(p, Literal(float(begin))), Literal(float(step)))

    def within(p: Expression) -> Expression:
        return ex.call("maximum", Literal(0.0), ex.call("minimum", ex.call("floor", p), Literal(count - 1.0)))

    def chosen(p: Expression, new: Expression, old: Expression) -> Expression:
        return ex.call("where", ex.call("eq", within(place(p)), place(p)), new, old)

    index = _integers(result, "place", at, lambda p: within(place(p)), count)
    looked_up = result.of(
        LookedUp,
        name=f"{result.name}_new",
        limit=source.limit,
        table=converted(source, result.dtype),
        index=tuple(index if i == d else i for i in range(len(x.shape))),
    )
    return result.of(Pointwise, arguments=(at, looked_up, x), combine=chosen, limit=max(x.limit, source.limit))


def _select_scatter(result: Result, x: Value, source: Value, dim: int, index: int) -> Value:
    d = dim % len(x.shape)
    at = counted(x.shape[d], len(x.shape), d, f"{result.name}_at")
    new = reshape(converted(source, result.dtype), (*x.shape[:d], 1, *x.shape[d + 1 :]))
    return _replaced(result, x, at, Literal(float(index % x.shape[d])), new)


def _diagonal_scatter(
    result: Result, x: Value, source: Value, *, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    rank = len(x.shape)
    first, second = dim1 % rank, dim2 % rank
    row = counted(x.shape[first], rank, first, f"{result.name}_row")
    column = counted(x.shape[second], rank, second, f"{result.name}_column")
    top, left = max(-offset, 0), max(offset, 0)
    place = _integers(
        result,
        "place",
        row,
        lambda p: ex.call(
            "maximum", Literal(0.0), ex.call("minimum", ex.sub(p, Literal(float(top))), Literal(source.shape[-1] - 1.0))
        ),
        source.shape[-1],
    )
    others = [d for d in range(rank) if d not in (first, second)]
    table = converted(source, result.dtype)
    new = result.of(LookedUp, name=f"{result.name}_new", limit=source.limit, table=table, index=(*others, place))

    def chosen(r: Expression, c: Expression, new: Expression, old: Expression) -> Expression:
        here = ex.call("eq", ex.sub(c, Literal(float(left))), ex.sub(r, Literal(float(top))))
        inside = ex.call("le", Literal(float(top)), r)
        return ex.call("where", ex.mul(here, inside), new, old)

    return result.of(Pointwise, arguments=(row, column, new, x), combine=chosen, limit=max(x.limit, source.limit))


def _replaced(result: Result, x: Value, at: Value, place: Expression, new: Value) -> Value:
    return result.of(
        Pointwise,
        arguments=(at, new, x),
        combine=lambda p, n, old: ex.call("where", ex.call("eq", p, place), n, old),
        limit=max(x.limit, new.limit),
    )


def _index_put(
    result: Result, x: Value, indices: Sequence[Value | None], values: Value, *, accumulate: bool = False
) -> Value:
    """x with x[indices] = values, or += values."""
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == "bool":
        return _masked(result, x, indices[0], values, accumulate)
    given = [d for d, i in enumerate(indices) if i is not None]
    tensors = [i for i in indices if i is not None]
    if len(given) != 1 or tensors[0].dtype == "bool":
        raise UnsupportedError("putting elements where several index tensors say")
    d, index = given[0], tensors[0]
    # The positions as one dimension, behind those of x.
    flat = reshape(index, (index.elements,))
    whole = (*x.shape[:d], *index.shape, *x.shape[d + 1 :])
    spread = expand(_part(result, "values", whole, values.dtype), values, whole)
    values = reshape(spread, (*x.shape[:d], index.elements, *x.shape[d + 1 :]))
    values = converted(values, result.dtype)
    return _put(result, x, d, flat, values, accumulate)


def _masked(result: Result, x: Value, mask: Value, values: Value, accumulate: bool) -> Value:
    if values.elements != 1:
        raise UnsupportedError("putting several elements where a mask is set, whose number depends on data")
    shape = (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape)))
    new = reshape(converted(values, result.dtype), ())

    def chosen(m: Expression, n: Expression, old: Expression) -> Expression:
        return ex.call("where", m, ex.add(old, n) if accumulate else n, old)

    arguments = (reshape(mask, shape), new, x)
    if accumulate:
        return result.pointwise(chosen, *arguments)
    return result.of(Pointwise, arguments=arguments, combine=chosen, limit=max(x.limit, values.limit))


def _put(result: Result, x: Value, d: int, index: Value, values: Value, accumulate: bool) -> Value:
    """`values`, of the shape of x but as many along d as there are positions, put where they say."""
    count, rank = index.elements, len(x.shape)
    if count > _MOST_COMPARED:
        raise UnsupportedError(f"putting elements at {count} positions; at most {_MOST_COMPARED} are compared")
    at = counted(x.shape[d], rank + 1, d, f"{result.name}_at")
    index = from_the_end(index, x.shape[d])
    places = reshape(index, (*(1,) * rank, count))
    if count == 1:
        return _once(result, x, counted(x.shape[d], rank, d, f"{result.name}_at"), index, values, accumulate)
    if not accumulate:
        return _last(result, x, d, at, places, values)
    # Every element adds the values whose position is its own.
    moved = _values_last(result, values, d)
    terms = Pointwise(
        name=f"{result.name}_terms",
        shape=(*x.shape, count),
        dtype="float32",
        line=result.line,
        origin=result.origin,
        arguments=(at, places, moved),
        combine=lambda p, i, v: ex.call("where", ex.call("eq", p, i), v, Literal(0.0)),
    )
    total = result.reduced("sum", terms, (rank,), name=f"{result.name}_sums")
    return result.pointwise(ex.add, x, total)


def _values_last(result: Result, values: Value, d: int) -> Value:
    """The values with the dimension of the positions last, and of size 1 where it was."""
    rank = len(values.shape)
    order = [*(i for i in range(rank) if i != d), d]
    shape = tuple(values.shape[i] for i in order)
    turned = permute(_part(result, "turned", shape, values.dtype), values, order)
    return reshape(turned, (*shape[:d], 1, *shape[d:]))


def _part(result: Result, name: str, shape: tuple[int, ...], dtype: str) -> Result:
    return Result(f"{result.name}_{name}", shape, dtype, result.line, result.origin, result.on_cpu)


def _integers(
    result: Result, name: str, argument: Value, combine: Callable[[Expression], Expression], limit: float
) -> Value:
    return Pointwise(
        name=f"{result.name}_{name}",
        shape=argument.shape,
        dtype="int64",
        limit=float(limit),
        line=result.line,
        origin=result.origin,
        arguments=(argument,),
        combine=combine,
    )


def _once(result: Result, x: Value, at: Value, index: Value, values: Value, accumulate: bool) -> Value:
    place = reshape(index, (1,) * len(x.shape))

    def chosen(p: Expression, i: Expression, new: Expression, old: Expression) -> Expression:
        return ex.call("where", ex.call("eq", p, i), ex.add(old, new) if accumulate else new, old)

    if accumulate:
        return result.pointwise(chosen, at, place, values, x)
    arguments = (at, place, values, x)
    return result.of(Pointwise, arguments=arguments, combine=chosen, limit=max(x.limit, values.limit))


def _last(result: Result, x: Value, d: int, at: Value, places: Value, values: Value) -> Value:
    """Of several values with one position the last one is put there, as PyTorch does on a CPU."""
    count, rank = places.elements, len(x.shape)
    line = tuple(n if i == d else 1 for i, n in enumerate(x.shape))
    numbers = counted(count, rank + 1, rank, f"{result.name}_numbers")
    found = Pointwise(
        name=f"{result.name}_found",
        shape=(*line, count),
        dtype="int64",
        limit=float(count),
        line=result.line,
        origin=result.origin,
        arguments=(at, places, numbers),
        combine=lambda p, i, n: ex.call("where", ex.call("eq", p, i), n, Literal(-1.0)),
    )
    # Integers, so that whoever draws data for the second kernel draws positions.
    last = result.reduced("max", found, (rank,), name=f"{result.name}_last", dtype="int64", limit=float(count))
    place = _integers(result, "place", last, lambda n: ex.call("maximum", n, Literal(0.0)), count)
    new = result.of(
        LookedUp,
        name=f"{result.name}_new",
        limit=values.limit,
        table=values,
        index=tuple(place if i == d else i for i in range(rank)),
    )
    return result.of(
        Pointwise,
        arguments=(last, new, x),
        combine=lambda n, v, old: ex.call("where", ex.call("lt", n, Literal(0.0)), old, v),
        limit=max(x.limit, values.limit),
    )


def _scatter_add(result: Result, x: Value, dim: int, index: Value, source: Value) -> Value:
    """x with the source added along `dim` where the index says: an index for every element of the source."""
    if not x.shape:
        return result.pointwise(ex.add, x, reshape(source, ()))
    d, rank = dim % len(x.shape), len(x.shape)
    whole = all(a == b for i, (a, b) in enumerate(zip(index.shape, x.shape, strict=True)) if i != d)
    if not whole or source.shape != index.shape:
        raise UnsupportedError("scattering into a part of the other dimensions")
    count = index.shape[d]
    if count > _MOST_COMPARED:
        raise UnsupportedError(f"scattering {count} elements along a dimension; at most {_MOST_COMPARED} are compared")
    at = counted(x.shape[d], rank + 1, d, f"{result.name}_at")
    terms = Pointwise(
        name=f"{result.name}_terms",
        shape=(*x.shape, count),
        dtype="float32",
        line=result.line,
        origin=result.origin,
        arguments=(at, _values_last(result, index, d), _values_last(result, source, d)),
        combine=lambda p, i, v: ex.call("where", ex.call("eq", p, i), v, Literal(0.0)),
    )
    return result.pointwise(ex.add, x, result.reduced("sum", terms, (rank,), name=f"{result.name}_sums"))


RULES: Mapping[str, Callable[..., Any]] = {
    "copy": _copy,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "diagonal_scatter": _diagonal_scatter,
    "index_put": _index_put,
    "scatter_add": _scatter_add,
}
