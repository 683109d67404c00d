"""ATen's gathers of elements by an index tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autosched.tracing.operators.rules import Result, UnsupportedError, arange, as_constant, converted, reshape
from autosched.tracing.operators.segments import is_every_position, is_segment, sorted_in_order
from autosched.tracing.operators.view_translation import expand, select
from autosched.tracing.values.values import Gathered, Value
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.expression import Expression, Integer


def _gathered(result: Result, table: Value, index: Sequence[Value | int]) -> Value:
    return result.of(Gathered, table=table, index=tuple(index))


def _unsqueezed(index: Value, before: int, after: int) -> Value:
    """The index tensor with that many dimensions of size 1 before and after its own."""
    return reshape(index, (*(1,) * before, *index.shape, *(1,) * after))


def _embedding(result: Result, table: Value, index: Value) -> Value:
    return _gathered(result, table, (_unsqueezed(index, 0, 1), len(index.shape)))


def _index_select(result: Result, table: Value, dim: int, index: Value) -> Value:
    if not table.shape:
        return _only(result, table)
    d, rank = dim % len(table.shape), len(table.shape)
    one = reshape(index, (index.elements,))
    if is_every_position(table):
        return converted(one, result.dtype, result.name)
    return _gathered(result, table, [_unsqueezed(one, d, rank - 1 - d) if i == d else i for i in range(rank)])


def _gather(result: Result, table: Value, dim: int, index: Value) -> Value:
    if not table.shape:
        return _only(result, table)
    d = dim % len(table.shape)
    index = reshape(index, index.shape or (1,))
    return _gathered(result, table, [index if i == d else i for i in range(len(table.shape))])


def _only(result: Result, table: Value) -> Value:
    """A gather from a tensor of one element without dimensions: that element, for every index."""
    return expand(result, table, result.shape)


def _select(result: Result, x: Value, dim: int, index: int | Value) -> Value:
    if isinstance(index, int):
        return select(result, x, dim, index)
    d, rank = dim % len(x.shape), len(x.shape)
    at = from_the_end(index, x.shape[d])
    return _gathered(result, x, [at if i == d else i - (i > d) for i in range(rank)])


def _index(result: Result, table: Value, indices: Sequence[Value | None]) -> Value:
    """x[i, :, j]: the dimensions of the index tensors replace the indexed ones, or come first where these are not
    adjacent.
    """
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
            index.append(from_the_end(_unsqueezed(i, 0, after), table.shape[d]))
    return _gathered(result, table, index)


def _scatter(result: Result, x: Value, dim: int, index: Value, source: Any, *, reduce: str | None = None) -> Value:
    """x with one element along `dim` replaced: every position is compared with the index."""
    if reduce is not None:
        raise UnsupportedError(f"scattering with reduce={reduce!r}")
    if not x.shape:
        x, index = reshape(x, (1,)), reshape(index, (1,))
        source = reshape(source, (1,)) if isinstance(source, Value) else source
        one = replace(result, name=f"{result.name}_one", shape=(1,))
        return reshape(_scatter(one, x, 0, index, source), ())
    d, rank = dim % len(x.shape), len(x.shape)
    whole = all(a == b for i, (a, b) in enumerate(zip(index.shape, x.shape, strict=True)) if i != d)
    if index.shape[d] != 1 or not whole or (isinstance(source, Value) and source.shape != index.shape):
        raise UnsupportedError("scattering of several elements along a dimension, or into a part of the others")
    at = arange(x.shape[d], rank, d, f"{result.name}_at")
    given = (source,) if isinstance(source, Value) else ()
    number = None if isinstance(source, Value) else as_constant(source, result.dtype)

    def combine(a: Expression, place: Expression, i: Expression, *new: Expression) -> Expression:
        return ex.call("where", ex.call("eq", place, i), new[0] if number is None else number, a)

    return result.elementwise(combine, x, at, index, *given)


def from_the_end(index: Value, size: int) -> Value:
    """Non-negative indices: those below 0 count from the end."""
    if is_segment(index) or sorted_in_order(index):
        return index

    def combine(i: Expression) -> Expression:
        return ex.call("where", ex.call("lt", i, Integer(0)), ex.add(i, Integer(size)), i)

    return Result(f"{index.name}_from_end", index.shape, index.dtype, "").elementwise(combine, index)


RULES: Mapping[str, Callable[..., Any]] = {
    "embedding": _embedding,
    "index_select": _index_select,
    "gather": _gather,
    "select": _select,
    "scatter": _scatter,
    "index": _index,
}
