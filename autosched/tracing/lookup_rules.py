"""ATen's look-ups of elements by an index tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autosched.tracing.rules import Result, UnsupportedError, as_held, counted, reshape
from autosched.tracing.values import LookedUp, Pointwise, Value
from search_spaces import expression as ex
from search_spaces.expression import Expression, Integer


def _looked_up(result: Result, table: Value, index: Sequence[Value | int]) -> Value:
    return result.of(LookedUp, table=table, index=tuple(index))


def _beside(index: Value, before: int, after: int) -> Value:
    """The index tensor with so many dimensions of size 1 around its own."""
    return reshape(index, (*(1,) * before, *index.shape, *(1,) * after))


def _embedding(result: Result, table: Value, index: Value) -> Value:
    return _looked_up(result, table, (_beside(index, 0, 1), len(index.shape)))


def _index_select(result: Result, table: Value, dim: int, index: Value) -> Value:
    table = _with_dimensions(table)
    d, rank = dim % len(table.shape), len(table.shape)
    one = reshape(index, (index.elements,))
    places = [_beside(one, d, rank - 1 - d) if i == d else i for i in range(rank)]
    return _shaped(_looked_up(_of_rank(result, rank), table, places), result)


def _select_at(result: Result, table: Value, dim: int, index: Value) -> Value:
    """One position of a dimension, at an index that is data: x[i]."""
    rank = len(table.shape)
    d, kept = dim % rank, iter(range(rank - 1))
    one = _from_the_end(reshape(index, (1,) * (rank - 1)), table.shape[d])
    return _looked_up(result, table, [one if i == d else next(kept) for i in range(rank)])


def _gather(result: Result, table: Value, dim: int, index: Value) -> Value:
    table, index = _with_dimensions(table), _with_dimensions(index)
    d, rank = dim % len(table.shape), len(table.shape)
    return _shaped(_looked_up(_of_rank(result, rank), table, [index if i == d else i for i in range(rank)]), result)


def _with_dimensions(value: Value) -> Value:
    """What has no dimension is indexed as if it had one."""
    return value if value.shape else reshape(value, (1,))


def _of_rank(result: Result, rank: int) -> Result:
    return result if len(result.shape) == rank else replace(result, shape=(1,) * rank)


def _shaped(value: Value, result: Result) -> Value:
    return value if value.shape == result.shape else reshape(value, result.shape, result.name)


def _index(result: Result, table: Value, indices: Sequence[Value | None]) -> Value:
    """x[i, :, j]: the dimensions of the index tensors stand where these do, or first where they are apart."""
    given = [*indices, *[None] * (len(table.shape) - len(indices))]
    at = [d for d, i in enumerate(given) if i is not None]
    tensors = [i for i in given if i is not None]
    if any(i.dtype in ("bool", "uint8") for i in tensors):
        raise UnsupportedError("an index of booleans, whose result has a shape that depends on data")
    rank = max(len(i.shape) for i in tensors)
    first = at[0] if at == list(range(at[0], at[0] + len(at))) else 0
    after = len(table.shape) - len(at) - first
    index: list[Value | int] = []
    kept = [*range(first), *range(first + rank, first + rank + after)]
    for d, i in enumerate(given):
        if i is None:
            index.append(kept.pop(0))
        else:
            index.append(_from_the_end(_beside(i, 0, after), table.shape[d]))
    return _looked_up(result, table, index)


def _scatter(result: Result, x: Value, dim: int, index: Value, source: Any, *, reduce: str | None = None) -> Value:
    """x with one element along `dim` replaced: the position is compared with the index everywhere."""
    if reduce is not None:
        raise UnsupportedError(f"scattering with reduce={reduce!r}")
    x, index = _with_dimensions(x), _with_dimensions(index)
    source = _with_dimensions(source) if isinstance(source, Value) else source
    d, rank = dim % len(x.shape), len(x.shape)
    whole = all(a == b for i, (a, b) in enumerate(zip(index.shape, x.shape, strict=True)) if i != d)
    if index.shape[d] != 1 or not whole or (isinstance(source, Value) and source.shape != index.shape):
        raise UnsupportedError("scattering of several elements along a dimension, or into a part of the others")
    at = counted(x.shape[d], rank, d, f"{result.name}_at")
    given = (source,) if isinstance(source, Value) else ()
    number = None if isinstance(source, Value) else as_held(source, result.dtype)

    def combine(a: Expression, place: Expression, i: Expression, *new: Expression) -> Expression:
        return ex.call("where", ex.call("eq", place, i), new[0] if number is None else number, a)

    made = replace(result, shape=x.shape).of(Pointwise, arguments=(x, at, index, *given), combine=combine)
    return _shaped(made, result)


def _from_the_end(index: Value, size: int) -> Value:
    """Indices below 0 count from the end."""

    def combine(i: Expression) -> Expression:
        return ex.call("where", ex.call("lt", i, Integer(0)), ex.add(i, Integer(size)), i)

    name = f"{index.name}_from_end"
    return Pointwise(name=name, shape=index.shape, dtype=index.dtype, arguments=(index,), combine=combine)


RULES: Mapping[str, Callable[..., Any]] = {
    "embedding": _embedding,
    "index_select": _index_select,
    "select_at": _select_at,
    "gather": _gather,
    "scatter": _scatter,
    "index": _index,
}
