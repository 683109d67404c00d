"""Memory layouts: results have the order of dimensions in memory that PyTorch's have.

Pointwise operators of PyTorch keep the order of their arguments (channels_last, for one); a kernel stores its output
dense in the order of its dimensions. A result in another order is stored transposed, and is a view of that:

Before:  result[n, c, h, w]
After:   stored[n, h, w, c] = result[n, c, h, w]; returned = stored.permute(0, 3, 1, 2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autosched.tracing.operators.rules import Result
from autosched.tracing.operators.view_translation import permute
from autosched.tracing.values.tensor_reads import chain, placed
from autosched.tracing.values.values import Value, View
from search_spaces.workloads.strides import declared_strides, memory_order, same_places


def laid_out_results(results: Sequence[Value], strides: Sequence[tuple[int, ...] | None]) -> list[Value]:
    """The results with PyTorch's strides: each once, and views of one another as views."""
    wanted = list(zip(results, strides, strict=True))
    whole = {r: laid_out(r, s) for r, s in wanted if s is not None and not isinstance(r, View)}
    return [_part_of(whole, r, s) if s is not None and isinstance(r, View) else whole.get(r, r) for r, s in wanted]


def _part_of(whole: Mapping[Value, Value], view: View, strides: tuple[int, ...]) -> Value:
    """The view as one of another result in its new layout, if it has these strides then; or by itself."""
    views = chain(view, {})
    made = whole.get(views[-1].argument)
    if made is None:
        return laid_out(view, strides)
    for kind in reversed(views):
        made = replace(kind, argument=made)
    return made if has_strides(made, strides) else laid_out(view, strides)


def laid_out(value: Value, strides: tuple[int, ...]) -> Value:
    """The value, or a view of a copy of it with these strides, if they are dense in any order of dimensions."""
    order = memory_order(value.shape, strides)
    if order is None or not value.readable or has_strides(value, strides):
        return value
    permuted = tuple(value.shape[d] for d in order)
    there = Result(f"{value.name}_permuted", permuted, value.dtype, value.line)
    moved = permute(there, value, order)
    stored = there.elementwise(lambda x: x, moved, name=f"{value.name}_stored")
    back = Result(f"{value.name}_back", value.shape, value.dtype, value.line)
    return permute(back, stored, [order.index(d) for d in range(len(order))])


def has_strides(value: Value, strides: tuple[int, ...]) -> bool:
    """True if it has these strides once its base is in memory."""
    own = own_strides(value)
    return own is not None and same_places(value.shape, own, strides)


def own_strides(value: Value) -> tuple[int, ...] | None:
    """The strides of a value, stored itself or as a view of its stored base; None where no strides make it."""
    if not isinstance(value, View):
        return value.memory_strides
    views = chain(value, {})
    found = placed(views, views[-1].argument.memory_strides)
    return found and found[0]


def permuted_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides, if they are dense in another order than that of the dimensions."""
    dense = declared_strides(shape, strides) is None
    return None if dense or memory_order(shape, strides) is None else strides
