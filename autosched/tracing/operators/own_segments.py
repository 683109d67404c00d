"""Entries looked up for the segment of every row, in sums over the rows of segments: that of the segment itself.

    sum over t in segment g of f(x[t], table[segment of t])     by index, as PyTorch has it: a search for every row
    sum over t in segment g of f(x[t], table[g])                the same

Both are by the same ends, which are sorted: of others, PyTorch defines no segments, and the two may differ.
"""

from __future__ import annotations

from collections.abc import Iterator

from autosched.tracing.operators.rules import Result, reshape
from autosched.tracing.operators.segments import ends_of, unshaped
from autosched.tracing.values.values import Gathered, Pointwise, Value, View
from autosched.tracing.values.views import Expansion, Reshape


def of_segments(x: Value, ends: Value, place: int) -> Value:
    """x with a dimension of the segments before dimension `place`, which they cut: of size 1, unless x looks up entries
    of segments."""
    (count,), rank = ends.shape, len(x.shape)
    found: dict[Value, Value] = {}

    def widened(value: Value, segments: int) -> tuple[int, ...]:
        shape = (*(1,) * (rank - len(value.shape)), *value.shape)
        return (*shape[:place], segments, *shape[place:])

    for value in _pointwise_below(x):
        in_rows = place == 0 and len(value.shape) == rank and value.shape[0] == x.shape[0]
        table = _table(value, ends) if in_rows else None
        if table is not None:
            found[value] = reshape(table, (count, 1, *value.shape[1:]))
        elif isinstance(value, Pointwise) and not found.keys().isdisjoint(value.arguments):
            arguments = tuple(found.get(a) or reshape(a, widened(a, 1)) for a in value.arguments)
            result = Result(f"{value.name}_of_segments", widened(value, count), value.dtype, value.line)
            found[value] = result.of(Pointwise, arguments=arguments, expression=value.expression)
        elif isinstance(value, View) and value.argument in found and _is_unchanged(value):
            found[value] = found[value.argument]
    return found.get(x) or reshape(x, widened(x, 1))


def _pointwise_below(x: Value) -> Iterator[Value]:
    """The value and what pointwise ones compute it of, each after its arguments."""
    seen: set[Value] = set()
    stack = [(x, False)]
    while stack:
        value, done = stack.pop()
        if done:
            yield value
        elif value not in seen:
            seen.add(value)
            stack.append((value, True))
            stack += [(a, False) for a in value.operands if isinstance(value, Pointwise) or _is_unchanged(value)]


def _is_unchanged(value: Value) -> bool:
    """True for a view with the elements of its argument in their places."""
    return (
        isinstance(value, View) and isinstance(value.kind, Reshape | Expansion) and value.shape == value.argument.shape
    )


def _table(value: Value, ends: Value) -> Value | None:
    """The table whose entry for the segment of each position along the first dimension a value has; or None."""
    looked_up = unshaped(value)
    if not isinstance(looked_up, Gathered):
        return None
    table, (index, *others) = looked_up.table, looked_up.index
    behind = value.shape[len(looked_up.shape) :]
    if value.shape[: len(looked_up.shape)] != looked_up.shape or any(n > 1 for n in behind):
        return None
    whole = others == list(range(1, len(table.shape))) and len(looked_up.shape) == len(table.shape)
    if not whole or not isinstance(index, Value) or table.shape[0] != ends.shape[0]:
        return None
    # One position may stand for all rows, or numbers for columns.
    of_rows = len(index.shape) == len(looked_up.shape) and index.shape[0] == value.shape[0]
    own = ends_of(index, 0) if of_rows else None
    return table if own is not None and _is_same(own, ends) else None


def _is_same(one: Value, other: Value) -> bool:
    """True for one value, or the same views of one."""
    while one is not other:
        if not isinstance(one, View) or not isinstance(other, View) or one.kind != other.kind:
            return False
        one, other = one.argument, other.argument
    return True
